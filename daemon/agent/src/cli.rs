//! Command line of `tranched`, and the start of the daemon.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser, ValueEnum};
use nix::sys::signal::SigSet;
use tokio::signal::unix::{SignalKind, signal};
use tranche_exposition::{Address, BoundListener};
use tranche_inventory::{Driver, calibrate};
use tranche_privileged::Account;

use crate::config::check_log;
use crate::config::manual::{manual, manual_of_daemon, template};
use crate::sockets::job_runner_beside;
use crate::{
    Config, ConfigSource, Configured, Contexts, DaemonPaths, DaemonScope, Documents, ManagedGpus, SetLog,
    Settings, configuration, ownership, serve, shim_file,
};
use tranche_linux::{privileges, supervisor};

/// Makes slices of this node's GPUs and answers for their memory
#[derive(Debug, Parser)]
#[command(name = "tranched", version)]
pub struct DaemonOptions {
    /// Directory of sockets and regions
    #[arg(long, value_name = "DIR")]
    pub runtime_dir: Option<PathBuf>,
    /// Directory of what survives a restart
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Configuration file, in TOML (default: /etc/tranche/tranched.toml)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration, print every error or the values that would be used, and exit
    #[arg(long, visible_alias = "show-config")]
    pub check: bool,
    /// Print a configuration file with every key, its help and its default, and exit
    #[arg(long)]
    pub template: bool,
    /// Print a man page in roff, and exit: 5 is that of the configuration file, 8 that of tranched
    #[arg(long, value_name = "SECTION", num_args = 0..=1, require_equals = true, default_missing_value = "5")]
    pub manual: Option<ManualSection>,
    /// NVML's library, where it is not the system's
    #[arg(long, value_name = "FILE")]
    pub nvml_library: Option<PathBuf>,
    /// The library that tenants preload
    #[arg(long, value_name = "FILE")]
    pub shim: Option<PathBuf>,
    /// Let every process open the GPUs again, as `only_slices` forbade, and exit
    #[arg(long)]
    pub open_gpus: bool,
}

/// A section of the manual with a page about the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ManualSection {
    /// `tranched.toml(5)`
    #[value(name = "5")]
    Configuration,
    /// `tranched(8)`
    #[value(name = "8")]
    Daemon,
}

type Failed = Box<dyn std::error::Error>;

/// Checked here, because the kernel's error would be later and less specific.
const ONLY_SLICES_OF_A_USER: &str = "the configuration's `only_slices` closes the GPUs of the whole node, which is root's to do: \
                                     run tranched as root, or set it to false";

/// Default runtime directory of root's daemon.
const NODE_RUNTIME: &str = "/run/tranche";
/// Directory of CDI documents that last until the machine stops.
const NODE_CDI: &str = "/var/run/cdi";

/// Becomes what the first argument names, or else the daemon, before whose start `prepare` is called.
///
/// The others are a child that measures contexts, the privileged helper, and a park worker.
pub fn program(prepare: impl FnOnce()) -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == calibrate::ARGUMENT => {
            let gpu = arguments.next().and_then(|gpu| gpu.to_string_lossy().parse().ok());
            gpu.map_or(ExitCode::FAILURE, calibrate::child_main)
        }
        Some(first) if first == tranche_privileged::ARGUMENT => tranche_privileged::main(arguments),
        Some(first) if first == tranche_privileged::PARK_WORKER => tranche_parkworker::main(arguments),
        _ => {
            privileges::declare_park_worker();
            prepare();
            main()
        }
    }
}

/// Runs the daemon until it is signalled to stop.
fn main() -> ExitCode {
    abort_on_panic();
    match DaemonOptions::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("tranched: {failed}");
            ExitCode::FAILURE
        }
    }
}

/// Makes a panic in any thread or task end the daemon, after it was logged. A daemon without one of its loops would
/// look alive without sampling, scheduling or admitting. The supervisor starts another one, which takes over.
fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        let place = panic.location().map_or_else(|| "an unknown place".into(), ToString::to_string);
        let what = panic.payload_as_str().unwrap_or("a panic");
        tracing::error!("an error of the daemon itself at {place}: {what}. It ends now, to be started again");
        std::process::abort();
    }));
}

impl DaemonOptions {
    fn run(self) -> Result<(), Failed> {
        // The parent process may have blocked signals that this process and its threads need.
        SigSet::empty().thread_set_mask()?;
        if self.template || self.manual.is_some() {
            let text = match self.manual {
                Some(ManualSection::Configuration) => manual(),
                Some(ManualSection::Daemon) => manual_of_daemon(&Self::command()),
                None => template(),
            };
            return Ok(io::stdout().write_all(text.as_bytes())?);
        }
        let (check, open_gpus) = (self.check, self.open_gpus);
        let source = self.source();
        let reading = source.read()?;
        if open_gpus {
            let runtime = layout(&reading.config)?.runtime;
            return Ok(tranche_privileged::open_gpus(&runtime).map_err(|error| {
                format!("cannot let every process open the GPUs again: {error}; are you root?")
            })?);
        }
        let chosen = ChosenSettings::by(&reading.config)?;
        let shown = chosen.shown(&reading.config);
        if check {
            let driver = open_driver(&reading.config)?;
            print!("{}", configuration::print(&reading.settings(&shown)));
            if let (ManagedGpus::These(_), Err(error)) = (&reading.config.gpus, driver.gpus()) {
                println!("# whether these GPUs are there cannot be said: {error}");
            }
            if !chosen.shim.is_file() {
                println!("# {} is not there", chosen.shim.display());
            }
            return Ok(());
        }
        let set_log = start_logging(&reading.config.log)?;
        let config = reading.config.clone();
        run(&config, chosen, Configured::new(source, reading, shown, set_log))
    }

