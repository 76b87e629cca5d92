//! Writes `THIRD-PARTY-LICENSES.txt` and `sbom.cdx.json` about the shipped packages.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, io};

use architecture::{Workspace, third_party};

fn main() -> ExitCode {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("third-party: name the folder to write to");
        return ExitCode::from(2);
    };
    match write(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("third-party: cannot write to {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &std::path::Path) -> io::Result<()> {
    let workspace = Workspace::survey();
    let packages = third_party::packages(&workspace);
    fs::create_dir_all(folder)?;
    fs::write(folder.join("THIRD-PARTY-LICENSES.txt"), third_party::licences(&packages))?;
    fs::write(folder.join("sbom.cdx.json"), third_party::bill(&workspace, &packages))
}
