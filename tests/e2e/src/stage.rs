//! The tree that `make stage` makes: the files that a user has installed.

use std::path::{Path, PathBuf};

/// Folder of the binaries and libraries under test.
#[derive(Clone, Debug)]
pub struct Stage {
    root: PathBuf,
    /// The key of the simulated driver, if it is not the default one.
    driver: Option<String>,
}

impl Stage {
    /// The tree in `TRANCHE_STAGE`, else `target/stage` of the workspace. Fails the test if it does not exist.
    pub fn find() -> Self {
        let named = std::env::var_os("TRANCHE_STAGE").map(PathBuf::from);
        Self::at(named.unwrap_or_else(|| workspace().join("target/stage")))
    }

    /// The tree in a folder, such as that of another release. Fails the test if it does not exist.
    pub fn at(root: PathBuf) -> Self {
        let driver = std::env::var("SIMGPU_DRIVER").ok().filter(|key| !key.is_empty());
        let stage = Self { root, driver };
        let parts = [stage.daemon(), stage.command(), stage.simgpu(), stage.shim(), stage.driver()];
        for part in parts {
            assert!(part.exists(), "{} is missing: run `make build` first", part.display());
        }
        stage
    }

    /// The same tree with another simulated driver, such as `610`.
    #[must_use]
    pub fn with_driver(self, key: &str) -> Self {
        Self { driver: Some(key.into()), ..self }
    }

    /// The key of its simulated driver, if it is not the default one.
    pub fn driver_key(&self) -> Option<&str> {
        self.driver.as_deref()
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

    /// The program that compares a driver with public facts.
    pub fn facts(&self) -> PathBuf {
        self.root.join("tests/facts")
    }

    /// The simulated `libcuda.so.1`.
    pub fn driver(&self) -> PathBuf {
        self.libraries().join("libcuda.so.1")
    }

    /// The directory of the simulated driver's libraries.
    pub fn libraries(&self) -> PathBuf {
        let folder = self.root.join("sim");
        self.driver.as_ref().map_or_else(|| folder.clone(), |key| folder.join(key))
    }
}

/// The root of the workspace.
pub(crate) fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this package lies two levels below the workspace")
}
