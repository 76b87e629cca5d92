//! Errors of the commands, with advice for the user.

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Gid, Group};
use tonic::{Code, Status};
use tranche_domain::id::SliceName;
use tranche_domain::text::visible_bytes;
use tranche_rpc::{BadMessage, ConnectError};

use crate::doctor::check::Found;
use crate::doctor::setup::error::SetupError;
use crate::smi::query::UnknownField;

/// End of a sentence where there are no slices.
const NO_SLICES: &str = "there are no slices: `tranche slice create` makes one";

/// Maximum length of a displayed path in characters.
const LONGEST_PATH: usize = 4096;

/// Reason for which a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The daemon could not be reached.
    #[error("{0}\n{advice}", advice = advice(.0))]
    Unreachable(#[from] ConnectError),
    /// The daemon accepted the connection but did not answer.
    #[error(
        "tranched at {} took the connection but did not answer within {}: look at its log \
         (`journalctl -u tranched`) and whether it is stopped", shown(.socket), humantime::format_duration(*.waited)
    )]
    Silent {
        /// Path of its socket.
        socket: PathBuf,
        /// Time for which the answer was awaited.
        waited: Duration,
    },
    /// The connection ended before the answer.
    #[error(
        "tranched at {} ended the connection before it answered ({reason}): look at its log \
         (`journalctl -u tranched`) and try again", shown(.socket)
    )]
    BrokenOff {
        /// Path of its socket.
        socket: PathBuf,
        /// Error of the transport.
        reason: String,
    },
    /// The daemon was restarted while a request without a name waited, and may have carried it out.
    #[error(
        "tranched was restarted while the request waited, and slice {0} was made meanwhile, perhaps for it: use that one, or          delete it and try again; a request with a name is repeated by itself"
    )]
    PerhapsCreated(SliceName),
    /// The node has no GPU, and one was required.
    #[error("tranched has found no GPU: `tranche doctor` says why and what to do")]
    NoGpu,
    /// The daemon rejected the request.
    #[error("{}", .0.message())]
    Refused(Status),
    /// The daemon has no room for the request.
    #[error("{}\n{holders}", .refusal.message())]
    NoRoom {
        /// Refusal of the daemon, with its message.
        refusal: Status,
        /// Slices that have the room, in words.
        holders: String,
    },
    /// The node's job launcher issued no ticket.
    #[error("the node's job launcher at {} gave no ticket for this job: {why}", .launcher.display())]
    NoTicket {
        /// Path of its socket.
        launcher: PathBuf,
        /// Its reason, or the error of the connection.
        why: String,
    },
    /// The job's container belongs to another user.
    #[error(
        "job {job} runs in a container of uid {uid}, into which podman lets that user alone: run this as that user"
    )]
    OthersContainer {
        /// Name of the job.
        job: String,
        /// Uid of the submitter.
        uid: u32,
    },
    /// The daemon's answer is invalid for this version.
    #[error(
        "tranched's answer makes no sense to this version of tranche: {0}; `tranche doctor` compares versions"
    )]
    Nonsense(#[from] BadMessage),
    /// No slice with this name exists.
    #[error("there is no slice named {wanted}; {}", existing(.there_are, NO_SLICES))]
    NoSuchSlice {
        /// Name that was requested.
        wanted: SliceName,
        /// Names of the existing slices.
        there_are: Vec<SliceName>,
    },
    /// No project is given, and none can be inferred.
    #[error(
        "which project? name one with -p, or choose yours once with `tranche project set NAME`; {}", projects(.0)
    )]
    WhichProject(Vec<String>),
    /// The selected default project does not exist any more.
    #[error(
        "there is no project {name}, which `tranche project set` chose once: choose another that way, name one with -p, or \
         remove {path}", path = shown(.path)
    )]
    ChosenProject {
        /// Name of the missing project.
        name: String,
        /// File with the selection.
        path: PathBuf,
    },
    /// No user with this name exists.
    #[error("there is no user {0} on this node; give a name that `getent passwd` knows, or a uid")]
    NoSuchUser(String),
    /// The job has no slice to enter.
    #[error("job {job} is {state}: there is nothing to enter {}{}", when(*.is_over), because(.reason))]
    NotRunning {
        /// Name of the job to enter.
        job: String,
        /// State of the job, as lists show it.
        state: String,
        /// True if it never runs again.
        is_over: bool,
        /// Reason for the state.
        reason: String,
    },
    /// This process's environment cannot be passed to a job.
    #[error("{0}")]
    Environment(String),
    /// A file with jobs was rejected.
    #[error(transparent)]
    JobFile(#[from] crate::jobs::file::JobFileError),
    /// A job of a file was refused, and those before it were deleted again as far as possible.
    #[error("{job} could not be submitted: {why}\n{left}")]
    JobOfFile {
        /// The job, by its position and name.
        job: String,
        /// Failure of its submission.
        why: Box<Failure>,
        /// Jobs of the file that were deleted again, and those that exist.
        left: String,
    },
    /// The daemon ignored an option of a job, which has been deleted.
    #[error(
        "the job was submitted and deleted again: tranched is of an earlier release, and does not know {option}; leave it out, \
         or restart tranched with this release"
    )]
    EarlierDaemon {
        /// The option on the command line.
        option: &'static str,
    },
    /// Some of several jobs could not be deleted; the details are printed already.
    #[error("{0} of them could not be deleted")]
    Partly(usize),
    /// Reports of `tranche notify` were not delivered; the reasons are printed already.
    #[error("{0} reports were not delivered")]
    Undelivered(usize),
    /// A receiver of `tranche notify` cannot be used.
    #[error(transparent)]
    Delivery(#[from] crate::notify::delivery::DeliveryError),
    /// A filter or column of a list is unknown.
    #[error("there is no {what} {given:?}; there are: {}", .known.join(", "))]
    UnknownKey {
        /// Kind of the word, a filter or a column.
        what: &'static str,
        /// The word on the command line.
        given: String,
        /// Words that are known.
        known: Vec<String>,
    },
    /// A query names an unknown field.
    #[error(transparent)]
    Field(#[from] UnknownField),
    /// A program could not be run in a slice.
    #[error(transparent)]
    Run(#[from] crate::run::error::RunError),
    /// The demonstration could not be started.
    #[error(transparent)]
    Demo(#[from] crate::demo::DemoError),
    /// Checks found problems, which are printed already.
    #[error("{0}")]
    Unwell(Found),
    /// This host could not be set up, or not in full.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A file could not be written.
    #[error("cannot write to {}: {cause}", shown(.path))]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the write.
        cause: std::io::Error,
    },
    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}")]
    Output(std::io::Error),
    /// A full screen was requested where there is no terminal.
    #[error(
        "standard output is no terminal, which `tranche top` needs: `tranche smi` and `tranche list` print once, \
         `tranche top --once` prints a single frame"
    )]
    NoTerminal,
    /// The terminal could not be read, written or set.
    #[error("the terminal failed: {0}")]
    Terminal(std::io::Error),
    /// The async runtime could not be created.
    #[error("cannot prepare to talk to tranched: {0}")]
    Runtime(std::io::Error),
}

