//! Views of jobs: domain to wire and back.

use tranche_domain::id::{HostPid, SliceName};
use tranche_domain::jobs::{JobKind, JobState, JobView, MemberView, MilliGpus};

use crate::convert::BadMessage;
use crate::v1;

impl From<JobState> for v1::JobState {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Pending => Self::Pending,
            JobState::Creating => Self::Creating,
            JobState::Running => Self::Running,
            JobState::Stopping => Self::Stopping,
            JobState::Succeeded => Self::Succeeded,
            JobState::Failed => Self::Failed,
        }
    }
}

fn state(wire: i32) -> Result<JobState, BadMessage> {
    Ok(match v1::JobState::try_from(wire).map_err(|_| BadMessage::JobState(wire))? {
        v1::JobState::Unspecified | v1::JobState::Pending => JobState::Pending,
        v1::JobState::Creating => JobState::Creating,
        v1::JobState::Running => JobState::Running,
        v1::JobState::Stopping => JobState::Stopping,
        v1::JobState::Succeeded => JobState::Succeeded,
        v1::JobState::Failed => JobState::Failed,
    })
}

impl From<JobView> for v1::JobView {
    fn from(job: JobView) -> Self {
        Self {
            project: job.project.into(),
            name: job.name.into(),
            state: v1::JobState::from(job.state).into(),
            reason: job.reason,
            interactive: job.kind == JobKind::Interactive,
            preemptible: job.preemptible,
            priority: job.priority,
            milligpus_of_member: job.gpus_of_member.get(),
            parallelism: job.parallelism,
            completions: job.completions,
            succeeded: job.succeeded,
            failed: job.failed,
            uid: job.uid,
            submitted_unix_ms: job.submitted_unix_ms,
            ended_unix_ms: job.ended_unix_ms,
            members: job.members.into_iter().map(Into::into).collect(),
            command: job.command,
            workdir: job.workdir,
            url: job.url,
        }
    }
}

impl TryFrom<v1::JobView> for JobView {
    type Error = BadMessage;

    fn try_from(wire: v1::JobView) -> Result<Self, BadMessage> {
        Ok(Self {
            project: wire.project.parse()?,
            name: wire.name.parse()?,
            state: state(wire.state)?,
            reason: wire.reason,
            kind: if wire.interactive { JobKind::Interactive } else { JobKind::Training },
            preemptible: wire.preemptible,
            priority: wire.priority,
            gpus_of_member: MilliGpus::new(wire.milligpus_of_member),
            parallelism: wire.parallelism,
            completions: wire.completions,
            succeeded: wire.succeeded,
            failed: wire.failed,
            uid: wire.uid,
            submitted_unix_ms: wire.submitted_unix_ms,
            ended_unix_ms: wire.ended_unix_ms,
            members: wire.members.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            command: wire.command,
            workdir: wire.workdir,
            url: wire.url,
        })
    }
}

impl From<MemberView> for v1::MemberView {
    fn from(member: MemberView) -> Self {
        Self {
            index: member.index,
            state: v1::JobState::from(member.state).into(),
            reason: member.reason,
            gpus: member.gpus,
            slice: member.slice.map(String::from),
            pid: member.pid.map(HostPid::get),
            starts: member.starts,
            started_unix_ms: member.started_unix_ms,
        }
    }
}

impl TryFrom<v1::MemberView> for MemberView {
    type Error = BadMessage;

    fn try_from(wire: v1::MemberView) -> Result<Self, BadMessage> {
        Ok(Self {
            index: wire.index,
            state: state(wire.state)?,
            reason: wire.reason,
            gpus: wire.gpus,
            slice: wire.slice.map(|name| name.parse::<SliceName>()).transpose()?,
            pid: wire.pid.map(HostPid::new),
            starts: wire.starts,
            started_unix_ms: wire.started_unix_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_survives_the_wire() {
        let member = MemberView {
            index: 2,
            state: JobState::Stopping,
            reason: "preempted".into(),
            gpus: vec![0, 5],
            slice: Some("a.j.2".parse().unwrap()),
            pid: Some(HostPid::new(7)),
            starts: 3,
            started_unix_ms: Some(9),
        };
        let job = JobView {
            project: "a".parse().unwrap(),
            name: "j".parse().unwrap(),
            state: JobState::Failed,
            reason: "exited".into(),
            kind: JobKind::Interactive,
            preemptible: true,
            priority: -4,
            gpus_of_member: MilliGpus::new(300),
            parallelism: 2,
            completions: 4,
            succeeded: 1,
            failed: 3,
            uid: 1000,
            submitted_unix_ms: 11,
            ended_unix_ms: Some(12),
            members: vec![member],
            command: vec!["python".into()],
            workdir: "/".into(),
            url: Some("http://here".into()),
        };
        assert_eq!(JobView::try_from(v1::JobView::from(job.clone())), Ok(job));
    }

    #[test]
    fn unknown_state_is_refused() {
        let wire = v1::JobView { project: "a".into(), name: "j".into(), state: 77, ..Default::default() };
        assert_eq!(JobView::try_from(wire), Err(BadMessage::JobState(77)));
    }
}
