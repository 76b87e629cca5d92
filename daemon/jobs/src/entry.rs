//! What is known of a job beside what the board knows.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tranche_domain::id::SliceName;
use tranche_domain::jobs::{JobName, JobSpec, MemberId, ProjectName, Submission, Terms, TicketId};

use crate::clock::Moment;
use crate::flock::Outcome;

/// Whose a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// Their group when they submitted it.
    pub gid: u32,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) spec: JobSpec,
    pub(crate) terms: Terms,
    pub(crate) owner: Owner,
    /// In milliseconds since the Unix epoch.
    pub(crate) submitted_unix_ms: u64,
    /// When its last member ended; then the board knows it no more.
    pub(crate) ended_unix_ms: Option<u64>,
    /// The same by the desk's clock. An earlier daemon had none: then it is when that began.
    #[serde(default)]
    pub(crate) ended: Moment,
    /// The submitter's word to the job launcher; an earlier daemon asked for none.
    #[serde(default)]
    pub(crate) ticket: Option<TicketId>,
    /// Members that were started, by number.
    pub(crate) members: BTreeMap<u32, Member>,
}

/// A member that was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// How often.
    pub(crate) starts: u32,
    /// How often it failed.
    pub(crate) failures: u32,
    /// When it was started last.
    pub(crate) started_unix_ms: u64,
    /// The same by the desk's clock. An earlier daemon had none: then it is when that began.
    #[serde(default)]
    pub(crate) started: Moment,
    /// Why it is to leave, or had to the last time.
    pub(crate) farewell: Option<Reason>,
    /// How it ended, if it is not started again.
    pub(crate) end: Option<End>,
}

/// Why a member is told to leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reason {
    /// Another job needs its place.
    Preempted(ProjectName, JobName),
    /// Its owner suspended it.
    Suspended,
    /// Its owner deleted it.
    Deleted,
    /// It ran, or was idle, for longer than it may.
    Overdue(String),
    /// Its GPU is not here any more.
    GpuGone,
    /// The machine was started again.
    Reboot,
}

impl Reason {
    /// Whether it may begin again.
    pub(crate) const fn is_for_now(&self) -> bool {
        matches!(self, Self::Preempted(..) | Self::Suspended | Self::GpuGone | Self::Reboot)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preempted(project, name) => write!(f, "preempted for {name} of project {project}"),
            Self::Suspended => f.write_str("suspended"),
            Self::Deleted => f.write_str("deleted"),
            Self::Overdue(why) => f.write_str(why),
            Self::GpuGone => f.write_str("its GPU is not here any more"),
            Self::Reboot => f.write_str("the machine was started again"),
        }
    }
}

/// Reasons are no longer than this, in letters: what they quote may be.
const LONGEST_REASON: usize = 1000;

/// How a member's last run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) success: bool,
    pub(crate) why: String,
    /// It names what is its owner's, programs and folders, and is for those who may see that.
    #[serde(default)]
    pub(crate) private: bool,
}

impl End {
    fn new(success: bool, why: String) -> Self {
        Self { success, why, private: false }
    }

    /// Of a command that could not be started, or ended badly.
    fn bad(outcome: &Outcome) -> Self {
        let private = matches!(outcome, Outcome::NotStarted(_));
        let why = cut(&outcome.to_string());
        Self { success: false, why, private }
    }

    /// Why, for anybody.
    pub(crate) fn public(&self) -> &str {
        if self.private { "its command could not be started" } else { &self.why }
    }
}

fn cut(reason: &str) -> String {
    reason.chars().take(LONGEST_REASON).collect()
}

/// What came of one start of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// The command never began.
    Never,
    /// Not even its slice could be made, or its shepherd started.
    Refused(String),
    /// The job launcher refuses to run it, now and later.
    Barred(String),
    /// It ended; `told` if only after it was told to.
    Ended { outcome: Outcome, told: bool },
}

impl Entry {
    pub(crate) fn new(submission: &Submission, owner: Owner, now_unix_ms: u64) -> Self {
        let Submission { spec, terms, ticket, .. } = submission;
        Self {
            spec: spec.clone(),
            terms: *terms,
            owner,
            submitted_unix_ms: now_unix_ms,
            ended_unix_ms: None,
            ended: Moment::default(),
            ticket: ticket.clone(),
            members: BTreeMap::new(),
        }
    }