    fn source(self) -> ConfigSource {
        let Self { runtime_dir, state_dir, config: file, nvml_library, shim, .. } = self;
        ConfigSource { file, runtime_dir, state_dir, nvml_library, shim }
    }
}

/// Settings that the configuration leaves to the daemon.
struct ChosenSettings {
    layout: DaemonPaths,
    shim: PathBuf,
    documents: Option<Documents>,
    account: Option<Account>,
}

impl ChosenSettings {
    fn by(config: &Config) -> Result<Self, Failed> {
        let layout = layout(config)?;
        let shim = config.shim.clone().map_or_else(shim_beside_us, Ok)?;
        let named = config.shim.as_deref().map_or(Ok(()), |shim| shim_file::check(shim, layout.reach));
        named.map_err(|fault| format!("the library that `shim` names, {}, {fault}", shim.display()))?;
        let documents = documents(config, &layout)?;
        let account = ownership::account(config.user.as_deref(), layout.reach, is_usual(&layout))?;
        Ok(Self { layout, shim, documents, account })
    }

    /// The configuration with the daemon's choices.
    fn shown(&self, config: &Config) -> Config {
        let documents = self.documents.as_ref().map_or("off".into(), |told| told.directory.clone());
        Config {
            runtime_dir: Some(self.layout.runtime.clone()),
            state_dir: Some(self.layout.state.clone()),
            shim: Some(self.shim.clone()),
            cdi_dir: Some(documents),
            user: self.account.as_ref().map(|account| account.name.clone()).or_else(|| config.user.clone()),
            metrics: Some(metrics(config, &self.layout)),
            ..config.clone()
        }
    }
}

/// Starts the daemon and serves; returns once it has been signalled to stop.
/// Order: first everything that needs root's privileges or may block, then the privileges are dropped, and only then
/// other threads are started, which would have kept them.
fn run(config: &Config, chosen: ChosenSettings, configured: Configured) -> Result<(), Failed> {
    let ChosenSettings { layout, shim, documents, account } = chosen;
    let _locks = layout.lock()?;
    let _shared = documents.as_ref().map(|documents| documents.occupy()).transpose()?;
    if let Some(account) = &account {
        hand_over(&layout, account)?;
    }
    layout.close_off_mounts()?;
    let door = open_door(&layout)?;
    let access = config.access()?;
    if let DaemonScope::Node = layout.reach {
        privileges::admit_to_gpus(&layout.runtime, config.only_slices.besides().is_some())?;
    }
    let driver: Arc<dyn Driver> = Arc::from(open_driver(config)?);
    let described =
        documents.map(|documents| documents.describe(&*driver, &shim, &layout.state, account.as_ref()));
    match (layout.reach, config.only_slices.besides()) {
        (DaemonScope::Node, only_slices) => {
            let job_runner = job_runner_beside(&shim);
            let documents = described.as_ref().map(|described| described.for_helper());
            privileges::separate(&layout.runtime, job_runner, documents, only_slices, account.as_ref())?;
        }
        (DaemonScope::User, Some(_)) => return Err(ONLY_SLICES_OF_A_USER.into()),
        (DaemonScope::User, None) => {}
    }
    layout.furnish()?;
    let metrics = open_metrics(config, &layout)?;
    // Measures in threads and child processes, whose privileges are at most those of this one.
    let (contexts, outstanding) = Contexts::measure(&driver, &layout.state, config.context_reserve());
    let lacks_user = account.is_none() && config.user.is_none() && is_usual(&layout);
    let settings = Settings {
        layout,
        lacks_user,
        access,
        configured: Some(configured),
        shim,
        driver,
        contexts,
        seals_regions: true,
        config: config.clone(),
        described,
        metrics,
        outstanding: Some(outstanding),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { serve(settings, door, stop_signal()?).await.map_err(Failed::from) })?;
    // A hanging query of a GPU must not keep the daemon from ending.
    runtime.shutdown_background();
    privileges::end();
    Ok(())
}

/// Hands over, as root, the files that the main process needs as its user.
fn hand_over(layout: &DaemonPaths, account: &Account) -> Result<(), Failed> {
    let failed = |directory: &Path| {
        let (directory, name) = (directory.display().to_string(), account.name.clone());
        move |error| format!("cannot hand {directory} over to user {name}: {error}")
    };
    for (directory, mode) in [(&layout.state, 0o1770), (&layout.runtime, 0o1775)] {
        ownership::hand_over(directory, mode, account).map_err(failed(directory))?;
    }
    Ok(())
}

