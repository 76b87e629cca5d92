//! Under what a measured program runs.

use std::env;
use std::path::PathBuf;

/// Under what the program runs.
#[derive(Clone, Debug)]
pub enum Variant {
    /// Nothing.
    Native,
    /// A slice.
    Ours,
    /// Somebody else's library.
    Peer {
        /// To preload.
        library: PathBuf,
        /// What it wants in its environment.
        variables: Vec<(String, String)>,
    },
}

impl Variant {
    /// The peer that the environment names in PEER_SHIM and PEER_ENV.
    pub fn peer() -> Option<Self> {
        let library = env::var_os("PEER_SHIM")?.into();
        let words = env::var("PEER_ENV").unwrap_or_default();
        let pairs = words.split_whitespace().filter_map(|word| word.split_once('='));
        let variables = pairs.map(|(name, value)| (name.into(), value.into())).collect();
        Some(Self::Peer { library, variables })
    }

    /// For reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Ours => "ours",
            Self::Peer { .. } => "peer",
        }
    }
}
