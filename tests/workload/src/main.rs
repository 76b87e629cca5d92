//! A small CUDA program that takes memory, keeps a GPU busy and reports its results as JSON.
//!
//! Law: it knows nothing of slices. It sees the GPU as any program would, through `libcuda` and NVML, and reports that
//! faithfully; judging is left to the caller.
#![deny(unsafe_code)]

mod args;
mod checkpoint;
mod cuda;
mod failure;
mod hoard;
mod nvml;
mod pace;
mod report;
mod session;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use args::Args;
use checkpoint::Checkpoint;
use failure::Failure;
use pace::Tally;
use report::Report;
use session::Session;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(code) => code,
        Err(failure) => {
            // Programs receive JSON from the report; users receive the sentence.
            let _ = report::write(&args.report, &report::Failed::new(&failure));
            eprintln!("workload: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.nvml {
        return observe(args);
    }
    // Before there are other threads, of which none may take the signal.
    let tally = Arc::<Tally>::default();
    let checkpoint = args.checkpoint.as_deref().map(|path| Checkpoint::begin(path, &tally)).transpose()?;
    let mut session = Session::begin(args, tally)?;
    if args.interactive {
        session.converse(io::stdin().lock(), io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = session.work(args, checkpoint.as_ref().map_or(0, Checkpoint::done))?;
    if let Some(checkpoint) = &checkpoint {
        checkpoint.save(outcome.launches)?;
    }
    report::write(&args.report, &outcome)?;
    Ok(exit_code(&outcome))
}

/// Reads NVML and never calls CUDA.
fn observe(args: &Args) -> Result<ExitCode, Failure> {
    let observer = nvml::Observer::open()?;
    if args.interactive {
        session::observe(&observer, io::stdin().lock(), io::stdout().lock())?;
    } else {
        report::write(&args.report, &observer.look()?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Failed kernels are a failure; refused memory is a result.
fn exit_code(outcome: &Report) -> ExitCode {
    if outcome.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