/// Opens the driver, limited to the configured GPUs.
fn open_driver(config: &Config) -> Result<Box<dyn Driver>, Failed> {
    let all = tranche_inventory::open(config.nvml_library.as_deref());
    match &config.gpus {
        ManagedGpus::All => Ok(all),
        ManagedGpus::These(names) => Ok(tranche_inventory::choose(all, names)
            .map_err(|error| format!("the configuration's `gpus` cannot be had: {error}"))?),
    }
}

/// Resolves on SIGTERM or SIGINT.
fn stop_signal() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut term, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("told to stop");
    })
}

/// Starts logging; the result changes the filter.
fn start_logging(filter: &str) -> Result<SetLog, Failed> {
    use io::IsTerminal;
    let colours = io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_ansi(colours).with_writer(io::stderr);
    let log = log.with_env_filter(check_log(filter)?).with_filter_reloading();
    let handle = log.reload_handle();
    log.init();
    Ok(Box::new(move |filter| handle.reload(check_log(filter)?).map_err(|error| error.to_string())))
}

/// Documents for containers. By default only the node's daemon at its default directory writes them, since other
/// daemons may run beside it.
fn documents(config: &Config, layout: &DaemonPaths) -> Result<Option<Documents>, Failed> {
    Ok(config.documents(is_usual(layout).then_some(Path::new(NODE_CDI)))?)
}

/// Returns true for the node's daemon at its default directory.
fn is_usual(layout: &DaemonPaths) -> bool {
    layout.reach == DaemonScope::Node && layout.runtime == Path::new(NODE_RUNTIME)
}

/// The gRPC socket: the supervisor's, with its modes, or a new one.
fn open_door(layout: &DaemonPaths) -> Result<UnixListener, Failed> {
    let handed = supervisor::door(&layout.door());
    let failed = |cause| format!("cannot take over the socket that was handed to us: {cause}");
    Ok(handed.map_err(failed)?.map_or_else(|| layout.open_door(), Ok)?)
}

/// Address of metrics; by default a socket beside the gRPC socket.
fn metrics(config: &Config, layout: &DaemonPaths) -> Address {
    let usual = || Address::Unix(layout.runtime.join("metrics.sock"));
    config.metrics.clone().unwrap_or_else(usual)
}

/// Opens the metrics address. As a socket it has the modes of the gRPC socket: on a node every user may read.
fn open_metrics(config: &Config, layout: &DaemonPaths) -> Result<Option<BoundListener>, Failed> {
    let listener = BoundListener::open(&metrics(config, layout))?;
    if let Some(Address::Unix(path)) = listener.as_ref().map(BoundListener::address) {
        fs::set_permissions(path, Permissions::from_mode(layout.reach.door_mode()))?;
    }
    Ok(listener)
}

fn layout(config: &Config) -> Result<DaemonPaths, Failed> {
    let reach = DaemonScope::of_this_process();
    let runtime = config.runtime_dir.clone().or_else(|| match reach {
        DaemonScope::Node => Some(NODE_RUNTIME.into()),
        DaemonScope::User => below("XDG_RUNTIME_DIR", "tranche"),
    });
    let state = config.state_dir.clone().or_else(|| match reach {
        DaemonScope::Node => Some("/var/lib/tranche".into()),
        DaemonScope::User => {
            below("XDG_STATE_HOME", "tranche").or_else(|| below("HOME", ".local/state/tranche"))
        }
    });
    let runtime =
        runtime.ok_or("there is no XDG_RUNTIME_DIR: say where sockets go with --runtime-dir DIR")?;
    let state = state.ok_or("there is no HOME: say where the state goes with --state-dir DIR")?;
    Ok(DaemonPaths { runtime: absolute(&runtime)?, state: absolute(&state)?, reach })
}

fn below(variable: &str, path: &str) -> Option<PathBuf> {
    let base = PathBuf::from(std::env::var_os(variable)?);
    base.is_absolute().then(|| base.join(path))
}

/// Makes a path absolute: clients and tenants with other working directories receive it.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    std::path::absolute(path)
}

fn shim_beside_us() -> Result<PathBuf, Failed> {
    let program = fs::canonicalize(std::env::current_exe()?)?;
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    Ok(prefix.join("lib/tranche/libtranche_preload.so"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    const CHILD: &str = "TRANCHE_TEST_PANICS";

    /// Runs this test in a child process, where a task panics as one of the daemon's loops might.
    #[test]
    fn panic_in_a_task_ends_the_daemon() {
        if std::env::var_os(CHILD).is_some() {
            abort_on_panic();
            let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
            runtime.block_on(async {
                let _ = tokio::spawn(async { panic!("a tenant's word") }).await;
            });
            std::thread::spawn(|| panic!("another")).join().unwrap_err();
            std::process::exit(0);
        }
        let test = "cli::tests::panic_in_a_task_ends_the_daemon";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let ended = child.args(["--exact", test, "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("cli.rs") && said.contains("a tenant's word"), "{said}");
        assert!(!said.contains("another"), "{said}");
    }
}
