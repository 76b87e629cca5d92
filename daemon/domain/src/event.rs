//! Events of a node: kind, subject, actor and evidence.
//!
//! Events are read by users and their tools. The name of a kind never changes its meaning; details that the
//! kind does not carry are in the evidence, as a plain sentence.

mod cause;
mod history;
mod throttle;

use alloc::string::{String, ToString};
use core::convert::Infallible;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

pub use cause::EventCause;
pub use history::EventHistory;
pub use throttle::{Throttle, ThrottleDecision};

use crate::id::{GpuUuid, HostPid, SliceName};
use crate::text::{LONGEST_NAME, visible_within};
use crate::word::{extensible, named};

named! {
    /// Importance of an event to an operator.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Severity {
        /// An event of normal operation.
        Info = "info",
        /// A rejected or improper action.
        Warning = "warning",
        /// A malfunction of a GPU, of the node or of the daemon.
        Error = "error",
    }
}

/// Error for a text that names no severity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a severity of an event: those are info, warning and error")]
pub struct BadSeverity(pub String);

impl FromStr for Severity {
    type Err = BadSeverity;

    fn from_str(text: &str) -> Result<Self, BadSeverity> {
        let found = Self::ALL.iter().find(|one| one.as_str() == text);
        found.copied().ok_or_else(|| BadSeverity(text.to_string()))
    }
}

