//! Environments of a measured program: bare, in a slice, or under a third party's library.

use std::env;
use std::path::PathBuf;

/// Environment of a measured program.
#[derive(Clone, Debug)]
pub enum Variant {
    /// The driver alone, without a slice.
    Native,
    /// A slice of the node.
    Ours,
    /// A library of a third party.
    Peer {
        /// Path of the library, for `LD_PRELOAD`.
        library: PathBuf,
        /// Environment variables that the library needs.
        variables: Vec<(String, String)>,
    },
}

impl Variant {
    /// The library of `PEER_SHIM` with the variables of `PEER_ENV`; none if the former is not set.
    pub fn peer() -> Option<Self> {
        let library = env::var_os("PEER_SHIM")?.into();
        let words = env::var("PEER_ENV").unwrap_or_default();
        let pairs = words.split_whitespace().filter_map(|word| word.split_once('='));
        let variables = pairs.map(|(name, value)| (name.into(), value.into())).collect();
        Some(Self::Peer { library, variables })
    }

    /// Name of the variant in reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Ours => "ours",
            Self::Peer { .. } => "peer",
        }
    }
}
