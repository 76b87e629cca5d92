//! Process frame of the adapters: command line, log, signals and exit codes, the same for each.
//!
//! Law: an adapter differs from another in what it reads, serves and prints; how it is started and ended is decided here.
#![forbid(unsafe_code)]

mod problems;
pub mod quantity;

use std::error::Error;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, Command, value_parser};
use tokio::signal::unix::{SignalKind, signal};
use tranche_exposition::Address;

pub use problems::{LastProblem, LoggedProblems};

/// A program with a configuration file, metrics and probes that runs until SIGTERM or SIGINT.
///
/// Exit codes: 0 after a signal, or after a successful `--check` or `--probe`; 1 if the program cannot run or a probe
/// fails; 2 if the command line or the configuration is invalid.
pub trait Adapter {
    /// Name of the program.
    const NAME: &'static str;
    /// Summary for `--help`.
    const ABOUT: &'static str;
    /// Default path of the configuration file.
    const CONFIG: &'static str;
    /// Settings with their defaults filled in.
    type Config;

    /// Reads the configuration file.
    ///
    /// # Errors
    /// If it is invalid.
    fn read(path: &Path) -> Result<Self::Config, Box<dyn Error>>;

    /// Text for `--check`.
    fn description(config: &Self::Config) -> String;

    /// Log filter in `tracing` syntax, and the address of metrics, liveness and readiness.
    fn frame(config: &Self::Config) -> (&str, &Address);

    /// Runs until the future completes.
    fn serve(
        config: Self::Config,
        stop: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = Result<(), AdapterFailure>>;
}

/// Reason for which a program ends by itself.
#[derive(Debug, thiserror::Error)]
pub enum AdapterFailure {
    /// The configuration, or its combination with this node, is invalid.
    #[error("{0}")]
    Invalid(Box<dyn Error>),
    /// The program cannot run.
    #[error("{0}")]
    Failed(Box<dyn Error>),
}

impl AdapterFailure {
    fn failed(error: impl Into<Box<dyn Error>>) -> Self {
        Self::Failed(error.into())
    }
}

/// Runs the program with the arguments of this process.
pub fn main<A: Adapter>() -> ExitCode {
    let ended = Arguments::parse::<A>(std::env::args_os()).map_or_else(|error| error.exit(), run::<A>);
    let Err(ending) = ended else { return ExitCode::SUCCESS };
    eprintln!("{}: {ending}", A::NAME);
    match ending {
        AdapterFailure::Invalid(_) => ExitCode::from(2),
        AdapterFailure::Failed(_) => ExitCode::FAILURE,
    }
}

fn run<A: Adapter>(arguments: Arguments) -> Result<(), AdapterFailure> {
    let config = A::read(&arguments.config).map_err(AdapterFailure::Invalid)?;
    if arguments.check {
        print!("{}", A::description(&config));
        return Ok(());
    }
    let (log, metrics) = A::frame(&config);
    if let Some(path) = arguments.probe {
        tranche_exposition::ask(metrics, &format!("/{path}")).map_err(AdapterFailure::failed)?;
        return Ok(());
    }
    start_logging(log)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().map_err(AdapterFailure::failed)?;
    let served =
        runtime.block_on(async { A::serve(config, stop_signal().map_err(AdapterFailure::failed)?).await });
    // A thread that watches a directory must not delay the exit.
    runtime.shutdown_background();
    served
}

#[derive(Debug)]
struct Arguments {
    config: PathBuf,
    check: bool,
    probe: Option<String>,
}

impl Arguments {
    fn parse<A: Adapter>(arguments: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut matches = command::<A>().try_get_matches_from(arguments)?;
        Ok(Self {
            config: matches.remove_one("config").unwrap_or_else(|| A::CONFIG.into()),
            check: matches.get_flag("check"),
            probe: matches.remove_one("probe"),
        })
    }
}

fn command<A: Adapter>() -> Command {
    let config = Arg::new("config").long("config").value_name("FILE").value_parser(value_parser!(PathBuf));
    let check = Arg::new("check").long("check").action(ArgAction::SetTrue);
    let probe = Arg::new("probe").long("probe").value_name("PATH").value_parser(["healthz", "readyz"]);
    Command::new(A::NAME)
        .about(A::ABOUT)
        .version(env!("CARGO_PKG_VERSION"))
        .arg(config.default_value(A::CONFIG).help("Configuration file, in TOML"))
        .arg(check.help("Check the configuration, print what it results in, and exit"))
        .arg(
            probe
                .conflicts_with("check")
                .help("Query liveness or readiness of the running program, and exit"),
        )
}

fn start_logging(filter: &str) -> Result<(), AdapterFailure> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| {
        AdapterFailure::Invalid(
            format!("the configuration's `log` is not a filter: {error}; try `info`").into(),
        )
    })?;
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

/// Name of this node: the variable `NODE_NAME`, else the host name in lower case.
pub fn node_name() -> Option<String> {
    let set = std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty());
    let of_host = || nix::unistd::gethostname().ok()?.into_string().ok().map(|name| name.to_lowercase());
    set.or_else(of_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Example;

    impl Adapter for Example {
        const NAME: &'static str = "example";
        const ABOUT: &'static str = "An example";
        const CONFIG: &'static str = "/etc/example.toml";
        type Config = ();

        fn read(_: &Path) -> Result<(), Box<dyn Error>> {
            Err("no file".into())
        }

        fn description((): &()) -> String {
            String::new()
        }

        fn frame((): &()) -> (&str, &Address) {
            ("info", &Address::Off)
        }

        async fn serve((): (), _: impl Future<Output = ()> + Send) -> Result<(), AdapterFailure> {
            Ok(())
        }
    }

    fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::parse::<Example>(["example"].iter().chain(arguments).map(OsString::from))
    }

    #[test]
    fn command_line_has_its_defaults() {
        command::<Example>().debug_assert();
        let none = parse(&[]).unwrap();
        assert_eq!(
            (none.config.as_path(), none.check, none.probe),
            (Path::new("/etc/example.toml"), false, None)
        );
        let given = parse(&["--config", "x", "--probe", "readyz"]).unwrap();
        assert_eq!((given.config.as_path(), given.probe.as_deref()), (Path::new("x"), Some("readyz")));
    }

    #[test]
    fn what_is_no_argument_is_refused() {
        for bad in [&["--chek"][..], &["--probe", "x"], &["--check", "--probe", "readyz"], &["x"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn invalid_configuration_is_no_failure_of_the_program() {
        let arguments = Arguments { config: "x".into(), check: true, probe: None };
        assert!(matches!(run::<Example>(arguments), Err(AdapterFailure::Invalid(_))));
    }
}
