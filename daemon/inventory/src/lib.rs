//! tranche-inventory
