//! `tranched`; everything else is in the library of this package.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use tranche_inventory::calibrate;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == calibrate::ARGUMENT => {
            let gpu = arguments.next().and_then(|gpu| gpu.to_string_lossy().parse().ok());
            gpu.map_or(ExitCode::FAILURE, calibrate::child_main)
        }
        Some(first) if first == tranche_privileged::ARGUMENT => tranche_privileged::main(arguments),
        Some(first) if first == tranche_privileged::PARK_WORKER => tranche_parkworker::main(arguments),
        _ => tranche_agent::cli::main(),
    }
}