impl Failure {
    /// Tests if standard output was closed, as in `tranche smi | head -1`, which is no error.
    pub fn is_reader_gone(&self) -> bool {
        matches!(self, Self::Output(cause) if cause.kind() == ErrorKind::BrokenPipe)
    }

    /// Tests if the connection failed, so that the daemon may be about to be started again.
    pub const fn is_of_connection(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::BrokenOff { .. } | Self::Silent { .. })
    }

    /// Tests if the daemon has no room for the request.
    pub fn is_no_room(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code() == Code::ResourceExhausted)
    }

    /// Tests if the same request can succeed later, so that it is worth a wait.
    pub fn may_pass(&self) -> bool {
        let is_marked = |status: &Status| status.metadata().contains_key(tranche_rpc::MAY_PASS);
        self.is_no_room() || matches!(self, Self::Refused(status) if is_marked(status))
    }

    /// Tests if the error is printed already.
    pub fn is_told(&self) -> bool {
        matches!(self, Self::Unwell(_) | Self::Setup(SetupError::StepsLeft(_)))
    }

    /// Exit status of the process.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Run(error) => error.exit_status(),
            Self::JobOfFile { why, .. } => why.exit_status(),
            Self::Field(_) | Self::UnknownKey { .. } | Self::JobFile(_) => 2,
            _ => 1,
        }
    }
}

/// List of the existing projects, as the end of a sentence.
pub(crate) fn projects(names: &[String]) -> String {
    existing(names, "there are no projects: `tranche project create NAME --quota N` makes one")
}

