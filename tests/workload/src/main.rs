//! A small CUDA program that takes memory, keeps a GPU busy and says as JSON what it got.
//!
//! Law: it knows nothing of slices. It sees the GPU as any program would, through `libcuda` and NVML, and
//! reports that faithfully; whoever runs it judges.
#![deny(unsafe_code)]

mod args;
mod checkpoint;
mod cuda;
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
use pace::Tally;
use report::Report;
use session::Session;

/// Why the program could not do its work. A refusal of memory is no such thing: that is an answer.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// CUDA said no.
    #[error(transparent)]
    Cuda(#[from] cuda::CudaError),
    /// NVML said no.
    #[error(transparent)]
    Nvml(#[from] nvml::NvmlFailure),
    /// Input or output.
    #[error("{what}: {cause}")]
    Io {
        /// What was attempted.
        what: String,
        /// What the kernel said.
        cause: io::Error,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(code) => code,
        Err(failure) => {
            // Whoever reads JSON gets JSON; a person gets the sentence.
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
    // Before there are other threads: none of them is to take the signal.
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

/// Looks at NVML and never touches CUDA.
fn observe(args: &Args) -> Result<ExitCode, Failure> {
    let observer = nvml::Observer::open()?;
    if args.interactive {
        session::observe(&observer, io::stdin().lock(), io::stdout().lock())?;
    } else {
        report::write(&args.report, &observer.look()?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Kernels that failed are a failure; refused memory was asked for.
fn exit_code(outcome: &Report) -> ExitCode {
    if outcome.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