    pub(crate) fn member_mut(&mut self, index: u32) -> &mut Member {
        self.members.entry(index).or_default()
    }

    pub(crate) fn ended(&self, success: bool) -> u32 {
        let ends = self.members.values().filter_map(|member| member.end.as_ref());
        u32::try_from(ends.filter(|end| end.success == success).count()).unwrap_or(u32::MAX)
    }

    /// The slice of a member: no two have the same, and none that a person made unless it looks alike.
    pub(crate) fn slice(&self, member: MemberId) -> SliceName {
        let name = format!("{}.{}.{}", self.spec.project, self.spec.name, member.index);
        name.parse().expect("names of projects and jobs are short enough, and of a slice name's letters")
    }
}

impl Member {
    /// What is to become of it after a run: whether it begins again, or its end.
    pub(crate) fn judge(&mut self, run: Run, retries: u32) -> Option<End> {
        let end = match (run, self.farewell.clone()) {
            (Run::Ended { outcome, told: false }, _) if outcome.is_success() => {
                Some(End::new(true, outcome.to_string()))
            }
            (_, Some(reason)) if reason.is_for_now() => None,
            (_, Some(reason)) => Some(End::new(false, reason.to_string())),
            (Run::Barred(why), None) => Some(End { private: true, ..End::new(false, cut(&why)) }),
            // Somebody other than the daemon told its shepherd: the machine is going down.
            (Run::Never | Run::Refused(_) | Run::Ended { told: true, .. }, None) => None,
            (Run::Ended { outcome, .. }, None) => self.failed(&outcome, retries),
        };
        self.end.clone_from(&end);
        end
    }

    fn failed(&mut self, outcome: &Outcome, retries: u32) -> Option<End> {
        self.failures += 1;
        (self.failures > retries).then(|| End::bad(outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(outcome: Outcome, told: bool) -> Run {
        Run::Ended { outcome, told }
    }

    fn leaving(reason: Reason) -> Member {
        Member { farewell: Some(reason), ..Member::default() }
    }

    #[test]
    fn who_came_to_a_good_end_before_being_told_is_done_whatever_was_meant_for_it() {
        let preempted = Reason::Preempted("a".parse().unwrap(), "j".parse().unwrap());
        let mut member = leaving(preempted.clone());
        assert!(member.judge(ended(Outcome::Exit(0), false), 0).is_some_and(|end| end.success));
        let mut saved = leaving(preempted);
        assert_eq!(
            saved.judge(ended(Outcome::Exit(0), true), 0),
            None,
            "it was told, saved where it was, and begins again"
        );
    }

    #[test]
    fn who_fails_is_tried_as_often_as_was_asked_for() {
        let mut member = Member::default();
        let mut try_once = || member.judge(ended(Outcome::Exit(1), false), 2);
        assert_eq!((try_once(), try_once()), (None, None));
        let end = try_once().unwrap();
        assert_eq!((end.success, end.why.as_str()), (false, "exited with status 1"));
    }

    #[test]
    fn who_ran_too_long_has_failed_and_the_reason_says_why() {
        let mut member = leaving(Reason::Overdue("it ran for 60 s".into()));
        let end = member.judge(ended(Outcome::Signal(15), true), 5).unwrap();
        assert_eq!((end.success, end.why.as_str()), (false, "it ran for 60 s"));
    }

    #[test]
    fn who_is_told_to_leave_by_another_than_the_daemon_begins_again() {
        assert_eq!(Member::default().judge(ended(Outcome::Signal(15), true), 0), None);
        assert_eq!(Member::default().judge(ended(Outcome::Exit(0), true), 0), None);
        assert!(
            Member::default().judge(ended(Outcome::Signal(15), false), 0).is_some_and(|end| !end.success)
        );
    }

    #[test]
    fn a_member_that_the_launcher_bars_fails_with_a_private_reason() {
        let end = Member::default().judge(Run::Barred("the account alice is locked".into()), 5).unwrap();
        assert!(!end.success && end.why.contains("locked") && !end.public().contains("alice"), "{end:?}");
    }

    #[test]
    fn who_never_began_begins_again() {
        assert_eq!(Member::default().judge(Run::Never, 0), None);
        assert_eq!(Member::default().judge(Run::Refused("no room".into()), 0), None);
    }
}
