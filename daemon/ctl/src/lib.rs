//! `tranche`: how a person or a script uses slices of GPUs, shows them and finds out what is wrong.
//!
//! Law: it asks the daemon and does what it is told. It decides nothing about memory, placement or limits,
//! and it starts no program that the limits do not reach.
#![forbid(unsafe_code)]

pub mod cli;
pub mod demo;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

/// Reads the command line, does what it says and answers with the exit status.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match cli::Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(refusal) => {
            // Nobody is left to tell if even this cannot be written.
            let _ = refusal.print();
            return ExitCode::from(u8::try_from(refusal.exit_code()).unwrap_or(2));
        }
    };
    match cli.command {
        cli::Command::Demo(args) => match demo::run(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("tranche demo: {error}");
                ExitCode::FAILURE
            }
        },
        _ => ExitCode::FAILURE,
    }
}
