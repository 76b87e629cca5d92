//! tranche-ctl
