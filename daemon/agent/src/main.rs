//! `tranched`; everything else is in the library of this package.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tranche_agent::cli::program(|| {})
}
