//! `tranche-demo`: carries out `tranche demo` and `tranche play`, which execute it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use tranche_ctl::cli::DemoArgs;
use tranche_ctl::out::visible_lines;

/// Shows on one GPU what slices are
#[derive(Debug, Parser)]
#[command(name = "tranche", bin_name = "tranche", version, disable_help_subcommand = true)]
enum Demo {
    /// Run two programs on one GPU, and check what each of them sees
    Demo(DemoArgs),
    /// Open a shell on a simulated node with a daemon of its own
    Play,
}

fn main() -> ExitCode {
    let ended = match Demo::parse() {
        Demo::Demo(args) => tranche_demo::run(&args),
        Demo::Play => tranche_demo::play(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tranche: {}", visible_lines(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}
