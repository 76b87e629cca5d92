//! tranche-preload
