//! Calls of podman for the container of one member: creation, state at the end, removal.

use std::fs;
use std::io::{self, PipeWriter, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{Pid, User, geteuid};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::Signal as Signals;
use tokio::time::timeout;
use tranche_domain::jobs::PullPolicy;
use tranche_jobs::runner_protocol::{CommandOrder, CommandOutcome, ContainerOrder};

use crate::container::{self, EngineTraits};
use crate::failures;
use crate::{descendants, document};

/// Program that runs containers.
const PODMAN: &str = "podman";
/// Time limit of a call that pulls nothing.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time that a call has to end by itself when the job has to stop.
const GRACE: Duration = Duration::from_secs(5);
/// Maximum number of bytes read of what a call prints.
const MOST_PRINTED: u64 = 64 << 10;

/// Reason for which there is no container.
#[derive(Debug)]
pub(crate) enum NotPrepared {
    /// It cannot be made; for the job's user.
    Refused(String),
    /// A request to stop came first.
    Stopped,
}

/// Result of a call.
#[derive(Debug)]
pub(crate) struct Called {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

/// Podman for one container.
#[derive(Debug)]
pub(crate) struct Engine {
    name: String,
    environment: Vec<(String, String)>,
}

impl Engine {
    /// `given` is podman's environment; what it requires is added.
    pub(crate) fn new(name: &str, given: &[(String, String)]) -> Self {
        let mut environment = given.to_vec();
        let account = User::from_uid(geteuid()).ok().flatten();
        let home = account.as_ref().map(|account| account.dir.display().to_string());
        let user = account.map(|account| account.name);
        for (variable, value) in [("HOME", home), ("USER", user.clone()), ("LOGNAME", user)] {
            if let Some(value) = value.filter(|_| environment.iter().all(|(known, _)| known != variable)) {
                environment.push((variable.into(), value));
            }
        }
        if environment.iter().all(|(known, _)| known != "PATH") {
            environment
                .push(("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()));
        }
        // Of a session that has ended.
        environment.retain(|(name, value)| name != "XDG_RUNTIME_DIR" || Path::new(value).is_dir());
        Self { name: name.to_owned(), environment }
    }

    /// A call in a process group of its own, which no terminal and no log is part of.
    fn command(&self, words: &[impl AsRef<std::ffi::OsStr>]) -> Command {
        let mut command = Command::new(PODMAN);
        command.args(words).env_clear().envs(self.environment.iter().cloned()).current_dir("/");
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The command that starts the created container and forwards signals to it.
    pub(crate) fn start(&self) -> Command {
        self.command(&["start", "--attach", "--sig-proxy=true", &self.name])
    }

    /// Creates the container, after pulling its image where its policy requires that.
    pub(crate) async fn prepare(
        &self,
        order: &CommandOrder,
        container: &ContainerOrder,
        is_limited: bool,
        log: &PipeWriter,
        told: &mut Signals,
    ) -> Result<(), NotPrepared> {
        let refused = NotPrepared::Refused;
        failures::privileges().map_err(refused)?;
        let runtime = self.call(&["info", "--format", "{{.Host.OCIRuntime.Name}}"], told).await?;
        if !runtime.status.success() {
            return Err(refused(failures::unusable(&runtime.stderr)));
        }
        if is_limited && runtime.stdout.trim() == container::RUNC {
            return Err(refused(failures::BEYOND_LIMITS.into()));
        }
        self.remove(told).await.map_err(refused)?;
        check_places(container).map_err(refused)?;
        self.pull(container, log, told).await?;
        let path = container.document.as_deref().ok_or_else(|| refused(failures::NO_DOCUMENT.into()))?;
        let slice = container.name.strip_prefix("tranche-").unwrap_or(&container.name);
        let edits = document::edits_of(path, slice).map_err(refused)?;
        let installed = installed().map_err(|error| refused(failures::no_files(&error)))?;
        let edits = document::with_installed_shim(edits, &installed);
        let hooks = HookFolder::write(&edits.hooks, &self.environment);
        let hooks = hooks.map_err(|error| refused(failures::no_files(&error)))?;
        let traits = EngineTraits {
            runtime: runtime.stdout.trim().to_owned(),
            hooks: hooks.as_ref().map(HookFolder::path),
        };
        let call = container::create(order, container, &edits, &traits);
        let mut command = self.command(&call.arguments);
        command.envs(call.environment);
        // With a limit, unless it may pull.
        let limit = (container.spec.pull != PullPolicy::Newer).then_some(PATIENCE);
        let created = step(command, None, limit, told).await?;
        if created.status.success() {
            return Ok(());
        }
        Err(refused(failures::not_created(&container.spec.image, &created.stderr)))
    }

    async fn pull(
        &self,
        container: &ContainerOrder,
        log: &PipeWriter,
        told: &mut Signals,
    ) -> Result<(), NotPrepared> {
        let (image, policy) = (container.spec.image.as_str(), container.spec.pull);
        let exists = self.call(&["image", "exists", image], told).await?.status.success();
        match (policy, exists) {
            (PullPolicy::Never, false) => return Err(NotPrepared::Refused(failures::absent(image))),
            (PullPolicy::Never | PullPolicy::Missing, true) => return Ok(()),
            // The creation compares it with the registry's.
            (PullPolicy::Newer, true) => {
                note(log, &format!("looking for a newer image {image}"));
                return Ok(());
            }
            (PullPolicy::Missing | PullPolicy::Newer, false) | (PullPolicy::Always, _) => {}
        }
        note(log, &format!("pulling image {image}"));
        let pull = self.command(&["pull", image]);
        let pulled = step(pull, Some(log), None, told).await?;
        if !pulled.status.success() {
            return Err(NotPrepared::Refused(failures::not_pulled(image, &pulled.stderr)));
        }
        note(log, &format!("pulled image {image}"));
        Ok(())
    }

    async fn call(&self, words: &[&str], told: &mut Signals) -> Result<Called, NotPrepared> {
        step(self.command(words), None, Some(PATIENCE), told).await
    }

    /// Outcome of the container's program, after `podman start` ended with this status and message.
    pub(crate) async fn outcome(&self, status: ExitStatus, said: &str, told: &mut Signals) -> CommandOutcome {
        let format = "{{.State.Status}} {{.State.ExitCode}} {{.State.StartedAt.Unix}}";
        let state = self.call(&["inspect", "--type=container", "--format", format, &self.name], told).await;
        let state = state.map(|state| state.stdout).unwrap_or_default();
        let mut words = state.split_whitespace();
        let (is, code) = (words.next().unwrap_or_default(), words.next().and_then(|code| code.parse().ok()));
        let started = words.next().and_then(|time| time.parse::<i64>().ok()).is_some_and(|time| time > 0);
        match (is, code, status.signal()) {
            ("exited" | "stopped", Some(code), _) if started => CommandOutcome::Exit(code),
            (_, _, Some(signal)) => CommandOutcome::Signal(signal),
            _ if !is.is_empty() && !started => CommandOutcome::NotStarted(failures::not_started(said)),
            // The container's monitor has ended, and its program's status is unknown.
            _ => CommandOutcome::Lost,
        }
    }

    /// Removes the container, with its processes; the error is for the job's user.
    pub(crate) async fn remove(&self, told: &mut Signals) -> Result<(), String> {
        let removed = match self.call(&["rm", "--force", "--time=0", "--ignore", &self.name], told).await {
            Ok(removed) => removed,
            // A removal is not cut short.
            Err(NotPrepared::Stopped) => return Err("it was interrupted".into()),
            Err(NotPrepared::Refused(why)) => return Err(why),
        };
        if removed.status.success() {
            return Ok(());
        }
        Err(format!("cannot remove container {}: {}", self.name, failures::last_line(&removed.stderr)))
    }
}

/// Folder of the installed shim's libraries for containers.
fn installed() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("replace"))
}

/// Appends a line of the job runner's own to the log.
fn note(log: &PipeWriter, text: &str) {
    let _ = (&*log).write_all(format!("[tranche: {text}]\n").as_bytes());
}

/// Checks sources of mounts and ports of the node, for which podman's own messages name no remedy.
fn check_places(container: &ContainerOrder) -> Result<(), String> {
    for mount in container.spec.mounts.iter().filter(|mount| mount.is_path()) {
        fs::metadata(&mount.source).map_err(|error| failures::no_source(&mount.source, &error))?;
    }
    for port in &container.spec.ports {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, port.host.get()))
            .map(drop)
            .map_err(|error| failures::no_port(*port, &error))?;
    }
    Ok(())
}

/// Runs a call to its end, or until the job has to stop.
async fn step(
    mut command: Command,
    log: Option<&PipeWriter>,
    limit: Option<Duration>,
    told: &mut Signals,
) -> Result<Called, NotPrepared> {
    let failed = |error: io::Error| NotPrepared::Refused(failures::not_run(&error));
    let mut child = command.spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let printed = async {
        let mut text = String::new();
        if let Some(stdout) = stdout {
            let _ = stdout.take(MOST_PRINTED).read_to_string(&mut text).await;
        }
        text
    };
    let said = async {
        let (mut text, Some(stderr)) = (String::new(), stderr) else { return String::new() };
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(mut log) = log {
                let _ = writeln!(log, "{line}");
            }
            if text.len() as u64 > MOST_PRINTED {
                text.clear();
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    };
    let whole = async { tokio::join!(child.wait(), printed, said) };
    let limit = limit.unwrap_or(Duration::MAX);
    let ended = tokio::select! {
        biased;
        ended = timeout(limit, whole) => ended.ok(),
        _ = told.recv() => {
            stop(&mut child).await;
            return Err(NotPrepared::Stopped);
        }
    };
    let Some((status, stdout, stderr)) = ended else {
        stop(&mut child).await;
        return Err(NotPrepared::Refused(format!("podman did not answer for {} s", limit.as_secs())));
    };
    Ok(Called { status: status.map_err(failed)?, stdout, stderr })
}

/// Ends a call with all of its process group.
async fn stop(child: &mut Child) {
    let Some(group) = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw) else { return };
    descendants::signal(group, Signal::SIGTERM);
    let _ = timeout(GRACE, child.wait()).await;
    descendants::signal(group, Signal::SIGKILL);
    let _ = child.wait().await;
}

/// Files of hooks for the runtime, removed with this value.
#[derive(Debug)]
struct HookFolder(PathBuf);

impl HookFolder {
    fn write(
        hooks: &[tranche_cdi::spec::CdiHook],
        environment: &[(String, String)],
    ) -> io::Result<Option<Self>> {
        if hooks.is_empty() {
            return Ok(None);
        }
        let of = |name: &str| {
            environment.iter().find(|(known, _)| known == name).map(|(_, value)| PathBuf::from(value))
        };
        let parent = of("XDG_RUNTIME_DIR").or_else(|| of("TMPDIR")).unwrap_or_else(std::env::temp_dir);
        let folder = parent.join(format!("tranche-hooks-{}", nix::unistd::getpid()));
        // A folder that another user made is not written to.
        let _ = fs::remove_dir_all(&folder);
        fs::DirBuilder::new().create(&folder)?;
        let folder = Self(folder);
        for (number, hook) in hooks.iter().enumerate() {
            fs::write(folder.0.join(format!("{number:03}-tranche.json")), container::hook_file(hook))?;
        }
        Ok(Some(folder))
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for HookFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
