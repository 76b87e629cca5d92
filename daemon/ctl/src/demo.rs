//! `tranche demo` and `tranche play`, which a program beside this one carries out.

use std::env;
use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::ValueEnum;

use crate::cli::DemoArgs;

/// Path of the program from the folder of this one, as `make build` stages it and as it is installed.
const PLACES: [&str; 2] = ["tranche-demo", "../lib/tranche/play/bin/tranche-demo"];

/// Error of executing the program.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The program is not part of this installation.
    #[error("cannot find {}: take a release, or what `make build` makes as a whole", .0.display())]
    Missing(PathBuf),
    /// The program cannot be executed.
    #[error("cannot run {}: {cause}", .program.display())]
    Exec {
        /// Path of the program.
        program: PathBuf,
        /// Error of `execve(2)`.
        cause: Error,
    },
}

/// Becomes `tranche-demo demo`; returns only if that cannot be executed.
pub fn demo(args: &DemoArgs) -> DemoError {
    let gpu = args.gpu.to_possible_value();
    let gpu = gpu.as_ref().map_or("auto", |value| value.get_name());
    let report = args.report.iter().flat_map(|path| [OsStr::new("--report"), path.as_os_str()]);
    exec([OsStr::new("demo"), OsStr::new("--gpu"), OsStr::new(gpu)].into_iter().chain(report))
}

/// Becomes `tranche-demo play`; returns only if that cannot be executed.
pub fn play() -> DemoError {
    exec(["play"])
}

fn exec<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> DemoError {
    let own = env::current_exe().unwrap_or_default();
    let [staged, installed] = PLACES.map(|place| own.with_file_name(place));
    let program = if staged.exists() { staged } else { installed };
    let cause = Command::new(&program).args(arguments).exec();
    match cause.kind() {
        ErrorKind::NotFound => DemoError::Missing(program),
        _ => DemoError::Exec { program, cause },
    }
}
