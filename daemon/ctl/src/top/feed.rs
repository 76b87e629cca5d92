//! The connection to the daemon, by which scenes are obtained and changes carried out.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tranche_domain::id::HostPid;
use tranche_domain::view::WaitingView;

use super::deed::Deed;
use super::scene::Scene;
use crate::client::Daemon;
use crate::errors::Failure;
use crate::users::Names;

/// Result of a look or of a change.
#[derive(Debug)]
pub(super) enum Answer {
    /// The node as it is now.
    Look(Box<Scene>),
    /// The daemon does not answer, for this reason.
    Lost(String),
    /// A change was carried out.
    Done(String),
    /// A change was rejected.
    Rejected(String),
}

/// A daemon that is connected when it is needed.
#[derive(Debug)]
pub(super) struct Feed {
    socket: PathBuf,
    daemon: Option<Daemon>,
    /// Names by uid, looked up once.
    names: Names,
}

impl Feed {
    /// A feed that is not yet connected.
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket, daemon: None, names: Names::default() }
    }

    /// Passes on a scene at each interval and after each change, until one of the channels is closed.
    pub(super) fn run(
        mut self,
        interval: Duration,
        deeds: &Receiver<Deed>,
        mut pass: impl FnMut(Answer) -> bool,
    ) {
        loop {
            let begin = Instant::now();
            let answer = match self.look() {
                Ok(scene) => Answer::Look(Box::new(scene)),
                Err(failure) => Answer::Lost(first_line(&failure)),
            };
            if !pass(answer) {
                return;
            }
            match deeds.recv_timeout(interval.saturating_sub(begin.elapsed())) {
                Ok(deed) if pass(self.carry_out(&deed)) => {}
                Err(RecvTimeoutError::Timeout) => {}
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The node as it is now. A connection that fails is made again by the next call.
    pub(super) fn look(&mut self) -> Result<Scene, Failure> {
        let mut daemon = self.daemon.take().map_or_else(|| Daemon::connect(&self.socket), Ok)?;
        let node = daemon.snapshot()?;
        let jobs = match daemon.jobs(None, None) {
            // A daemon without jobs, or one that lists none to this user.
            Err(Failure::Refused(_)) => Vec::new(),
            jobs => jobs?,
        };
        self.daemon = Some(daemon);
        let requesters = node.waiting.iter().filter_map(requester).collect();
        Ok(Scene::new(node, jobs, requesters, |uid| self.names.of(uid)))
    }

    fn carry_out(&mut self, deed: &Deed) -> Answer {
        let mut daemon = match self.daemon.take().map_or_else(|| Daemon::connect(&self.socket), Ok) {
            Ok(daemon) => daemon,
            Err(failure) => return Answer::Rejected(first_line(&failure)),
        };
        match deed.carry_out(&mut daemon) {
            Ok(done) => {
                self.daemon = Some(daemon);
                Answer::Done(done)
            }
            Err(failure) => Answer::Rejected(failure.to_string()),
        }
    }
}

/// Uid of a requester. With an earlier release of the daemon that of its process; `None` if that has ended.
fn requester(request: &WaitingView) -> Option<(HostPid, u32)> {
    let of_process = || Some(fs::metadata(format!("/proc/{}", request.pid)).ok()?.uid());
    Some((request.pid, request.uid.or_else(of_process)?))
}

/// The error without the advice that follows it.
fn first_line(failure: &Failure) -> String {
    failure.to_string().lines().next().unwrap_or_default().to_owned()
}
