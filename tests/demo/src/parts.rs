//! The installation that this binary belongs to.

use std::path::{Path, PathBuf};

use crate::error::DemoError;

/// Path from the simulated node's folder to the root of an installation around it.
const INSTALLED: &str = "../../..";

/// Programs and libraries beside this binary.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// Folder of the simulated node: `bin` with this binary and its tools, `sim` with the simulated driver.
    node: PathBuf,
    /// Folder of `tranche` and `tranched`: that of this binary, or of the installation around it.
    programs: PathBuf,
}

impl Parts {
    /// Finds the installation, and checks that the programs exist.
    pub(crate) fn find() -> Result<Self, DemoError> {
        let own = std::env::current_exe().map_err(DemoError::io("finding this program's own file"))?;
        let node = own.ancestors().nth(2).unwrap_or(Path::new("/")).to_path_buf();
        let [staged, installed] = [node.join("bin"), node.join(INSTALLED).join("bin")];
        let programs = if staged.join("tranched").exists() { staged } else { installed };
        let parts = Self { node, programs };
        for program in ["tranched", "tranche", "workload"] {
            there(parts.program(program))?;
        }
        Ok(parts)
    }

    /// Path of a program of the build.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let tool = self.tools().join(name);
        if tool.exists() { tool } else { self.programs.join(name) }
    }

    /// Folders of programs, in the order in which a shell searches them.
    pub(crate) fn path(&self) -> [PathBuf; 2] {
        [self.programs.clone(), self.tools()]
    }

    fn tools(&self) -> PathBuf {
        self.node.join("bin")
    }

    /// The folder of the simulated driver's libraries.
    pub(crate) fn simulated(&self) -> Result<PathBuf, DemoError> {
        there(self.program("simgpu"))?;
        there(self.node.join("sim/libcuda.so.1"))?;
        there(self.node.join("sim/libnvidia-ml.so.1"))?;
        Ok(self.node.join("sim"))
    }
}

fn there(path: PathBuf) -> Result<(), DemoError> {
    if path.exists() { Ok(()) } else { Err(DemoError::Missing(path)) }
}
