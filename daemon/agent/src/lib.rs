//! tranche-agent
