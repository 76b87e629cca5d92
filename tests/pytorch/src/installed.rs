//! Python environments with programs that use CUDA, and the libraries made for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use e2e::{Process, scratch};

/// A gigabyte is fetched the first time.
const FETCH: Duration = Duration::from_secs(600);
/// Longest run of the program that makes libraries.
const MAKE: Duration = Duration::from_secs(240);

/// An environment to make: a list of packages, and what their libraries need.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Name of the program, for messages and folders.
    pub name: &'static str,
    /// The pinned packages, a file of `tests/clients`.
    list: &'static str,
    /// The program of `tests/clients` that uses it.
    pub client: &'static str,
    /// Folder of the packages whose files link NVIDIA's libraries.
    linked: Option<&'static str>,
    /// Libraries of NVIDIA's that are opened by name.
    opened: &'static [&'static str],
}

/// PyTorch, whose own libraries link NVIDIA's.
pub const PYTORCH: Recipe = Recipe {
    name: "torch",
    list: "torch-requirements.txt",
    client: "torch_client.py",
    linked: Some("torch/lib"),
    opened: &[],
};

/// JAX, whose plugin opens NVIDIA's libraries by name.
pub const JAX: Recipe = Recipe {
    name: "jax",
    list: "jax-requirements.txt",
    client: "jax_client.py",
    linked: None,
    opened: &[
        "libcublas.so.13",
        "libcublasLt.so.13",
        "libcudnn.so.9",
        "libcufft.so.12",
        "libcupti.so.13",
        "libcusolver.so.12",
        "libcusparse.so.12",
        "libnccl.so.2",
        "libnvshmem_host.so.3",
    ],
};

/// The environment's Python, and the folder of the libraries made for it.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Path of the interpreter in it.
    pub python: PathBuf,
    /// The stand-ins of NVIDIA's libraries.
    pub libraries: PathBuf,
}

/// Path of a file of `tests/clients`.
pub fn client(name: &str) -> String {
    format!("{}/../clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

impl Recipe {
    /// Makes the virtual environment, and the libraries for it where they are older than it or the archive.
    pub fn install(&self) -> Result<Installed, String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../target/venv-{}", self.name));
        let mut script = Command::new("sh");
        script.arg(client("venv.sh")).arg(folder).args([self.list, "--no-deps"]);
        let made = Process::start(&mut script).end_within(FETCH);
        if made.code != Some(0) {
            return Err(made.stderr.trim().to_string());
        }
        let venv = PathBuf::from(made.stdout.trim());
        let stage = std::env::var_os("TRANCHE_STAGE").map(PathBuf::from).ok_or("TRANCHE_STAGE is not set")?;
        let archive = stage.join("tests/libfakecudart.a");
        let libraries = scratch().join(format!("{}-cuda", self.name));
        let stamp = libraries.join("libcudart.so.13");
        if modified(&stamp) < modified(&archive).max(modified(&venv.join("stamp"))) {
            self.make_libraries(&stage, &archive, &libraries, &venv)?;
        }
        Ok(Installed { python: venv.join("bin/python"), libraries })
    }

    fn make_libraries(
        &self,
        stage: &Path,
        archive: &Path,
        libraries: &Path,
        venv: &Path,
    ) -> Result<(), String> {
        let mut stager = Command::new(stage.join("tests/fakecudart-stage"));
        stager.arg(archive).arg(libraries).args(self.opened);
        if let Some(linked) = self.linked {
            stager.args(libraries_in(venv, linked)?);
        }
        let outcome = Process::start(&mut stager).end_within(MAKE);
        if outcome.code == Some(0) { Ok(()) } else { Err(outcome.to_string()) }
    }
}

/// Shared libraries in a folder of an environment's packages.
fn libraries_in(venv: &Path, folder: &str) -> Result<Vec<PathBuf>, String> {
    let pythons = fs::read_dir(venv.join("lib")).map_err(|error| format!("{}: {error}", venv.display()))?;
    let folders = pythons.flatten().map(|python| python.path().join("site-packages").join(folder));
    let found = folders.into_iter().find(|folder| folder.exists());
    let found = found.ok_or_else(|| format!("{} has no {folder}", venv.display()))?;
    let files = fs::read_dir(&found).map_err(|error| format!("{}: {error}", found.display()))?.flatten();
    Ok(files.map(|file| file.path()).filter(|path| path.to_string_lossy().contains(".so")).collect())
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}
