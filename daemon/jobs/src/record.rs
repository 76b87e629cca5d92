//! Records of jobs beside the quota scheduler's state.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::jobs::{
    ImageName, JobName, JobSpec, JobTerms, MemberId, ProjectName, PublishedPort, Submission, TicketId,
};

use crate::account::GpuHolder;
use crate::clock::{JobTime, Now};
use crate::runner_protocol::CommandOutcome;

/// User on whose behalf a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOwner {
    /// Uid of the submitter.
    pub uid: u32,
    /// Gid of the submitter at submission.
    pub gid: u32,
}

/// Stored state of a job beside the quota scheduler's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub(crate) spec: JobSpec,
    pub(crate) terms: JobTerms,
    pub(crate) owner: JobOwner,
    /// Time of submission, in milliseconds since the Unix epoch.
    pub(crate) submitted_unix_ms: u64,
    /// The same on the job clock; earlier daemons did not enter it.
    #[serde(default)]
    pub(crate) submitted: Option<JobTime>,
    /// Time at which the last member ended; the quota scheduler then drops the job.
    pub(crate) ended_unix_ms: Option<u64>,
    /// The same on the job clock; for jobs of daemons without that clock, its origin.
    #[serde(default)]
    pub(crate) ended: JobTime,
    /// The submitter's ticket from the job launcher; earlier daemons required none.
    #[serde(default)]
    pub(crate) ticket: Option<TicketId>,
    /// Image of its containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<ImageName>,
    /// Ports that are published for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ports: Vec<PublishedPort>,
    /// Members that were started at least once, by number.
    pub(crate) members: BTreeMap<u32, StoredMember>,
}

/// Record of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredMember {
    /// Number of starts that the quota scheduler decided.
    pub(crate) starts: u32,
    /// Number of failures, which the job's retries bound.
    pub(crate) failures: u32,
    /// Time of the latest start, in milliseconds since the Unix epoch.
    pub(crate) started_unix_ms: u64,
    /// The same on the job clock; for members of daemons without that clock, its origin.
    #[serde(default)]
    pub(crate) started: JobTime,
    /// Reason for the current or latest stop.
    pub(crate) farewell: Option<StopReason>,
    /// Runtime of a member that succeeded; earlier daemons did not enter it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ran: Option<Duration>,
    /// Latest end of its command; earlier daemons did not enter it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_end: Option<String>,
    /// Time at which its device memory lay in host memory, until it is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parked: Option<JobTime>,
    /// Final outcome, once the member is not started again.
    pub(crate) end: Option<MemberEnd>,
}

/// Reason for stopping a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StopReason {
    /// Preempted in favour of this job.
    #[error("preempted for {1} of project {0}")]
    Preempted(ProjectName, JobName),
    /// Suspended by its owner.
    #[error("suspended")]
    Suspended,
    /// Deleted by its owner.
    #[error("deleted")]
    Deleted,
    /// A runtime or idle limit was exceeded.
    #[error("{0}")]
    Overdue(String),
    /// Its GPU is absent.
    #[error("its GPU is not here any more")]
    GpuGone,
    /// The machine was rebooted.
    #[error("the machine was started again")]
    Reboot,
    /// It was parked, and cannot return to its GPUs.
    #[error("parked, and not returned: {0}")]
    NotBack(String),
    /// It was parked for long, and starts over on other GPUs.
    #[error("its own GPUs had no room for an hour, and others have")]
    Elsewhere,
    /// This other member of its gang did not return to its GPUs.
    #[error("member {0} of its gang did not return to its GPUs")]
    MateAway(u32),
    /// This other member of its gang starts over.
    #[error("member {0} of its gang starts over, and all with it")]
    MateLeft(u32),
}

impl StopReason {
    /// Tests if the member may continue later where it was.
    pub(crate) const fn may_continue(&self) -> bool {
        matches!(self, Self::Preempted(..) | Self::Suspended | Self::NotBack(_) | Self::MateAway(_))
    }

    /// Tests if the member is restarted afterwards.
    pub(crate) const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Preempted(..)
                | Self::Suspended
                | Self::GpuGone
                | Self::Reboot
                | Self::NotBack(_)
                | Self::Elsewhere
                | Self::MateAway(_)
                | Self::MateLeft(_)
        )
    }
}

/// Maximum length of a reason in characters, since reasons quote untrusted text.
const LONGEST_REASON: usize = 1000;

/// Final outcome of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberEnd {
    pub(crate) success: bool,
    pub(crate) why: String,
    /// True if a limit of time or idleness ended it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub(crate) overdue: bool,
    /// Details with programs and paths of the owner, for peers with access to the job only.
    #[serde(default)]
    pub(crate) private: bool,
}

impl MemberEnd {
    fn new(success: bool, why: String) -> Self {
        Self { success, why, overdue: false, private: false }
    }

