//! The measured build, and the driver under it.

use std::path::PathBuf;

/// Folder of the programs under measurement.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Root of the staged tree.
    pub root: PathBuf,
    /// The folder of `tranched` and `tranche`.
    pub programs: PathBuf,
}

impl Stage {
    /// Path of the program whose calls are measured.
    pub fn client(&self) -> PathBuf {
        self.root.join("bench/client")
    }

    /// Path of the program that keeps a GPU busy.
    pub fn load(&self) -> PathBuf {
        self.root.join("bench/load")
    }
}

/// Driver that programs and the daemon load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// A stub whose calls return at once; NVML shows one simulated H200.
    Stub,
    /// The simulated driver, with the GPUs of the node's preset.
    Simulated,
    /// The driver of this machine.
    Real,
}

impl Driver {
    pub(crate) fn libraries(self, stage: &Stage) -> Option<PathBuf> {
        match self {
            Self::Stub => Some(stage.root.join("bench/stub")),
            Self::Simulated => Some(stage.root.join("sim")),
            Self::Real => None,
        }
    }
}
