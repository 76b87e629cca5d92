//! Conversions of jobs, their members and states.

use tranche_domain::jobs::{
    ContainerMount, Cpus, ImageName, JobKind, JobState, JobView, MemberView, PublishedPort,
};

use crate::mirror::{enumeration, field, mirror};
use crate::v1;

enumeration! { JobState = v1::JobState, JobState: Pending, Creating, Running, Stopping, Succeeded, Failed, Parked }

field! {
    Cpus = u32: |cpus| cpus.milli(), cpus.try_into()?;
    JobKind = bool: |kind| kind == Self::Interactive, if kind { Self::Interactive } else { Self::Training };
    ImageName = String: |image| image.into(), image.parse()?;
    PublishedPort = String: |port| port.to_string(), port.parse()?;
    ContainerMount = String: |mount| mount.to_string(), mount.parse()?;
}

mirror! {
    JobView = v1::JobView {
        project, name, state, reason, preemptible, priority, parallelism, completions, succeeded, failed, uid,
        submitted_unix_ms, ended_unix_ms, members, command, workdir, url, gang, after, queue_position, queue_length,
        starts_after_ms, starts_within_ms, image, ports, mounts, service, overdue;
        kind: interactive, gpus_of_member: milligpus_of_member, latency: latency_us, memory: memory_bytes,
        compute: compute, cpus: cpus_milli, host_memory: host_memory_bytes
    }

    MemberView = v1::MemberView { index, state, reason, gpus, slice, pid, starts, started_unix_ms, idle_ms, healthy, overdue, last_end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bad_message::BadMessage;
    use tranche_domain::compute::Latency;
    use tranche_domain::id::HostPid;
    use tranche_domain::jobs::{HealthCheck, MilliGpus, ServiceSpec};
    use tranche_domain::units::{Bytes, Permille};

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
            idle_ms: Some(4),
            healthy: Some(true),
            overdue: true,
            last_end: Some("ended by SIGKILL".into()),
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
            memory: Some(Bytes::mib(7)),
            cpus: "2.5".parse().ok(),
            host_memory: Some(Bytes::mib(9)),
            compute: Permille::try_from(200).ok(),
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
            latency: Some(Latency::LEAST),
            gang: true,
            after: vec!["i".parse().unwrap()],
            queue_position: Some(2),
            queue_length: Some(3),
            starts_after_ms: Some(4),
            starts_within_ms: Some(5),
            image: Some("a/b:c".parse().unwrap()),
            ports: vec!["80:8888".parse().unwrap()],
            mounts: vec!["/a:/b:ro".parse().unwrap()],
            service: Some(ServiceSpec { health: HealthCheck::new("80/x".parse().unwrap(), None, None).ok() }),
            overdue: true,
        };
        assert_eq!(JobView::try_from(v1::JobView::from(job.clone())), Ok(job));
    }

    #[test]
    fn unknown_state_is_refused() {
        let wire = v1::JobView { project: "a".into(), name: "j".into(), state: 77, ..Default::default() };
        assert_eq!(JobView::try_from(wire), Err(BadMessage::JobState(77)));
    }
}
