//! The tree that `make stage` makes: what a user would have installed.

use std::path::{Path, PathBuf};

/// Where the binaries and libraries under test are.
#[derive(Clone, Debug)]
pub struct Stage {
    root: PathBuf,
}

impl Stage {
    /// The tree in `TRANCHE_STAGE`, else `target/stage` of the workspace. Fails the test if it is not there.
    pub fn find() -> Self {
        let named = std::env::var_os("TRANCHE_STAGE").map(PathBuf::from);
        Self::at(named.unwrap_or_else(|| workspace().join("target/stage")))
    }

    /// The tree in a folder, such as that of another release. Fails the test if it is not there.
    pub fn at(root: PathBuf) -> Self {
        let stage = Self { root };
        let parts = [stage.daemon(), stage.command(), stage.simgpu(), stage.shim(), stage.driver()];
        for part in parts {
            assert!(part.exists(), "{} is missing: run `make build` first", part.display());
        }
        stage
    }

    /// `tranched`.
    pub fn daemon(&self) -> PathBuf {
        self.root.join("bin/tranched")
    }

    /// `tranche`.
    pub fn command(&self) -> PathBuf {
        self.root.join("bin/tranche")
    }

    /// The tool that makes and shows simulated nodes.
    pub fn simgpu(&self) -> PathBuf {
        self.root.join("bin/simgpu")
    }

    /// The program that uses a GPU through cudarc.
    pub fn workload(&self) -> PathBuf {
        self.root.join("bin/workload")
    }

    /// The library that `tranche run` preloads.
    pub fn shim(&self) -> PathBuf {
        self.root.join("lib/tranche/libtranche_preload.so")
    }

    /// The directory of the libraries that stand in the place of the driver's.
    pub fn replacements(&self) -> PathBuf {
        self.root.join("lib/tranche/replace")
    }

    /// The simulated `libcuda.so.1`.
    pub fn driver(&self) -> PathBuf {
        self.libraries().join("libcuda.so.1")
    }

    /// The directory of the simulated driver's libraries.
    pub fn libraries(&self) -> PathBuf {
        self.root.join("sim")
    }
}

/// The root of the workspace.
pub(crate) fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this package lies two levels below the workspace")
}
