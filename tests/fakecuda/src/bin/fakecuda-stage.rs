//! `fakecuda-stage LIBRARY FOLDER`: stages the simulated driver.
//!
//! That of the default personality lies in FOLDER, that of each personality in FOLDER/KEY.
#![forbid(unsafe_code)]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use simgpu::{DEFAULT_PERSONALITY, Personality, personalities};
use thiserror::Error;

#[derive(Debug, Error)]
enum Failure {
    #[error("usage: fakecuda-stage LIBRARY FOLDER")]
    Usage,
    #[error("can't {action} {path}: {source}")]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("can't stage {path} as driver {key}: {source}")]
    Library { path: PathBuf, key: String, source: fakecuda::cut::BadLibrary },
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("fakecuda-stage: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [library, folder] = &arguments[..] else { return Err(Failure::Usage) };
    let bytes = fs::read(library).map_err(failed("read", library))?;
    for driver in personalities() {
        let own = folder.join(&driver.key);
        if driver.key == DEFAULT_PERSONALITY {
            stage(library, &bytes, &driver, folder)?;
            link(Path::new("."), &own)?;
        } else {
            stage(library, &bytes, &driver, &own)?;
            link(Path::new("../libnvidia-ml.so.1"), &own.join("libnvidia-ml.so.1"))?;
        }
    }
    Ok(())
}

fn stage(library: &Path, bytes: &[u8], driver: &Personality, folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(failed("make", folder))?;
    let mut cut = bytes.to_vec();
    fakecuda::cut::cut(&mut cut, driver).map_err(|source| Failure::Library {
        path: library.into(),
        key: driver.key.clone(),
        source,
    })?;
    // Programs that run may have the old file mapped: it is replaced, not rewritten.
    let (target, fresh) = (folder.join("libcuda.so.1"), folder.join(".libcuda.so.1"));
    fs::write(&fresh, &cut).map_err(failed("write", &fresh))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&fresh, mode).map_err(failed("make executable", &fresh))?;
    fs::rename(&fresh, &target).map_err(failed("replace", &target))?;
    link(Path::new("libcuda.so.1"), &folder.join("libcuda.so"))?;
    link(Path::new("libnvidia-ml.so.1"), &folder.join("libnvidia-ml.so"))
}

fn link(to: &Path, at: &Path) -> Result<(), Failure> {
    match fs::remove_file(at) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed("remove", at)(source)),
        _ => symlink(to, at).map_err(failed("link", at)),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |source| Failure::File { action, path: path.into(), source }
}