    /// Outcome of a command that failed or could not be started.
    fn bad(outcome: &CommandOutcome) -> Self {
        let private = matches!(outcome, CommandOutcome::NotStarted(_) | CommandOutcome::Unhealthy(_));
        let why = cut(&outcome.to_string());
        Self { success: false, why, overdue: false, private }
    }

    /// The reason without private details.
    pub(crate) fn public(&self) -> &str {
        if self.private { "its command could not be started" } else { &self.why }
    }
}

fn cut(reason: &str) -> String {
    reason.chars().take(LONGEST_REASON).collect()
}

/// Result of one start of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// The command was never executed.
    Never,
    /// The slice or the job runner could not be created.
    Refused(String),
    /// The job launcher refuses this job permanently.
    Barred(String),
    /// The command ended; `told` if it did after a request to stop.
    Ended { outcome: CommandOutcome, told: bool },
}

impl JobRecord {
    /// A job that was submitted, as the quota scheduler queued it.
    pub(crate) fn new(submission: &Submission, spec: JobSpec, owner: JobOwner, now: Now) -> Self {
        let Submission { terms, ticket, launch, .. } = submission;
        let container = launch.container.as_ref();
        Self {
            spec,
            terms: *terms,
            owner,
            submitted_unix_ms: now.unix_ms,
            submitted: Some(now.moment()),
            ended_unix_ms: None,
            ended: JobTime::default(),
            ticket: ticket.clone(),
            image: container.map(|container| container.image.clone()),
            ports: container.map(|container| container.ports.clone()).unwrap_or_default(),
            members: BTreeMap::new(),
        }
    }

    /// Ends the job as failed, for this reason; none of its members was started.
    pub(crate) fn fail_unstarted(&mut self, why: &str, now: Now) {
        self.member_mut(0).end = Some(MemberEnd::new(false, cut(why)));
        (self.ended_unix_ms, self.ended) = (Some(now.unix_ms), now.moment());
    }

    /// The job as a holder of a GPU.
    pub(crate) fn holder(&self, gpu: GpuUuid) -> GpuHolder {
        let project = Some(self.spec.project.clone());
        GpuHolder { project, uid: self.owner.uid, name: self.spec.name.to_string(), gpu }
    }

    pub(crate) fn member_mut(&mut self, index: u32) -> &mut StoredMember {
        self.members.entry(index).or_default()
    }

    pub(crate) fn ended(&self, success: bool) -> u32 {
        let ends = self.members.values().filter_map(|member| member.end.as_ref());
        u32::try_from(ends.filter(|end| end.success == success).count()).unwrap_or(u32::MAX)
    }

    /// Variables that identify a member to its program.
    pub(crate) fn environment_of(&self, member: MemberId) -> Vec<(String, String)> {
        let start = self.members.get(&member.index).map_or(1, |known| known.starts);
        let variables = [
            ("NAME", self.spec.name.to_string()),
            ("PROJECT", self.spec.project.to_string()),
            ("INDEX", member.index.to_string()),
            ("COMPLETIONS", self.spec.completions.to_string()),
            ("START", start.to_string()),
        ];
        variables.into_iter().map(|(name, value)| (format!("TRANCHE_JOB_{name}"), value)).collect()
    }

    /// Name of a member's slice, unique among members; a user's slice may have the same name.
    pub(crate) fn slice(&self, member: MemberId) -> SliceName {
        let name = format!("{}.{}.{}", self.spec.project, self.spec.name, member.index);
        name.parse().expect("names of projects and jobs are short enough, and of a slice name's letters")
    }
}

impl StoredMember {
    /// Evaluates a run: the final outcome, or `None` if the member is restarted. A service has neither success nor a bound
    /// on its restarts.
    pub(crate) fn judge(&mut self, run: Run, retries: u32, is_service: bool) -> Option<MemberEnd> {
        if let Run::Ended { outcome, .. } = &run {
            let why = self.farewell.as_ref().map_or_else(|| outcome.to_string(), ToString::to_string);
            self.last_end = Some(cut(&why));
        }
        let end = match (run, self.farewell.clone()) {
            (Run::Ended { outcome, told: false }, _) if outcome.is_success() && !is_service => {
                Some(MemberEnd::new(true, outcome.to_string()))
            }
            (_, Some(reason)) if reason.is_retryable() => None,
            (_, Some(reason)) => {
                let overdue = matches!(reason, StopReason::Overdue(_));
                Some(MemberEnd { overdue, ..MemberEnd::new(false, reason.to_string()) })
            }
            (Run::Barred(why), None) => Some(MemberEnd { private: true, ..MemberEnd::new(false, cut(&why)) }),
            // A stop request that the daemon did not send: the machine is shutting down.
            (Run::Never | Run::Refused(_) | Run::Ended { told: true, .. }, None) => None,
            (Run::Ended { .. }, None) if is_service => None,
            (Run::Ended { outcome, .. }, None) => self.failed(&outcome, retries),
        };
        self.end.clone_from(&end);
        end
    }

