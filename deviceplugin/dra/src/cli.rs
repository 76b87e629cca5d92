//! The command line of `tranche-dradriver`.
//!
//! Exit codes: 0 after SIGTERM or SIGINT, or after a successful `--check` or `--probe`; 1 if the driver cannot run or a
//! probe fails; 2 if the command line or the configuration is invalid.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{BadDriverConfig, DriverConfig};
use crate::serve::{DriverFailure, serve};

/// Make slices of this node's resource claims
#[derive(Debug, Parser)]
#[command(name = "tranche-dradriver", version)]
struct Arguments {
    /// Configuration file, in TOML
    #[arg(long, value_name = "FILE", default_value = "/etc/tranche/dradriver.toml")]
    config: PathBuf,
    /// Check the configuration, print the driver's name and sockets, and exit
    #[arg(long)]
    check: bool,
    /// Query liveness (healthz) or readiness (readyz) of the running driver, and exit
    #[arg(long, value_name = "PATH", value_parser = ["healthz", "readyz"], conflicts_with = "check")]
    probe: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum ExitCause {
    #[error(transparent)]
    DriverConfig(#[from] BadDriverConfig),
    #[error("the configuration's `log` is not a filter: {0}; try `info`")]
    Log(#[from] tracing_subscriber::filter::ParseError),
    #[error(transparent)]
    Serve(#[from] DriverFailure),
    #[error(transparent)]
    Probe(#[from] tranche_exposition::ProbeError),
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
}

/// Runs the driver until SIGTERM or SIGINT.
pub fn main() -> ExitCode {
    let Err(failed) = Arguments::parse().run() else { return ExitCode::SUCCESS };
    eprintln!("tranche-dradriver: {failed}");
    match failed {
        ExitCause::DriverConfig(_) | ExitCause::Log(_) => ExitCode::from(2),
        ExitCause::Serve(_) | ExitCause::Probe(_) | ExitCause::Start(_) => ExitCode::FAILURE,
    }
}

impl Arguments {
    fn run(self) -> Result<(), ExitCause> {
        let config = DriverConfig::read(&self.config)?;
        if self.check {
            println!("driver {} on node {}", config.driver, config.node);
            println!("registration: {}", config.registration_socket().display());
            println!("services: {}", config.service_socket().display());
            return Ok(());
        }
        if let Some(path) = self.probe {
            tranche_exposition::ask(&config.metrics, &format!("/{path}"))?;
            return Ok(());
        }
        start_logging(&config.log)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async { Ok(serve(config, stop_signal()?).await?) })
    }
}

fn start_logging(filter: &str) -> Result<(), ExitCause> {
    use std::io::IsTerminal;
    let filter = tracing_subscriber::EnvFilter::try_new(filter)?;
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    Ok(())
}

/// Completes on SIGTERM or SIGINT.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let (mut term, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("told to stop");
    })
}
