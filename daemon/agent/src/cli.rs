//! The command line of `tranched`, and its way from there to a running daemon.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use nix::unistd::{Gid, Group, chown};
use tokio::signal::unix::{SignalKind, signal};
use tranche_exposition::{Address, Listener};
use tranche_inventory::Driver;

use crate::{Config, Contexts, Documents, Layout, Reach, Settings, privileges, serve, supervisor};

/// Makes slices of this node's GPUs and answers for their memory
#[derive(Debug, Parser)]
#[command(name = "tranched", version)]
pub struct Options {
    /// Directory of sockets and regions
    #[arg(long, value_name = "DIR")]
    pub runtime_dir: Option<PathBuf>,
    /// Directory of what survives a restart
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration, say what would be used, and exit
    #[arg(long)]
    pub check: bool,
    /// NVML's library, where it is not the system's
    #[arg(long, value_name = "FILE")]
    pub nvml_library: Option<PathBuf>,
    /// The library that tenants preload
    #[arg(long, value_name = "FILE")]
    pub shim: Option<PathBuf>,
}

type Failed = Box<dyn std::error::Error>;

/// Where the configuration is looked for if none is named; there need not be one.
const DEFAULT_CONFIG: &str = "/etc/tranche/tranched.toml";
/// Where root's daemon has its sockets if nobody says otherwise.
const NODE_RUNTIME: &str = "/run/tranche";
/// Where container runtimes look for CDI documents that last until the machine stops.
const NODE_CDI: &str = "/var/run/cdi";

/// Runs the daemon until it is told to stop.
pub fn main() -> ExitCode {
    match Options::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("tranched: {failed}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn run(self) -> Result<(), Failed> {
        let config = self.configuration()?;
        let layout = layout(&config)?;
        let shim = config.shim.clone().map_or_else(shim_beside_us, Ok)?;
        let documents = documents(&config, &layout)?;
        if self.check {
            println!("{config:#?}");
            println!("runtime directory: {}", layout.runtime.display());
            println!("state directory: {}", layout.state.display());
            println!("shim: {}{}", shim.display(), if shim.is_file() { "" } else { " (not there)" });
            let directory =
                documents.as_ref().map_or("off".into(), |told| told.directory.display().to_string());
            println!("CDI documents: {directory}");
            println!("metrics: {}", metrics(&config, &layout));
            return Ok(());
        }
        start_logging(&config.log)?;
        run(&config, layout, shim, documents)
    }

    /// The file, with the command line over it.
    fn configuration(&self) -> Result<Config, Failed> {
        let default = Path::new(DEFAULT_CONFIG);
        let file = self.config.as_deref().or(default.exists().then_some(default));
        let mut config = file.map(Config::read).transpose()?.unwrap_or_default();
        let over = |given: &Option<PathBuf>, value: &mut Option<PathBuf>| {
            if given.is_some() {
                value.clone_from(given);
            }
        };
        over(&self.runtime_dir, &mut config.runtime_dir);
        over(&self.state_dir, &mut config.state_dir);
        over(&self.nvml_library, &mut config.nvml_library);
        over(&self.shim, &mut config.shim);
        Ok(config)
    }
}

/// In this order: everything that needs root's powers or may block comes first, then the powers go, and only
/// then are other threads started that would have kept them.
fn run(config: &Config, layout: Layout, shim: PathBuf, documents: Option<Documents>) -> Result<(), Failed> {
    let _locks = layout.occupy()?;
    let _shared = documents.as_ref().map(|documents| documents.occupy()).transpose()?;
    let door = open_door(config, &layout)?;
    let metrics = open_metrics(config, &layout)?;
    let driver: Arc<dyn Driver> = Arc::from(tranche_inventory::open(config.nvml_library.as_deref()));
    if layout.reach == Reach::Node {
        privileges::drop_unneeded()?;
    }
    // By threads and processes of its own, which thus have no more than we.
    let (contexts, outstanding) = Contexts::measure(&driver, &layout.state, config.context_reserve());
    let settings = Settings {
        layout,
        shim,
        driver,
        contexts,
        over_cap: config.over_cap(),
        fault_quiet: Duration::from_secs(config.fault_quiet_s),
        transfers: config.transfers,
        documents,
        metrics,
        outstanding: Some(outstanding),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { serve(settings, door, told_to_stop()?).await.map_err(Failed::from) })?;
    // A look at a GPU that hangs must not keep us from ending.
    runtime.shutdown_background();
    Ok(())
}

