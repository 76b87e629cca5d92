//! The installation that this binary belongs to.

use std::path::{Path, PathBuf};

use crate::error::DemoError;

/// Programs and libraries beside this binary.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    root: PathBuf,
}

impl Parts {
    /// Finds the installation, and checks that the programs exist.
    pub(crate) fn find() -> Result<Self, DemoError> {
        let own = std::env::current_exe().map_err(DemoError::io("finding this program's own file"))?;
        let root = own.ancestors().nth(2).unwrap_or(Path::new("/")).to_path_buf();
        let parts = Self { root };
        for program in ["tranched", "tranche", "workload"] {
            there(parts.program(program))?;
        }
        Ok(parts)
    }

    /// Path of a program of the build.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.root.join("bin").join(name)
    }

    /// The folder of programs.
    pub(crate) fn programs(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// The folder of the simulated driver's libraries.
    pub(crate) fn simulated(&self) -> Result<PathBuf, DemoError> {
        there(self.program("simgpu"))?;
        there(self.root.join("sim/libcuda.so.1"))?;
        there(self.root.join("sim/libnvidia-ml.so.1"))?;
        Ok(self.root.join("sim"))
    }
}

fn there(path: PathBuf) -> Result<(), DemoError> {
    if path.exists() { Ok(()) } else { Err(DemoError::Missing(path)) }
}
