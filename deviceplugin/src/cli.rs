//! The command line of `tranche-deviceplugin`.
//!
//! Exit codes: 0 after SIGTERM or SIGINT, or after a successful `--check` or `--probe`; 1 if the plugin
//! cannot run or a probe fails; 2 if the command line or the configuration is invalid, or does not fit this
//! node's GPUs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{Config, ConfigError};
use crate::layout::Division;
use crate::serve::{Pace, ServeError, serve};

/// Offer slices of this node's GPUs to its kubelet
#[derive(Debug, Parser)]
#[command(name = "tranche-deviceplugin", version)]
struct Options {
    /// Configuration file, in TOML
    #[arg(long, value_name = "FILE", default_value = "/etc/tranche/deviceplugin.toml")]
    config: PathBuf,
    /// Check the configuration, print the resulting offer, and exit
    #[arg(long)]
    check: bool,
    /// Query liveness (healthz) or readiness (readyz) of the running plugin, and exit
    #[arg(long, value_name = "PATH", value_parser = ["healthz", "readyz"], conflicts_with = "check")]
    probe: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the configuration's `log` is not a filter: {0}; try `info`")]
    Log(#[from] tracing_subscriber::filter::ParseError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Probe(#[from] tranche_exposition::ProbeError),
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
}

/// Runs the plugin until SIGTERM or SIGINT.
pub fn main() -> ExitCode {
    let Err(failed) = Options::parse().run() else { return ExitCode::SUCCESS };
    eprintln!("tranche-deviceplugin: {failed}");
    match failed {
        Failed::Start(_)
        | Failed::Probe(_)
        | Failed::Serve(ServeError::Thread(_) | ServeError::Metrics(_)) => ExitCode::FAILURE,
        Failed::Config(_) | Failed::Log(_) | Failed::Serve(_) => ExitCode::from(2),
    }
}

impl Options {
    fn run(self) -> Result<(), Failed> {
        let config = Config::read(&self.config)?;
        if self.check {
            describe(&config);
            return Ok(());
        }
        if let Some(path) = self.probe {
            tranche_exposition::ask(&config.metrics, &format!("/{path}"))?;
            return Ok(());
        }
        start_logging(&config.log)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let served: Result<(), Failed> =
            runtime.block_on(async { Ok(serve(config, Pace::default(), stop_signal()?).await?) });
        // The thread that watches the kubelet's directory must not delay the exit.
        runtime.shutdown_background();
        served
    }
}

fn describe(config: &Config) {
    for profile in &config.profiles {
        println!("{}: {} of a GPU", config.resource(&profile.name), profile.share);
    }
    match &config.division {
        Division::Dynamic => println!("every GPU: all of them, as far as they fit"),
        Division::Static(layouts) => {
            for layout in layouts {
                let names: Vec<_> = layout.profiles.iter().map(ToString::to_string).collect();
                println!("{}: {}", layout.of, names.join(", "));
            }
        }
    }
}

fn start_logging(filter: &str) -> Result<(), Failed> {
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
