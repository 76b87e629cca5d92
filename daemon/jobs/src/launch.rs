//! Start of job runners: by the daemon for its own user, and by the node's job launcher for all users.
//!
//! The launcher accepts time and slice from the daemon; user and command are in the ticket.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, IoSlice, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::de::DeserializeOwned;
use tranche_domain::jobs::{ContainerSpec, HostLimits, LaunchSpec, ServiceSpec, TicketId};
use tranche_domain::slice::ProcessId;

use crate::cgroup::{CGROUPS, Delegated, NoLimits, check_controllers, own_cgroup};
use crate::record::JobOwner;
use crate::runner_protocol::{
    CommandOrder, LaunchAnswer, LaunchRequest, LeftContainer, Removal, RunnerReady, RunnerSetup, Start,
    receive_message, send_message,
};

/// Time for a job runner to report its identity.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for the removal of a container; beyond the runner's own limit.
const REMOVAL: Duration = Duration::from_secs(90);

/// Sources of job runners.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The job runner, for members that run as the daemon's own user.
    pub program: PathBuf,
    /// Socket of the node's job launcher; without it only the daemon's own user can run jobs.
    pub socket: PathBuf,
}

/// A start as the daemon requests it.
#[derive(Clone, Debug)]
pub(crate) struct StartRequest<'a> {
    pub(crate) setup: RunnerSetup,
    pub(crate) index: u32,
    pub(crate) ticket: Option<&'a TicketId>,
    pub(crate) launch: &'a LaunchSpec,
    pub(crate) service: Option<&'a ServiceSpec>,
}

/// A container that a lost job runner may have left.
#[derive(Clone, Debug)]
pub(crate) struct LeftBehind<'a> {
    pub(crate) owner: JobOwner,
    pub(crate) index: u32,
    pub(crate) ticket: Option<&'a TicketId>,
    pub(crate) name: String,
    pub(crate) spec: &'a ContainerSpec,
}

/// Reason for which a start failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartRefusal {
    pub(crate) why: String,
    /// True if every later start would fail.
    pub(crate) for_good: bool,
}

impl From<String> for StartRefusal {
    fn from(why: String) -> Self {
        Self { why, for_good: false }
    }
}

/// A job runner that waits for its order.
#[derive(Debug)]
pub(crate) struct Shepherd {
    pub(crate) process: ProcessId,
    stream: UnixStream,
}

impl Launcher {
    /// Tests if this user's jobs require a ticket.
    pub(crate) fn needs_ticket(&self, owner: JobOwner) -> bool {
        !is_own(owner) || self.socket.exists()
    }

    /// Checks that members of this user's jobs can be limited here.
    pub(crate) fn check_limits(&self, owner: JobOwner, limits: HostLimits) -> Result<(), NoLimits> {
        let root = Path::new(CGROUPS);
        match () {
            () if limits.is_none() => Ok(()),
            () if self.needs_ticket(owner) => check_controllers(root),
            () => Delegated::of_service(root, &own_cgroup(), owner.uid).map(drop),
        }
    }

    /// Starts a job runner, which then waits for its order.
    pub(crate) fn start(&self, wanted: &StartRequest<'_>) -> Result<Shepherd, StartRefusal> {
        let owner = JobOwner { uid: wanted.setup.uid, gid: wanted.setup.gid };
        match UnixStream::connect(&self.socket) {
            Ok(stream) => by_ticket(stream, wanted),
            Err(_) if is_own(owner) => Ok(self.by_itself(&wanted.setup)?),
            Err(error) => {
                let (socket, uid) = (self.socket.display(), owner.uid);
                Err(StartRefusal::from(format!(
                    "cannot run anything as user {uid}: nothing answers at {socket} ({error}); jobs of others than the \
                     daemon's own user are started by systemd: `systemctl enable --now tranche-attest.socket \
                     tranche-job.socket`"
                )))
            }
        }
    }

    /// Revokes tickets of ended jobs. If the launcher is unreachable they stay valid until they expire, but a
    /// member that succeeded is not started again.
    pub(crate) fn revoke(&self, tickets: Vec<TicketId>) {
        let revoked = UnixStream::connect(&self.socket)
            .and_then(|stream| ask::<LaunchAnswer>(PATIENCE, &stream, &LaunchRequest::Revoke(tickets), &[]));
        if let Err(error) = revoked {
            tracing::debug!(%error, "tickets of jobs that are over stay until they expire");
        }
    }

