//! Reports of job changes: as a sentence, and as JSON.

use serde::Serialize;
use tranche_domain::event::{Event, EventKind};
use tranche_domain::id::SliceName;
use tranche_domain::jobs::{JobName, JobState, JobView, ProjectName};
use tranche_domain::text::visible;

use crate::cli::JobChange;

/// Report of a change of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ChangeReport {
    /// Sentence with all of the report.
    pub(super) text: String,
    /// `started`, `preempted`, `succeeded` or `failed`.
    pub(super) change: &'static str,
    pub(super) project: ProjectName,
    pub(super) job: JobName,
    /// Number of the member, of a job with several, for `started` and `preempted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) member: Option<u32>,
    pub(super) reason: String,
    /// Name of the node.
    pub(super) node: String,
    pub(super) time_unix_ms: u64,
}

/// Project, job and member of an event about a job's slice.
pub(super) fn subject(event: &Event) -> Option<(ProjectName, JobName, u32)> {
    let slice = event.slice.as_ref().map(SliceName::as_str)?;
    let mut parts = slice.split('.');
    let subject = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(subject)
}

/// Change of the job that an event reports. A member that ends changes the job only if it is the last.
pub(super) fn change(event: &Event, job: &JobView) -> Option<JobChange> {
    match event.kind {
        EventKind::JobStarted => Some(JobChange::Started),
        EventKind::JobPreempted => Some(JobChange::Preempted),
        EventKind::JobSucceeded | EventKind::JobFailed if job.state.is_final() => Some(JobChange::Ended),
        _ => None,
    }
}

impl ChangeReport {
    pub(super) fn new(
        change: JobChange,
        job: &JobView,
        member: Option<u32>,
        evidence: &str,
        time_unix_ms: u64,
    ) -> Self {
        let member = member.filter(|_| job.completions > 1 && change != JobChange::Ended);
        let (change, reason) = match change {
            JobChange::Started => ("started", visible(evidence)),
            JobChange::Preempted => ("preempted", visible(evidence)),
            JobChange::Ended if job.state == JobState::Succeeded => ("succeeded", visible(&job.reason)),
            JobChange::Ended => ("failed", visible(&job.reason)),
        };
        let node = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let node = visible(&node.unwrap_or_default());
        let of_member = member.map(|member| format!(", member {member},")).unwrap_or_default();
        let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let verb = if change == "preempted" { "was preempted" } else { change };
        let (project, name) = (&job.project, &job.name);
        let text = format!("job {name} of project {project}{of_member} {verb} on {node}{because}");
        let (project, job) = (project.clone(), name.clone());
        Self { text, change, project, job, member, reason, node, time_unix_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use tranche_domain::event::{EventHistory, Happening};

    fn event(kind: EventKind, slice: &str) -> Event {
        EventHistory::keeping(1).enter(Happening::new(kind, "").of(&slice.parse().unwrap()), 5).clone()
    }

    #[test]
    fn subject_is_read_from_the_slice_of_a_member() {
        let read = |slice| subject(&event(EventKind::JobStarted, slice));
        let (project, job, member) = read("vision.train.12").unwrap();
        assert_eq!((project.as_str(), job.as_str(), member), ("vision", "train", 12));
        for other in ["vision", "vision.train", "vision.train.x", "a.b.1.2"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn job_ends_with_its_last_member() {
        let of = |state, kind| change(&event(kind, "a.b.0"), &JobView { state, ..sample::job("a", "b") });
        assert_eq!(of(JobState::Running, EventKind::JobFailed), None);
        assert_eq!(of(JobState::Failed, EventKind::JobSucceeded), Some(JobChange::Ended));
        assert_eq!(of(JobState::Running, EventKind::JobStarted), Some(JobChange::Started));
        assert_eq!(of(JobState::Running, EventKind::SliceFrozen), None);
    }

    #[test]
    fn report_is_a_sentence_without_control_characters() {
        let job = JobView {
            state: JobState::Failed,
            reason: "exited\nwith\x1b[2J 3".into(),
            ..sample::job("a", "b")
        };
        let report = ChangeReport::new(JobChange::Ended, &job, Some(0), "", 5);
        assert!(report.text.starts_with("job b of project a failed on "), "{}", report.text);
        assert!(!report.text.contains(char::is_control), "{:?}", report.text);
        let many = JobView { completions: 3, ..job };
        let report = ChangeReport::new(JobChange::Preempted, &many, Some(2), "for c", 5);
        assert!(report.text.contains("job b of project a, member 2, was preempted on "), "{}", report.text);
        assert!(report.text.ends_with(": for c"));
    }
}
