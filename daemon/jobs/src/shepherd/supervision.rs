//! Supervision of the command: start, wait, stop on request.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout};
use tranche_domain::jobs::TerminationPolicy;
use tranche_jobs::cgroup::MemberCgroup;
use tranche_jobs::runner_protocol::{CommandOrder, CommandOutcome, ContainerOrder, signals};

use crate::engine::{Engine, NotPrepared};
use crate::health::{HealthVerdict, Verdicts};
use crate::log::{Log, keep, last_words};
use crate::{descendants, failures};

/// Time for the last messages of podman to arrive.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Destination of the command's output, and the cgroup that limits it, if any.
pub(crate) struct Site {
    pub(crate) log: Log,
    pub(crate) place: Option<MemberCgroup>,
}

/// Change of a running command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandNotice {
    /// A stop was requested for the first time.
    StopRequested,
    /// The service has become healthy.
    Healthy,
}

/// Runtime and signal handlers of the supervision.
pub(crate) struct Supervisor {
    runtime: Runtime,
    told: Signals,
}

impl Supervisor {
    /// Becomes the subreaper of its descendants, and installs the signal handlers.
    ///
    /// From here on a stop request ends the command, not the runner.
    pub(crate) fn new() -> io::Result<Self> {
        prctl::set_child_subreaper(true)?;
        // A signal mask blocked by the daemon's parent would be inherited by the command.
        SigSet::empty().thread_set_mask()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let told = runtime.block_on(async { signal(SignalKind::terminate()) })?;
        Ok(Self { runtime, told })
    }

    /// Runs the command to its end; `notify` is called for each notice before that.
    pub(crate) fn run(
        mut self,
        order: CommandOrder,
        site: Site,
        mut notify: impl FnMut(CommandNotice),
    ) -> io::Result<CommandOutcome> {
        let Site { log, place } = site;
        let watch =
            CommandWatch { order: &order, told: &mut self.told, notify: &mut notify, place: place.as_ref() };
        self.runtime.block_on(supervise(watch, log))
    }
}

/// A command to supervise, with requests to stop it, its notices, and the cgroup that limits it.
struct CommandWatch<'a> {
    order: &'a CommandOrder,
    told: &'a mut Signals,
    notify: &'a mut dyn FnMut(CommandNotice),
    place: Option<&'a MemberCgroup>,
}

async fn supervise(mut watch: CommandWatch<'_>, log: Log) -> io::Result<CommandOutcome> {
    let (order, place) = (watch.order, watch.place);
    let (printed, printing) = io::pipe()?;
    let mut command = match &order.container {
        Some(container) => return contained(watch, container, log, (printed, printing)).await,
        None => command(order, printing)?,
    };
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(CommandOutcome::NotStarted(not_started(order, &error))),
    };
    // `command` holds this side's ends of the pipe, which would keep the log open.
    drop(command);
    let keeping = keep(printed, log);
    let waited = wait(&mut child, &mut watch).await?;
    drop(child);
    descendants::sweep();
    // All writers are gone, so the copy ends.
    let _ = keeping.join();
    Ok(within(place, waited.outcome(outcome)))
}

/// The outcome, or that the command exceeded its memory.
fn within(place: Option<&MemberCgroup>, outcome: CommandOutcome) -> CommandOutcome {
    let exceeded = place.filter(|_| !outcome.is_success()).and_then(MemberCgroup::exceeded);
    exceeded.map_or(outcome, CommandOutcome::OutOfMemory)
}

/// Runs the command of an order in a container of podman's, and removes that.
async fn contained(
    mut watch: CommandWatch<'_>,
    container: &ContainerOrder,
    log: Log,
    (printed, printing): (PipeReader, PipeWriter),
) -> io::Result<CommandOutcome> {
    let (order, place) = (watch.order, watch.place);
    let engine = Engine::new(&container.name, &container.spec.engine);
    let keeping = keep(printed, log);
    let outcome = match engine.prepare(order, container, place.is_some(), &printing, watch.told).await {
        Ok(()) => started(&engine, &mut watch, printing).await,
        Err(not_prepared) => {
            // Without writers the copy of the log ends.
            drop(printing);
            Ok(match not_prepared {
                NotPrepared::Refused(why) => CommandOutcome::NotStarted(why),
                NotPrepared::Stopped => {
                    (watch.notify)(CommandNotice::StopRequested);
                    CommandOutcome::Signal(Signal::SIGTERM as i32)
                }
            })
        }
    };
    // By podman while its processes are there; once they are killed, what it keeps of the container remains.
    let removed = engine.remove(watch.told).await;
    descendants::sweep();
    if removed.is_err() {
        let _ = engine.remove(watch.told).await;
        descendants::sweep();
    }
    let _ = keeping.join();
    outcome.map(|outcome| within(place, outcome))
}

