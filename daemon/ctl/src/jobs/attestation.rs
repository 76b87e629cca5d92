//! Tickets from the node's job launcher, which runs only what the submitter attested to it directly.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tranche_domain::jobs::{
    Attested, Greeting, JobName, ProjectName, Submission, TicketAnswer, TicketAsk, TicketId, TicketRequest,
};

use crate::errors::Failure;

/// Time limit of the launcher's reply.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of a reply in bytes.
const LONGEST_ANSWER: u64 = 64 << 10;

/// A ticket for a job; `None` on a node without a job launcher, as with a user's own daemon.
pub(super) fn ticket(daemon: &Path, submission: &Submission) -> Result<Option<TicketId>, Failure> {
    let Some(launcher) = launcher(daemon) else { return Ok(None) };
    let attested = Box::new(Attested::from(submission));
    match ask(&launcher, TicketAsk::Issue(attested))? {
        TicketAnswer::Issued(ticket) => Ok(Some(ticket)),
        TicketAnswer::Refused(why) => Err(Failure::NoTicket { launcher, why }),
        TicketAnswer::Revoked(_) => {
            Err(Failure::NoTicket { launcher, why: "it answered something else".into() })
        }
    }
}

/// Revokes an unused ticket; on failure it expires by itself.
pub(super) fn revoke(daemon: &Path, ticket: TicketId) {
    if let Some(launcher) = launcher(daemon) {
        let _ = ask(&launcher, TicketAsk::Revoke(ticket));
    }
}

/// Revokes the user's tickets for a job, so that no daemon can start it again.
pub(super) fn revoke_job(daemon: &Path, project: &ProjectName, job: &JobName) {
    if let Some(launcher) = launcher(daemon) {
        let (project, job) = (project.clone(), job.clone());
        let _ = ask(&launcher, TicketAsk::RevokeJob { project, job });
    }
}

/// The launcher's socket, beside the daemon's.
fn launcher(daemon: &Path) -> Option<PathBuf> {
    let socket = daemon.with_file_name("attest.sock");
    socket.exists().then_some(socket)
}

fn ask(launcher: &Path, ask: TicketAsk) -> Result<TicketAnswer, Failure> {
    exchange(launcher, ask)
        .map_err(|error| Failure::NoTicket { launcher: launcher.into(), why: error.to_string() })
}

fn exchange(launcher: &Path, ask: TicketAsk) -> io::Result<TicketAnswer> {
    let stream = UnixStream::connect(launcher)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut answers = BufReader::new(&stream);
    let first = line(&mut answers)?;
    // A refusal at connection time comes without a greeting.
    let Ok(Greeting { nonce }) = serde_json::from_slice(&first) else { return understood(&first) };
    let mut request = serde_json::to_vec(&TicketRequest { nonce, ask })?;
    request.push(b'\n');
    let written = (&stream).write_all(&request);
    // A launcher that refuses the request may not read all of it.
    let answer = line(&mut answers);
    written.and(answer).and_then(|line| understood(&line))
}

fn line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.take(LONGEST_ANSWER).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn understood<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    Ok(serde_json::from_slice(line)?)
}
