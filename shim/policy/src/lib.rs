//! tranche-policy