/// Starts the created container, and waits for its end.
async fn started(
    engine: &Engine,
    watch: &mut CommandWatch<'_>,
    printing: PipeWriter,
) -> io::Result<CommandOutcome> {
    let mut command = engine.start();
    let (said, saying) = io::pipe()?;
    command.stdout(printing.try_clone()?).stderr(saying);
    let spawned = command.spawn();
    drop(command);
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return Ok(CommandOutcome::NotStarted(failures::not_run(&error))),
    };
    let last = last_words(said, printing);
    let waited = wait(&mut child, watch).await?;
    // Bounded, as another process may hold podman's end of the pipe.
    let tail = timeout(LAST_WORDS, spawn_blocking(move || last.join())).await;
    let tail = tail.ok().and_then(Result::ok).and_then(Result::ok).unwrap_or_default();
    let ended = engine.outcome(waited.status, &String::from_utf8_lossy(&tail), watch.told).await;
    Ok(waited.outcome(|_| ended))
}

/// Waits for the end of a command, and ends it on request. Leaves the command's cgroup first, where the command stays.
async fn wait(child: &mut Child, watch: &mut CommandWatch<'_>) -> io::Result<Waited> {
    let CommandWatch { order, told, notify, place } = watch;
    let group = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
    let group = group.ok_or_else(|| io::Error::other("the command has no pid"))?;
    if let Some(Err(why)) = place.map(MemberCgroup::leave) {
        // It is killed, as its limits would be the runner's.
        descendants::sweep();
        return Err(io::Error::other(why.to_string()));
    }
    let mut exits = signal(SignalKind::child())?;
    let (farewell, mut health) = (order.farewell, Verdicts::of(order.health.clone()));
    let (mut leaving, mut stopped, mut unhealthy) = (Leaving::default(), false, None);
    let status = loop {
        tokio::select! {
            biased;
            status = child.wait() => break status?,
            _ = told.recv() => {
                if !stopped {
                    stopped = true;
                    notify(CommandNotice::StopRequested);
                    if unhealthy.is_none() {
                        leaving.begin(group, farewell);
                    }
                }
            }
            verdict = health.next() => match verdict {
                HealthVerdict::Healthy => notify(CommandNotice::Healthy),
                HealthVerdict::Unhealthy(why) if !stopped && unhealthy.is_none() => {
                    unhealthy = Some(why);
                    leaving.begin(group, farewell);
                }
                HealthVerdict::Unhealthy(_) => {}
            },
            () = leaving.next_step() => leaving.step(group),
            _ = exits.recv() => descendants::reap_orphans(group),
        }
    };
    descendants::signal(group, Signal::SIGKILL);
    // After a request to stop it does not matter how healthy it was.
    Ok(Waited { status, unhealthy: unhealthy.filter(|_| !stopped) })
}

/// End of a command.
struct Waited {
    status: ExitStatus,
    /// Reason for which this runner ended it.
    unhealthy: Option<String>,
}

impl Waited {
    fn outcome(self, of_status: impl FnOnce(ExitStatus) -> CommandOutcome) -> CommandOutcome {
        self.unhealthy.map_or_else(|| of_status(self.status), CommandOutcome::Unhealthy)
    }
}

fn command(order: &CommandOrder, printing: PipeWriter) -> io::Result<Command> {
    let (program, arguments) = order.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(order.environment.iter().cloned());
    command.current_dir(&order.workdir).process_group(0);
    command.stdin(Stdio::null()).stderr(printing.try_clone()?).stdout(printing);
    Ok(command)
}

/// Error message that distinguishes a missing folder from a missing program.
fn not_started(order: &CommandOrder, error: &io::Error) -> String {
    let (program, workdir) = (order.command.first().map_or("", String::as_str), order.workdir.display());
    match error.kind() {
        io::ErrorKind::NotFound if !Path::new(&order.workdir).is_dir() => {
            format!("cannot start in {workdir}: there is no such folder; name another with --workdir")
        }
        io::ErrorKind::NotFound if program.contains('/') => {
            format!("there is no {program}, or what it is to be run with is missing")
        }
        io::ErrorKind::NotFound => {
            format!(
                "there is no {program} in any folder of PATH; give its whole path, or set PATH with --env"
            )
        }
        _ => format!("cannot start {program} in {workdir}: {error}"),
    }
}

fn outcome(status: ExitStatus) -> CommandOutcome {
    match (status.code(), status.signal()) {
        (Some(code), _) => CommandOutcome::Exit(code),
        (None, Some(signal)) => CommandOutcome::Signal(signal),
        (None, None) => CommandOutcome::Lost,
    }
}

/// Progress of the termination: the signals that are left, each with its time.
#[derive(Debug, Default)]
struct Leaving(VecDeque<(Instant, Signal)>);

impl Leaving {
    fn begin(&mut self, group: Pid, farewell: TerminationPolicy) {
        let begun = Instant::now();
        self.0 = signals(farewell).into_iter().map(|(after, signal)| (begun + after, signal)).collect();
        self.step(group);
    }

    fn step(&mut self, group: Pid) {
        if let Some((_, signal)) = self.0.pop_front() {
            descendants::signal(group, signal);
        }
    }

    async fn next_step(&self) {
        match self.0.front() {
            Some((when, _)) => sleep_until(*when).await,
            None => std::future::pending().await,
        }
    }
}