/// Defines the kinds, each with its stable name and severity.
macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident = $word:literal, $severity:ident;)*) => {
        extensible! {
            /// Occurrence that an event reports, by its stable name.
            pub enum EventKind { $($(#[$about])* $kind = $word,)* }
        }

        impl EventKind {
            /// Importance; unknown kinds count as warnings.
            pub const fn severity(&self) -> Severity {
                match self {
                    $(Self::$kind => Severity::$severity,)*
                    Self::Other(_) => Severity::Warning,
                }
            }
        }
    };
}

kinds! {
    /// The daemon started, on an empty node or with the state of an earlier one.
    DaemonStarted = "daemon-started", Info;
    /// The daemon was stopped on request.
    DaemonStopped = "daemon-stopped", Info;
    /// A slice was created.
    SliceCreated = "slice-created", Info;
    /// A slice of an earlier daemon was restored.
    SliceTakenOver = "slice-taken-over", Info;
    /// A slice's size, limit or priority changed.
    SliceResized = "slice-resized", Info;
    /// A slice's launches are now held.
    SliceFrozen = "slice-frozen", Info;
    /// A slice's launches are no longer held.
    SliceThawed = "slice-thawed", Info;
    /// A slice's device memory lies in host memory now, and its part of the GPUs is free.
    SliceParked = "slice-parked", Info;
    /// A parked slice is on its GPUs again.
    SliceUnparked = "slice-unparked", Info;
    /// A slice could not be parked, or not brought back as it was.
    ParkFailed = "park-failed", Warning;
    /// The pod of a slice changed.
    SliceLabelled = "slice-labelled", Info;
    /// A slice beyond its project's quota ended in favour of a job within its own.
    SlicePreempted = "slice-preempted", Warning;
    /// A slice has not used its GPU for long.
    SliceIdle = "slice-idle", Info;
    /// A slice was deleted.
    SliceDeleted = "slice-deleted", Info;
    /// A slice that was to leave its GPUs has ended, after SIGTERM and a grace for its processes.
    SliceDrained = "slice-drained", Info;
    /// A request was rejected.
    Refused = "refused", Warning;
    /// A slice holds more than its cap.
    OverCap = "over-cap", Warning;
    /// A slice that held more than its cap is within it again.
    WithinCap = "within-cap", Info;
    /// The daemon killed a process.
    Killed = "killed", Warning;
    /// The driver reported a fault, or a GPU refuses further slices.
    GpuFault = "gpu-fault", Error;
    /// The faults of a GPU are over.
    GpuRecovered = "gpu-recovered", Info;
    /// The driver reported a fault that a program caused; the GPU is healthy.
    ProgramFault = "program-fault", Info;
    /// An operator cordoned a GPU.
    GpuCordoned = "gpu-cordoned", Info;
    /// An operator uncordoned a GPU.
    GpuUncordoned = "gpu-uncordoned", Info;
    /// The configuration was reloaded.
    ConfigurationReloaded = "configuration-reloaded", Info;
    /// An operator discarded the measured context reserves.
    ReservesForgotten = "reserves-forgotten", Info;
    /// A project was created or changed.
    ProjectChanged = "project-changed", Info;
    /// A project was deleted.
    ProjectDeleted = "project-deleted", Info;
    /// A job was submitted.
    JobSubmitted = "job-submitted", Info;
    /// A job was suspended.
    JobSuspended = "job-suspended", Info;
    /// A job was resumed.
    JobResumed = "job-resumed", Info;
    /// A job was deleted.
    JobDeleted = "job-deleted", Info;
    /// The last slice left a GPU that an operator drained.
    GpuDrained = "gpu-drained", Info;
    /// A process outside all slices uses a GPU that has slices.
    ForeignProcess = "foreign-process", Warning;
    /// A process holds more memory than it is charged for.
    UnderReported = "under-reported", Warning;
    /// A process used a GPU while its slice's launch gate was closed.
    GateBypassed = "gate-bypassed", Warning;
    /// A slice keeps other slices off a GPU without computing there.
    GpuHeldIdle = "gpu-held-idle", Warning;
    /// A slice's usage region has content that the library does not write.
    UsageTampered = "usage-tampered", Warning;
    /// A process of a slice uses its GPU without the preloaded library.
    UnshimmedProcess = "unshimmed-process", Warning;
    /// A condition reported earlier ceased.
    Cleared = "cleared", Info;
    /// A member of a job was started.
    JobStarted = "job-started", Info;
    /// A running member of a job was stopped in favour of another.
    JobPreempted = "job-preempted", Info;
    /// A member of a job exceeded its runtime or idle limit.
    JobOverdue = "job-overdue", Warning;
    /// A member of a job ended successfully.
    JobSucceeded = "job-succeeded", Info;
    /// A member of a job ended otherwise.
    JobFailed = "job-failed", Warning;
    /// A member of a job ended by itself, and is started again.
    JobRestarted = "job-restarted", Warning;
    /// The state of an earlier daemon was unreadable; the evidence names the fallback.
    StateUnreadable = "state-unreadable", Error;
    /// Events could not be written to disk and exist in memory only.
    HistoryIncomplete = "history-incomplete", Warning;
}

impl FromStr for EventKind {
    type Err = Infallible;

    fn from_str(word: &str) -> Result<Self, Infallible> {
        Ok(word.to_string().into())
    }
}

/// Maximum length of evidence in characters; part of it may be text chosen by a tenant.
const LONGEST: usize = 400;

/// User and process that requested an action, from the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Uid of the user.
    pub uid: u32,
    /// User name, if the uid has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Pid, if a process made the request itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<HostPid>,
    /// Command name of the process (`comm`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Actor {
    /// A user on whose behalf the daemon acts, without a process.
    pub fn of_user(uid: u32, user: Option<&str>) -> Self {
        let user = user.map(|user| visible_within(user, LONGEST_NAME));
        Self { uid, user, pid: None, command: None }
    }

    /// Adds the requesting process and its command.
    #[must_use]
    pub fn by(self, pid: HostPid, command: &str) -> Self {
        let command = Some(visible_within(command, LONGEST_NAME)).filter(|command| !command.is_empty());
        Self { pid: Some(pid), command, ..self }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => write!(f, "{user} (uid {})", self.uid)?,
            None => write!(f, "uid {}", self.uid)?,
        }
        let Some(pid) = self.pid else { return Ok(()) };
        write!(f, ", process {pid}")?;
        self.command.as_ref().map_or(Ok(()), |command| write!(f, " ({command})"))
    }
}

/// Origin of an act: the user who requested it, the rule that demanded it, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instigator {
    /// User and process that requested it, if any.
    pub actor: Option<Actor>,
    /// Rule of the daemon, if any.
    pub cause: Option<EventCause>,
}

impl Instigator {
    /// A rule of the daemon, without a user's request.
    pub const fn rule(cause: EventCause) -> Self {
        Self { actor: None, cause: Some(cause) }
    }

    /// A user's request, which the daemon carries out by a rule.
    pub const fn request(actor: Actor, cause: EventCause) -> Self {
        Self { actor: Some(actor), cause: Some(cause) }
    }
}

/// An event that has no place in the history yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Kind of the event.
    pub kind: EventKind,
    /// The slice that it is about, if any.
    pub slice: Option<SliceName>,
    /// The GPU that it is about, if any.
    pub gpu: Option<GpuUuid>,
    /// The process that it is about, if any.
    pub pid: Option<HostPid>,
    /// User and process that requested it, if any.
    pub actor: Option<Actor>,
    /// Rule by which the daemon did it, if any.
    pub cause: Option<EventCause>,
    /// Evidence, as a sentence.
    pub evidence: String,
}