/// SIGTERM or SIGINT.
fn told_to_stop() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut term, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("told to stop");
    })
}

fn start_logging(filter: &str) -> Result<(), Failed> {
    use std::io::IsTerminal;
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .map_err(|error| format!("the configuration's `log` is not a filter: {error}; try `info`"))?;
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    Ok(())
}

/// What containers are told: by default only by the daemon of a whole node that has its files at the usual place, as
/// others are there besides it.
fn documents(config: &Config, layout: &Layout) -> Result<Option<Documents>, Failed> {
    let usual = layout.reach == Reach::Node && layout.runtime == Path::new(NODE_RUNTIME);
    Ok(config.documents(usual.then_some(Path::new(NODE_CDI)))?)
}

/// The gRPC socket that was handed to us, with the modes that it has, or one of our own.
fn open_door(config: &Config, layout: &Layout) -> Result<UnixListener, Failed> {
    let handed = supervisor::door(&layout.door());
    if let Some(door) =
        handed.map_err(|cause| format!("cannot take over the socket that was handed to us: {cause}"))?
    {
        return Ok(door);
    }
    let door = layout.open_door()?;
    give_to_group(config, layout)?;
    Ok(door)
}

/// Where metrics are served: beside the gRPC socket, if nobody says otherwise.
fn metrics(config: &Config, layout: &Layout) -> Address {
    let usual = || Address::Unix(layout.runtime.join("metrics.sock"));
    config.metrics.clone().unwrap_or_else(usual)
}

/// For whoever may use the gRPC socket, where it is a socket as well.
fn open_metrics(config: &Config, layout: &Layout) -> Result<Option<Listener>, Failed> {
    let listener = Listener::open(&metrics(config, layout))?;
    if let Some(Address::Unix(path)) = listener.as_ref().map(Listener::address) {
        let group = fs::metadata(layout.door())?.gid();
        if fs::metadata(path)?.gid() != group {
            chown(path, None, Some(Gid::from_raw(group)))?;
        }
    }
    Ok(listener)
}

/// Lets a group use the gRPC socket, where the configuration names one.
fn give_to_group(config: &Config, layout: &Layout) -> Result<(), Failed> {
    let Some(name) = config.socket_group.as_ref().filter(|_| layout.reach == Reach::Node) else {
        return Ok(());
    };
    let group = Group::from_name(name)?
        .ok_or_else(|| format!("there is no group {name}, which the configuration's `socket_group` names"))?;
    Ok(chown(&layout.door(), None, Some(group.gid))?)
}

fn layout(config: &Config) -> Result<Layout, Failed> {
    let reach = Reach::of_this_process();
    let runtime = config.runtime_dir.clone().or_else(|| match reach {
        Reach::Node => Some(NODE_RUNTIME.into()),
        Reach::User => below("XDG_RUNTIME_DIR", "tranche"),
    });
    let state = config.state_dir.clone().or_else(|| match reach {
        Reach::Node => Some("/var/lib/tranche".into()),
        Reach::User => below("XDG_STATE_HOME", "tranche").or_else(|| below("HOME", ".local/state/tranche")),
    });
    let runtime =
        runtime.ok_or("there is no XDG_RUNTIME_DIR: say where sockets go with --runtime-dir DIR")?;
    let state = state.ok_or("there is no HOME: say where the state goes with --state-dir DIR")?;
    Ok(Layout { runtime: absolute(&runtime)?, state: absolute(&state)?, reach })
}

fn below(variable: &str, path: &str) -> Option<PathBuf> {
    let base = PathBuf::from(std::env::var_os(variable)?);
    base.is_absolute().then(|| base.join(path))
}

/// Clients and tenants elsewhere get these paths, so they must not depend on where we were started.
fn absolute(path: &Path) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

fn shim_beside_us() -> Result<PathBuf, Failed> {
    let program = fs::canonicalize(std::env::current_exe()?)?;
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    Ok(prefix.join("lib/tranche/libtranche_preload.so"))
}