    /// Removes what a lost job runner left of a member's container.
    ///
    /// # Errors
    /// The reason, for the log.
    pub(crate) fn remove(&self, left: &LeftBehind<'_>) -> Result<(), String> {
        let failed = |error: io::Error| format!("the process that is to remove it did not answer: {error}");
        let answer = match UnixStream::connect(&self.socket) {
            Ok(stream) => {
                let Some(ticket) = left.ticket.cloned() else { return Err(WITHOUT.into()) };
                let removal = LaunchRequest::Remove(Removal { ticket, index: left.index });
                ask(REMOVAL, &stream, &removal, &[])
            }
            Err(_) if is_own(left.owner) => {
                let stream = self.spawn(&["remove"]).map_err(failed)?;
                let container = LeftContainer { name: left.name.clone(), engine: left.spec.engine.clone() };
                ask(REMOVAL, &stream, &container, &[])
            }
            Err(error) => Err(error),
        };
        match answer.map_err(failed)? {
            LaunchAnswer::Removed(None) => Ok(()),
            LaunchAnswer::Removed(Some(why)) | LaunchAnswer::Refused { why, .. } => Err(why),
            LaunchAnswer::Ready(_) | LaunchAnswer::Revoked => Err("it answered something else".into()),
        }
    }

    fn by_itself(&self, setup: &RunnerSetup) -> Result<Shepherd, String> {
        let stream =
            self.spawn(&[]).map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        let ready: RunnerReady = ask(PATIENCE, &stream, setup, &[]).map_err(not_started)?;
        limited(ready, setup.limits, stream)
    }

    fn spawn(&self, words: &[&str]) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&self.program);
        command.args(words);
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).process_group(0).env_clear();
        let mut child = command.spawn()?;
        // The thread reaps the child.
        thread::Builder::new().name("shepherd".into()).spawn(move || child.wait())?;
        Ok(ours)
    }
}

fn is_own(owner: JobOwner) -> bool {
    owner.uid == nix::unistd::geteuid().as_raw()
}

fn not_started(error: io::Error) -> String {
    format!("the process that is to look after it did not start: {error}")
}

/// The runner, if it set the limits. One of an earlier release does not know them.
fn limited(ready: RunnerReady, limits: HostLimits, stream: UnixStream) -> Result<Shepherd, String> {
    match ready.unlimited {
        Some(why) => Err(why),
        None if ready.limits != limits => Err(EARLIER.into()),
        None => Ok(Shepherd { process: ready.shepherd, stream }),
    }
}

/// Reason for refusing a job with limits where the job launcher sets none.
const EARLIER: &str = "its limits of processors and memory are not set by this job launcher, which is of an earlier release: \
     install the one of the daemon's release";

fn by_ticket(stream: UnixStream, wanted: &StartRequest<'_>) -> Result<Shepherd, StartRefusal> {
    let StartRequest { setup, index, ticket, launch, service } = wanted;
    let Some(ticket) = ticket else {
        return Err(StartRefusal { why: WITHOUT.into(), for_good: true });
    };
    let files = [append_to(&setup.attempt), append_to(&setup.log)];
    let [Ok(attempt), Ok(log)] = files else {
        return Err("cannot open the files for what it prints".to_owned().into());
    };
    let start = LaunchRequest::Start(Box::new(Start {
        ticket: (*ticket).clone(),
        index: *index,
        kept: setup.kept,
        command: launch.command.clone(),
        workdir: launch.workdir.clone(),
        limits: setup.limits,
        container: launch.container.clone(),
        service: service.cloned(),
    }));
    match ask(PATIENCE, &stream, &start, &[attempt, log]) {
        Ok(LaunchAnswer::Ready(ready)) => Ok(limited(ready, setup.limits, stream)?),
        Ok(LaunchAnswer::Refused { why, for_good }) => Err(StartRefusal { why, for_good }),
        Ok(LaunchAnswer::Revoked | LaunchAnswer::Removed(_)) => {
            Err("the job launcher answered something else".to_owned().into())
        }
        Err(error) => Err(not_started(error).into()),
    }
}

/// Reason for refusing a job without a ticket where there is a launcher.
pub(crate) const WITHOUT: &str = "it has no ticket of its submitter's: it was submitted by a `tranche` of an earlier \
     release, or to a daemon of one; delete it and submit it again with this one";

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// Sends a request with descriptors, and receives the reply.
fn ask<T: DeserializeOwned>(
    patience: Duration,
    stream: &UnixStream,
    message: &impl serde::Serialize,
    files: &[File],
) -> io::Result<T> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    send_message(&mut line, message)?;
    let files: Vec<_> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let sent = if files.is_empty() { 0 } else { send_with(stream, &line, &files)? };
    (&mut &*stream).write_all(&line[sent..])?;
    receive_message(BufReader::new(stream))
}

fn send_with(stream: &UnixStream, line: &[u8], files: &[i32]) -> io::Result<usize> {
    let rights = [ControlMessage::ScmRights(files)];
    Ok(sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(line)], &rights, MsgFlags::MSG_NOSIGNAL, None)?)
}

impl Shepherd {
    /// Sends the order; returns the runner's identity.
    pub(crate) fn order(self, order: &CommandOrder) -> Result<ProcessId, String> {
        send_message(&mut &self.stream, order)
            .map_err(|error| format!("cannot tell it what to run: {error}"))?;
        Ok(self.process)
    }
}
