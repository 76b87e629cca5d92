//! `tranched`: see the library of this package.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use tranche_inventory::calibrate;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == calibrate::ARGUMENT) {
        let gpu = arguments.next().and_then(|gpu| gpu.to_string_lossy().parse().ok());
        return gpu.map_or(ExitCode::FAILURE, calibrate::child_main);
    }
    tranche_agent::cli::main()
}
