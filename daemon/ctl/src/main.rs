//! `tranche`: the command line. Everything is in the library beside it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tranche_ctl::main(std::env::args_os())
}
