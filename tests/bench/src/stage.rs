//! What is measured, and on which driver.

use std::path::PathBuf;

/// Folder of the programs under measurement.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The staged tree.
    pub root: PathBuf,
    /// The folder of `tranched` and `tranche`.
    pub programs: PathBuf,
}

impl Stage {
    /// The program whose calls are measured.
    pub fn client(&self) -> PathBuf {
        self.root.join("bench/client")
    }

    /// The program that keeps a GPU busy.
    pub fn load(&self) -> PathBuf {
        self.root.join("bench/load")
    }
}

/// Driver that programs and daemon find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// One that does nothing at once; NVML shows one simulated H200.
    Stub,
    /// The simulated one, with one H200.
    Simulated,
    /// The machine's own.
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