impl Happening {
    /// An event with evidence; invisible characters are escaped, and overlong text is cut.
    pub fn new(kind: EventKind, evidence: impl fmt::Display) -> Self {
        let evidence = visible_within(&evidence.to_string(), LONGEST);
        Self { kind, slice: None, gpu: None, pid: None, actor: None, cause: None, evidence }
    }

    /// Adds the slice that it is about.
    #[must_use]
    pub fn of(self, slice: &SliceName) -> Self {
        Self { slice: Some(slice.clone()), ..self }
    }

    /// Adds the GPU that it is about.
    #[must_use]
    pub fn on(self, gpu: GpuUuid) -> Self {
        Self { gpu: Some(gpu), ..self }
    }

    /// Adds the user or program that requested it.
    #[must_use]
    pub fn asked_by(self, actor: Actor) -> Self {
        Self { actor: Some(actor), ..self }
    }

    /// Adds the rule by which the daemon did it.
    #[must_use]
    pub fn caused_by(self, cause: EventCause) -> Self {
        Self { cause: Some(cause), ..self }
    }

    /// Adds the user or the rule that it is due to.
    #[must_use]
    pub fn due_to(self, Instigator { actor, cause }: Instigator) -> Self {
        Self { actor, cause, ..self }
    }

    /// Adds the process that it is about.
    #[must_use]
    pub fn by(self, pid: HostPid) -> Self {
        Self { pid: Some(pid), ..self }
    }
}

/// An event of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Sequence number; later events have higher ones.
    pub seq: u64,
    /// Time, in milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// Severity by its kind.
    pub severity: Severity,
    /// Kind of the event.
    pub kind: EventKind,
    /// The slice that it is about, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<SliceName>,
    /// The GPU that it is about, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUuid>,
    /// The process that it is about, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<HostPid>,
    /// Requester, if a user's process requested the action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// Rule by which the daemon did it, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<EventCause>,
    /// Evidence, as a sentence.
    pub evidence: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn kind_names_are_unique_and_parse_back() {
        let words: BTreeSet<&str> = EventKind::KNOWN.iter().map(EventKind::as_str).collect();
        assert_eq!(words.len(), EventKind::KNOWN.len());
        for kind in EventKind::KNOWN {
            assert_eq!(EventKind::from(String::from(kind.clone())), *kind);
            assert!(kind.as_str().chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{kind}");
        }
    }

    #[test]
    fn cause_names_are_unique_and_parse_back() {
        let words: BTreeSet<&str> = EventCause::KNOWN.iter().map(EventCause::as_str).collect();
        assert_eq!(words.len(), EventCause::KNOWN.len());
        for cause in EventCause::KNOWN {
            assert_eq!(EventCause::from(String::from(cause.clone())), *cause);
            assert!(cause.as_str().chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{cause}");
        }
        assert_eq!(EventCause::from("whim".to_string()).as_str(), "whim");
    }

    #[test]
    fn unknown_kind_name_is_preserved() {
        let kind = EventKind::from("gpu-melted".to_string());
        assert_eq!((kind.as_str(), kind.severity()), ("gpu-melted", Severity::Warning));
    }

    #[test]
    fn untrusted_evidence_is_cut_and_escaped() {
        let event = Happening::new(EventKind::ForeignProcess, "\x1b[2J".to_string() + &"x".repeat(9999));
        assert!(
            event.evidence.len() == LONGEST && event.evidence.starts_with("\\u{1b}[2J"),
            "{}",
            event.evidence
        );
    }

    #[test]
    fn actor_displays_user_process_and_command() {
        let actor = Actor::of_user(7, Some("ann\x1b")).by(HostPid::new(9), "tranche\n");
        assert_eq!(actor.to_string(), "ann\\u{1b} (uid 7), process 9 (tranche\\n)");
        assert_eq!(Actor::of_user(8, None).to_string(), "uid 8");
    }

    #[test]
    fn severity_parses_back() {
        for severity in [Severity::Info, Severity::Warning, Severity::Error] {
            assert_eq!(severity.as_str().parse(), Ok(severity));
        }
        assert!("loud".parse::<Severity>().is_err());
    }
}