/// List of what exists, as the end of a sentence, or another end where nothing does.
fn existing(names: &[impl ToString], nothing: &str) -> String {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    if names.is_empty() { nothing.to_owned() } else { format!("there are: {}", names.join(", ")) }
}

const fn when(is_over: bool) -> &'static str {
    if is_over { "any more; submit it again" } else { "before it runs" }
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

/// A path, escaped and cut for display.
fn shown(path: &Path) -> String {
    visible_bytes(path.as_os_str().as_bytes(), LONGEST_PATH)
}

/// Advice about a daemon that cannot be reached.
fn advice(error: &ConnectError) -> String {
    let own = own_daemon(&error.socket);
    match error.cause.kind() {
        ErrorKind::PermissionDenied => match owning_group(&error.socket) {
            Some(group) => format!(
                "your user may not use that daemon: join the socket's group (`sudo usermod -aG {group} $USER`, then \
                 log in again), or {own}"
            ),
            None => format!(
                "your user may not use that daemon: ask its administrator to let you into its folder, or {own}"
            ),
        },
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => format!(
            "the daemon is not running there: start it with `systemctl start tranched`, or {own}; \
             if it runs elsewhere, name its socket with --socket or TRANCHE_SOCKET"
        ),
        ErrorKind::WouldBlock | ErrorKind::ConnectionReset => {
            "end what holds connections to it, or try again later; root has a socket of its own there".into()
        }
        _ => "name the daemon's socket with --socket or TRANCHE_SOCKET; `tranche doctor` says what is found"
            .into(),
    }
}

/// Advice on starting a user's own daemon at `socket`.
fn own_daemon(socket: &Path) -> String {
    let folder = match socket.parent() {
        Some(folder) if socket.ends_with("tranched.sock") && !folder.starts_with("/run/tranche") => folder,
        _ => return "run one for yourself with `tranched --runtime-dir DIR --state-dir DIR`".into(),
    };
    format!("run one for yourself with `tranched --runtime-dir {} --state-dir DIR`", shown(folder))
}

/// The group that may use the socket or its folder; `None` for root's group.
fn owning_group(socket: &Path) -> Option<String> {
    let candidates = [Some(socket), socket.parent()];
    let gid = candidates.into_iter().flatten().find_map(|path| std::fs::metadata(path).ok())?.gid();
    let group = Group::from_gid(Gid::from_raw(gid)).ok()??;
    (gid != 0).then_some(group.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable(socket: &str, kind: ErrorKind) -> String {
        Failure::from(ConnectError { socket: socket.into(), cause: kind.into() }).to_string()
    }

    #[test]
    fn absent_daemon_error_names_socket_and_remedy() {
        for kind in [ErrorKind::NotFound, ErrorKind::ConnectionRefused] {
            let text = unreachable("/home/a/t/tranched.sock", kind);
            for part in
                ["/home/a/t/tranched.sock", "systemctl start tranched", "--runtime-dir /home/a/t", "--socket"]
            {
                assert!(text.contains(part), "{part:?} is missing from {text:?}");
            }
        }
    }

    #[test]
    fn denied_socket_error_names_remedy() {
        let text = unreachable("/nonexistent/tranched.sock", ErrorKind::PermissionDenied);
        assert!(text.contains("your user may not use that daemon"), "{text}");
        assert!(text.contains("--runtime-dir"), "{text}");
    }

    #[test]
    fn job_that_cannot_be_entered_has_the_state_that_lists_show() {
        let failure = |state: &str, is_over| {
            let reason = String::new();
            Failure::NotRunning { job: "od".into(), state: state.into(), is_over, reason }.to_string()
        };
        assert_eq!(
            failure("Overdue", true),
            "job od is Overdue: there is nothing to enter any more; submit it again"
        );
        assert_eq!(failure("Pending", false), "job od is Pending: there is nothing to enter before it runs");
    }

    #[test]
    fn unknown_slice_error_lists_existing_slices() {
        let there_are = ["a", "b"].map(|name| name.parse().unwrap()).to_vec();
        let failure = Failure::NoSuchSlice { wanted: "c".parse().unwrap(), there_are };
        assert_eq!(failure.to_string(), "there is no slice named c; there are: a, b");
    }
}
