//! `tranche-nriplugin`; see the library of this package.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tranche_nriplugin::cli::main()
}