    fn failed(&mut self, outcome: &CommandOutcome, retries: u32) -> Option<MemberEnd> {
        self.failures += 1;
        (self.failures > retries).then(|| MemberEnd::bad(outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(outcome: CommandOutcome, told: bool) -> Run {
        Run::Ended { outcome, told }
    }

    fn leaving(reason: StopReason) -> StoredMember {
        StoredMember { farewell: Some(reason), ..StoredMember::default() }
    }

    #[test]
    fn spec_of_an_earlier_release_has_neither_target_nor_gang() {
        let text = r#"{"project":"a","name":"j","size":{"part":500},"kind":"training","preemptible":true,"priority":0,"parallelism":1,"completions":1}"#;
        let spec: JobSpec = serde_json::from_str(text).unwrap();
        assert_eq!((spec.latency, spec.gang), (None, false));
        assert_eq!(serde_json::to_string(&spec).unwrap(), text, "an earlier release reads it again");
    }

    #[test]
    fn terms_of_an_earlier_release_limit_nothing() {
        let text =
            r#"{"max_runtime":null,"retries":0,"farewell":{"warning":null,"grace":{"secs":10,"nanos":0}}}"#;
        let terms: JobTerms = serde_json::from_str(text).unwrap();
        assert!(terms.host.is_none());
        assert_eq!(serde_json::to_string(&terms).unwrap(), text, "an earlier release reads it again");
        let limited = text.replace("}}}", r#"}},"host":{"cpus":2500,"memory":1048576}}"#);
        let terms: JobTerms = serde_json::from_str(&limited).unwrap();
        assert_eq!(terms.host.cpus.map(|cpus| cpus.milli()), Some(2500));
        assert!(serde_json::from_str::<JobTerms>(&limited.replace("2500", "0")).is_err());
    }

    #[test]
    fn success_before_a_stop_request_is_final() {
        let preempted = StopReason::Preempted("a".parse().unwrap(), "j".parse().unwrap());
        let mut member = leaving(preempted.clone());
        assert!(member.judge(ended(CommandOutcome::Exit(0), false), 0, false).is_some_and(|end| end.success));
        let mut saved = leaving(preempted);
        assert_eq!(
            saved.judge(ended(CommandOutcome::Exit(0), true), 0, false),
            None,
            "it was told, saved where it was, and begins again"
        );
    }

    #[test]
    fn service_restarts_whatever_its_end_until_it_is_deleted_or_overdue() {
        let mut member = StoredMember::default();
        for outcome in [CommandOutcome::Exit(0), CommandOutcome::Exit(1), CommandOutcome::Lost] {
            assert_eq!(member.judge(ended(outcome, false), 0, true), None);
        }
        assert_eq!(member.judge(ended(CommandOutcome::Exit(0), true), 0, true), None);
        let overdue =
            leaving(StopReason::Overdue("idle".into())).judge(ended(CommandOutcome::Exit(0), false), 0, true);
        assert!(overdue.is_some_and(|end| !end.success && end.overdue));
        let deleted = leaving(StopReason::Deleted).judge(ended(CommandOutcome::Exit(0), false), 0, true);
        assert!(deleted.is_some_and(|end| !end.overdue));
    }

    #[test]
    fn failed_member_restarts_within_its_retries() {
        let mut member = StoredMember::default();
        let mut try_once = || member.judge(ended(CommandOutcome::Exit(1), false), 2, false);
        assert_eq!((try_once(), try_once()), (None, None));
        let end = try_once().unwrap();
        assert_eq!((end.success, end.why.as_str()), (false, "exited with status 1"));
    }

    #[test]
    fn overdue_member_fails_with_a_reason() {
        let mut member = leaving(StopReason::Overdue("it ran for 60 s".into()));
        let end = member.judge(ended(CommandOutcome::Signal(15), true), 5, false).unwrap();
        assert_eq!((end.success, end.why.as_str()), (false, "it ran for 60 s"));
    }

    #[test]
    fn externally_stopped_member_restarts() {
        assert_eq!(StoredMember::default().judge(ended(CommandOutcome::Signal(15), true), 0, false), None);
        assert_eq!(StoredMember::default().judge(ended(CommandOutcome::Exit(0), true), 0, false), None);
        assert!(
            StoredMember::default()
                .judge(ended(CommandOutcome::Signal(15), false), 0, false)
                .is_some_and(|end| !end.success)
        );
    }

    #[test]
    fn barred_member_fails_with_a_private_reason() {
        let end = StoredMember::default()
            .judge(Run::Barred("the account alice is locked".into()), 5, false)
            .unwrap();
        assert!(!end.success && end.why.contains("locked") && !end.public().contains("alice"), "{end:?}");
    }

    #[test]
    fn member_that_never_ran_restarts() {
        assert_eq!(StoredMember::default().judge(Run::Never, 0, false), None);
        assert_eq!(StoredMember::default().judge(Run::Refused("no room".into()), 0, false), None);
    }
}
