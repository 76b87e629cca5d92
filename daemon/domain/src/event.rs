//! What happened on a node: who did what to which slice or GPU, and what shows it.
//!
//! Events are for people and their tools. Their kinds are words that never change their meaning; what a kind does not
//! say is in the evidence, in a plain sentence.

mod history;
mod throttle;

use alloc::string::{String, ToString};
use core::convert::Infallible;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

pub use history::History;
pub use throttle::{Pass, Throttle};

use crate::id::{GpuUuid, HostPid, SliceName};
use crate::text::{LONGEST_NAME, visible_within};

/// How much an operator has to care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Info,
    /// Somebody did what they should not, or got what they did not want.
    Warning,
    /// Something is broken.
    Error,
}

impl Severity {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// No such severity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSeverity(pub String);

impl fmt::Display for BadSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a severity of an event: those are info, warning and error", self.0)
    }
}

impl core::error::Error for BadSeverity {}

impl FromStr for Severity {
    type Err = BadSeverity;

    fn from_str(text: &str) -> Result<Self, BadSeverity> {
        let all = [Self::Info, Self::Warning, Self::Error];
        all.into_iter().find(|one| one.as_str() == text).ok_or_else(|| BadSeverity(text.to_string()))
    }
}

/// The kinds, each with its word and how much to care.
macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident = $word:literal, $severity:ident;)*) => {
        /// What happened.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum Kind {
            $($(#[$about])* $kind,)*
            /// What another version of Tranche calls so.
            Other(String),
        }

        impl Kind {
            /// All that this version knows.
            pub const KNOWN: &[Self] = &[$(Self::$kind),*];

            /// The word for it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$kind => $word,)*
                    Self::Other(word) => word,
                }
            }

            /// How much to care.
            pub const fn severity(&self) -> Severity {
                match self {
                    $(Self::$kind => Severity::$severity,)*
                    Self::Other(_) => Severity::Warning,
                }
            }

            fn known(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// The daemon began, on an empty node or with what an earlier one left.
    DaemonStarted = "daemon-started", Info;
    /// The daemon was told to stop, and did.
    DaemonStopped = "daemon-stopped", Info;
    /// A slice was made.
    SliceCreated = "slice-created", Info;
    /// A slice of an earlier daemon goes on.
    SliceTakenOver = "slice-taken-over", Info;
    /// A slice has another size, limit or priority.
    SliceResized = "slice-resized", Info;
    /// A slice's launches are held.
    SliceFrozen = "slice-frozen", Info;
    /// They are no more.
    SliceThawed = "slice-thawed", Info;
    /// A slice is for another pod's container than before, or for nobody's in particular.
    SliceLabelled = "slice-labelled", Info;
    /// A slice is gone.
    SliceDeleted = "slice-deleted", Info;
    /// A request was refused.
    Refused = "refused", Warning;
    /// A slice holds more than its cap.
    OverCap = "over-cap", Warning;
    /// It does no more.
    WithinCap = "within-cap", Info;
    /// A process was killed by the daemon.
    Killed = "killed", Warning;
    /// The driver reports a fault, or a GPU takes no slices any more.
    GpuFault = "gpu-fault", Error;
    /// That is over.
    GpuRecovered = "gpu-recovered", Info;
    /// A program brought about what the driver reports; nothing is wrong with the GPU.
    ProgramFault = "program-fault", Info;
    /// A GPU takes no new slices, because an operator said so.
    GpuCordoned = "gpu-cordoned", Info;
    /// It does again.
    GpuUncordoned = "gpu-uncordoned", Info;
    /// The configuration was read again.
    ConfigurationReloaded = "configuration-reloaded", Info;
    /// An operator had it forgotten what contexts were seen and measured to take.
    ReservesForgotten = "reserves-forgotten", Info;
    /// A project was made, or has other terms.
    ProjectChanged = "project-changed", Info;
    /// A project is gone.
    ProjectDeleted = "project-deleted", Info;
    /// A job was submitted.
    JobSubmitted = "job-submitted", Info;
    /// A job is to pause.
    JobSuspended = "job-suspended", Info;
    /// It is to go on.
    JobResumed = "job-resumed", Info;
    /// A job is gone.
    JobDeleted = "job-deleted", Info;
    /// Nobody is left on a GPU that an operator drained.
    GpuDrained = "gpu-drained", Info;
    /// A process that is in no slice uses a GPU that slices are on.
    ForeignProcess = "foreign-process", Warning;
    /// A process holds more memory than it is charged for.
    UnderReported = "under-reported", Warning;
    /// A process used a GPU while its slice was not to.
    GateBypassed = "gate-bypassed", Warning;
    /// A slice keeps a GPU from others, and none of its processes computes there.
    GpuHeldIdle = "gpu-held-idle", Warning;
    /// What a slice's processes say of themselves is not what the library in them writes.
    UsageTampered = "usage-tampered", Warning;
    /// A process that belongs to a slice uses its GPU without the library that keeps it to the slice.
    UnshimmedProcess = "unshimmed-process", Warning;
    /// What was found is so no more.
    Cleared = "cleared", Info;
    /// A member of a job was started.
    JobStarted = "job-started", Info;
    /// A member of a job has to leave its place to another.
    JobPreempted = "job-preempted", Info;
    /// A member of a job has run, or been idle, for longer than it may.
    JobOverdue = "job-overdue", Warning;
    /// A member of a job came to a good end.
    JobSucceeded = "job-succeeded", Info;
    /// A member of a job ended in another way.
    JobFailed = "job-failed", Warning;
    /// The state of an earlier daemon could not be read; the evidence says what was used instead.
    StateUnreadable = "state-unreadable", Error;
    /// Events could not be written to the disk; what was not is known to this daemon alone.
    HistoryIncomplete = "history-incomplete", Warning;
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<String> for Kind {
    fn from(word: String) -> Self {
        Self::known(&word).unwrap_or(Self::Other(word))
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.as_str().to_string()
    }
}

impl FromStr for Kind {
    type Err = Infallible;

    fn from_str(word: &str) -> Result<Self, Infallible> {
        Ok(word.to_string().into())
    }
}

/// The longest evidence, in characters: some of it may be a stranger's words.
const LONGEST: usize = 400;

/// The user and the process that had something done, as the kernel says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The user.
    pub uid: u32,
    /// The user's name, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The process, where one asked for it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<HostPid>,
    /// The kernel's short name of what it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Actor {
    /// A user on whose behalf the daemon acts.
    pub fn of_user(uid: u32, user: Option<&str>) -> Self {
        let user = user.map(|user| visible_within(user, LONGEST_NAME));
        Self { uid, user, pid: None, command: None }
    }

    /// A process of that user, and what it runs.
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

/// Something that happened, not yet entered in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// What.
    pub kind: Kind,
    /// To which slice, or in which.
    pub slice: Option<SliceName>,
    /// To which GPU, or on which.
    pub gpu: Option<GpuUuid>,
    /// By or to which process.
    pub pid: Option<HostPid>,
    /// At whose request.
    pub actor: Option<Actor>,
    /// What shows it, in a sentence.
    pub evidence: String,
}

impl Happening {
    /// This, shown by that. What does not show as itself is escaped in the evidence, and what is too long is cut.
    pub fn new(kind: Kind, evidence: impl fmt::Display) -> Self {
        let evidence = visible_within(&evidence.to_string(), LONGEST);
        Self { kind, slice: None, gpu: None, pid: None, actor: None, evidence }
    }

    /// To or in this slice.
    #[must_use]
    pub fn of(self, slice: &SliceName) -> Self {
        Self { slice: Some(slice.clone()), ..self }
    }

    /// To or on this GPU.
    #[must_use]
    pub fn on(self, gpu: GpuUuid) -> Self {
        Self { gpu: Some(gpu), ..self }
    }

    /// At the request of this user and process.
    #[must_use]
    pub fn asked_by(self, actor: Actor) -> Self {
        Self { actor: Some(actor), ..self }
    }

    /// By or to this process.
    #[must_use]
    pub fn by(self, pid: HostPid) -> Self {
        Self { pid: Some(pid), ..self }
    }
}

/// Something that happened, in its place in the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number: later events have higher ones.
    pub seq: u64,
    /// When, in milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// How much to care.
    pub severity: Severity,
    /// What.
    pub kind: Kind,
    /// To which slice, or in which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<SliceName>,
    /// To which GPU, or on which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUuid>,
    /// By or to which process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<HostPid>,
    /// At whose request, where a user's process asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// What shows it, in a sentence.
    pub evidence: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_has_a_word_of_its_own_that_reads_back() {
        let words: BTreeSet<&str> = Kind::KNOWN.iter().map(Kind::as_str).collect();
        assert_eq!(words.len(), Kind::KNOWN.len());
        for kind in Kind::KNOWN {
            assert_eq!(Kind::from(String::from(kind.clone())), *kind);
            assert!(kind.as_str().chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{kind}");
        }
    }

    #[test]
    fn the_word_of_another_version_is_kept() {
        let kind = Kind::from("gpu-melted".to_string());
        assert_eq!((kind.as_str(), kind.severity()), ("gpu-melted", Severity::Warning));
    }

    #[test]
    fn a_strangers_words_are_cut_and_cleaned() {
        let event = Happening::new(Kind::ForeignProcess, "\x1b[2J".to_string() + &"x".repeat(9999));
        assert!(
            event.evidence.len() == LONGEST && event.evidence.starts_with("\\u{1b}[2J"),
            "{}",
            event.evidence
        );
    }

    #[test]
    fn actor_is_told_in_words() {
        let actor = Actor::of_user(7, Some("ann\x1b")).by(HostPid::new(9), "tranche\n");
        assert_eq!(actor.to_string(), "ann\\u{1b} (uid 7), process 9 (tranche\\n)");
        assert_eq!(Actor::of_user(8, None).to_string(), "uid 8");
    }

    #[test]
    fn a_severity_reads_back() {
        for severity in [Severity::Info, Severity::Warning, Severity::Error] {
            assert_eq!(severity.as_str().parse(), Ok(severity));
        }
        assert!("loud".parse::<Severity>().is_err());
    }
}
