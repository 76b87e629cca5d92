//! Submissions of jobs: domain to wire and back.

use std::num::NonZeroU32;
use std::time::Duration;

use tranche_domain::compute::Latency;
use tranche_domain::jobs::{
    BadContainer, ContainerSpec, Cpus, HostLimits, JobKind, JobSpec, JobTerms, LaunchSpec, MemberPart,
    ServiceSpec, Size, Submission, TerminationPolicy, time_limit,
};
use tranche_domain::request::Share;
use tranche_domain::units::{Bytes, Permille};

use super::{container, project::millis};
use crate::bad_message::BadMessage;
use crate::v1;

/// Upper bound on memory, a pebibyte: more than any machine has, and far below overflow.
const MOST_MEMORY: Bytes = Bytes::mib(1 << 30);

impl TryFrom<v1::SubmitJobRequest> for Submission {
    type Error = BadMessage;

    fn try_from(wire: v1::SubmitJobRequest) -> Result<Self, BadMessage> {
        let parallelism = NonZeroU32::new(wire.parallelism).unwrap_or(NonZeroU32::MIN);
        let share = wire.share.map(|share| size(share.try_into()?)).transpose()?;
        let compute = wire.compute.map(Permille::try_from).transpose()?;
        let (size, part) = MemberPart::of(share, wire.memory_mib.map(memory).transpose()?, compute)?;
        let service: Option<ServiceSpec> = wire.service.map(TryInto::try_into).transpose()?;
        let kind = match wire.interactive || service.is_some() {
            true => JobKind::Interactive,
            false => JobKind::Training,
        };
        let completions = NonZeroU32::new(wire.completions).unwrap_or(parallelism);
        if service.is_some() && completions.max(parallelism) > NonZeroU32::MIN {
            return Err(BadMessage::ServiceMembers(completions.max(parallelism).get()));
        }
        Ok(Self {
            spec: JobSpec {
                project: wire.project.parse()?,
                name: wire.name.parse()?,
                size,
                part,
                kind,
                preemptible: wire.preemptible || kind == JobKind::Training,
                priority: wire.priority.try_into()?,
                parallelism,
                completions,
                latency: wire.latency_us.map(TryInto::try_into).transpose()?,
                gang: wire.gang,
                service,
            },
            terms: JobTerms {
                max_runtime: wire.max_runtime_ms.map(max_runtime).transpose()?,
                retries: wire.retries,
                farewell: farewell(wire.warning_signal.as_deref(), wire.grace_ms)?,
                host: host(wire.cpus_milli, wire.host_memory_mib)?,
            },
            launch: launch(
                wire.command,
                wire.environment.into_iter().collect(),
                wire.workdir,
                wire.container.map(container::read).transpose()?,
            )?,
            after: wire.after.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
            ticket: wire.ticket.map(|ticket| ticket.parse()).transpose()?,
        })
    }
}

fn size(share: Share) -> Result<Size, BadMessage> {
    match share {
        Share::Fraction(fraction) => Ok(Size::Part(fraction)),
        Share::Whole(count) => Ok(Size::Whole(count)),
        Share::Memory(_) => Err(BadMessage::SizeInBytes),
    }
}

fn memory(mib: u64) -> Result<Bytes, BadMessage> {
    if mib > MOST_MEMORY.whole_mib() { Err(BadMessage::TooMuchMemory(mib)) } else { Ok(Bytes::mib(mib)) }
}

fn host(cpus_milli: Option<u32>, memory_mib: Option<u64>) -> Result<HostLimits, BadMessage> {
    let limits = HostLimits {
        cpus: cpus_milli.map(Cpus::try_from).transpose()?,
        memory: memory_mib.map(memory).transpose()?,
    };
    match limits.memory {
        Some(memory) if memory < HostLimits::LEAST_MEMORY => Err(BadMessage::NoHostMemory),
        _ => Ok(limits),
    }
}

fn max_runtime(millis: u64) -> Result<Duration, BadMessage> {
    time_limit(Duration::from_millis(millis)).map_err(BadMessage::MaxRuntime)
}

fn farewell(warning: Option<&str>, grace_ms: Option<u64>) -> Result<TerminationPolicy, BadMessage> {
    let grace = grace_ms.map_or(TerminationPolicy::DEFAULT.grace, Duration::from_millis);
    if grace > TerminationPolicy::LONGEST_GRACE {
        return Err(BadMessage::Grace(grace));
    }
    Ok(TerminationPolicy { warning: warning.map(str::parse).transpose()?, grace })
}

fn launch(
    command: Vec<String>,
    mut environment: Vec<(String, String)>,
    workdir: String,
    container: Option<ContainerSpec>,
) -> Result<LaunchSpec, BadMessage> {
    let own = command.is_empty() && container.is_some();
    if command.first().is_none_or(String::is_empty) && !own {
        return Err(BadMessage::NoCommand);
    }
    if !workdir.starts_with('/') {
        return Err(BadMessage::Workdir(workdir));
    }
    let zero = |text: &String| text.contains('\0');
    let bad_name = |name: &str| name.is_empty() || name.contains('=');
    let bad_variable = |(name, value): &(String, String)| bad_name(name) || zero(name) || zero(value);
    if command.iter().any(zero) || zero(&workdir) || environment.iter().any(bad_variable) {
        return Err(BadMessage::Unprintable);
    }
    if container.is_some()
        && let Some((name, _)) = environment.iter().find(|(name, _)| name.contains('*'))
    {
        return Err(BadContainer::Variable(name.clone()).into());
    }
    // The wire's map has no order.
    environment.sort();
    Ok(LaunchSpec { command, environment, workdir, container })
}

impl From<Submission> for v1::SubmitJobRequest {
    fn from(submission: Submission) -> Self {
        let Submission { spec, launch, terms, after, ticket } = submission;
        let share = match spec.part {
            Some(part) => part.share().map(Share::Fraction),
            None => Some(spec.size.into()),
        };
        Self {
            project: spec.project.into(),
            name: spec.name.into(),
            share: share.map(Into::into),
            interactive: spec.kind == JobKind::Interactive,
            preemptible: spec.preemptible,
            priority: spec.priority.get().into(),
            parallelism: spec.parallelism.get(),
            completions: spec.completions.get(),
            command: launch.command,
            environment: launch.environment.into_iter().collect(),
            workdir: launch.workdir,
            max_runtime_ms: terms.max_runtime.map(millis),
            retries: terms.retries,
            warning_signal: terms.farewell.warning.map(|warning| warning.to_string()),
            grace_ms: Some(millis(terms.farewell.grace)),
            ticket: ticket.map(Into::into),
            latency_us: spec.latency.map(Latency::micros),
            gang: spec.gang,
            service: spec.service.map(Into::into),
            after: after.into_iter().map(Into::into).collect(),
            memory_mib: spec.part.and_then(|part| part.memory()).map(Bytes::whole_mib),
            compute: spec.part.and_then(|part| part.compute()).map(Permille::get),
            cpus_milli: terms.host.cpus.map(Cpus::milli),
            host_memory_mib: terms.host.memory.map(Bytes::whole_mib),
            container: launch.container.map(container::written),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::compute::Priority;
    use tranche_domain::jobs::{HealthCheck, Warning};

    fn submission() -> Submission {
        Submission {
            spec: JobSpec {
                project: "a".parse().unwrap(),
                name: "j".parse().unwrap(),
                size: Size::Whole(NonZeroU32::MIN),
                part: None,
                kind: JobKind::Training,
                preemptible: true,
                priority: Priority::new(-3),
                parallelism: NonZeroU32::MIN,
                completions: NonZeroU32::new(4).unwrap(),
                latency: Some(Latency::LEAST),
                gang: true,
                service: None,
            },
            launch: LaunchSpec {
                command: vec!["python".into(), "a b".into()],
                environment: vec![("A".into(), "1".into()), ("B".into(), "".into())],
                workdir: "/home".into(),
                container: None,
            },
            terms: JobTerms {
                max_runtime: Some(Duration::from_secs(5)),
                retries: 2,
                farewell: TerminationPolicy { warning: Some(Warning::Usr2), grace: Duration::from_secs(3) },
                host: HostLimits { cpus: "2.5".parse().ok(), memory: Some(Bytes::mib(8192)) },
            },
            after: ["i".parse().unwrap()].into(),
            ticket: Some("1000-0123456789abcdef0123456789abcdef".parse().unwrap()),
        }
    }

    #[test]
    fn a_submission_survives_the_wire() {
        assert_eq!(Submission::try_from(v1::SubmitJobRequest::from(submission())), Ok(submission()));
    }

    #[test]
    fn limit_of_no_runtime_is_refused() {
        let wire = v1::SubmitJobRequest::from(submission());
        for millis in [0, 1, 999, u64::MAX] {
            let limited = v1::SubmitJobRequest { max_runtime_ms: Some(millis), ..wire.clone() };
            let refused = Submission::try_from(limited).unwrap_err();
            assert!(matches!(refused, BadMessage::MaxRuntime(_)), "{millis}: {refused}");
            assert!(refused.to_string().starts_with("--max-runtime: a limit of"), "{refused}");
        }
        let unlimited = v1::SubmitJobRequest { max_runtime_ms: None, ..wire };
        assert_eq!(Submission::try_from(unlimited).unwrap().terms.max_runtime, None);
    }

    #[test]
    fn a_service_survives_the_wire_with_one_member_alone() {
        let health = HealthCheck::new("8000/health".parse().unwrap(), None, None).unwrap();
        for health in [None, Some(health)] {
            let mut service = submission();
            (service.spec.kind, service.spec.completions) = (JobKind::Interactive, NonZeroU32::MIN);
            service.spec.service = Some(ServiceSpec { health });
            let wire = v1::SubmitJobRequest::from(service.clone());
            assert_eq!(
                Submission::try_from(v1::SubmitJobRequest { interactive: false, ..wire.clone() }),
                Ok(service)
            );
            for (parallelism, completions) in [(2, 0), (1, 2)] {
                let several = v1::SubmitJobRequest { parallelism, completions, ..wire.clone() };
                assert_eq!(Submission::try_from(several), Err(BadMessage::ServiceMembers(2)));
            }
        }
    }

    #[test]
    fn memory_and_compute_survive_the_wire() {
        let fraction = Size::Part(500.try_into().unwrap());
        let (memory, compute) = (Some(Bytes::mib(12)), Permille::try_from(300).ok());
        for (share, memory, compute) in
            [(Some(fraction), memory, None), (Some(fraction), None, compute), (None, memory, compute)]
        {
            let (size, part) = MemberPart::of(share, memory, compute).unwrap();
            let submission = Submission { spec: JobSpec { size, part, ..submission().spec }, ..submission() };
            let wire = v1::SubmitJobRequest::from(submission.clone());
            assert_eq!(
                (wire.memory_mib.is_some(), wire.compute.is_some()),
                (memory.is_some(), compute.is_some())
            );
            assert_eq!(Submission::try_from(wire), Ok(submission));
        }
    }

    #[test]
    fn malformed_submission_is_refused_with_a_reason() {
        type Spoil = fn(&mut v1::SubmitJobRequest);
        fn health(wire: &mut v1::SubmitJobRequest, target: &str, interval_ms: Option<u64>) {
            let health = v1::HealthCheck { target: target.into(), interval_ms, start_ms: None };
            wire.service = Some(v1::ServiceSpec { health: Some(health) });
        }
        let cases: [(Spoil, &str); 20] = [
            (|wire| health(wire, "80/a b", None), "no check of health"),
            (|wire| health(wire, "80", Some(1)), "from 1 s to 1 h"),
            (|wire| wire.cpus_milli = Some(9), "from 0.01 to 1000"),
            (|wire| wire.host_memory_mib = Some(0), "--mem"),
            (|wire| wire.host_memory_mib = Some(u64::MAX), "more memory than any machine"),
            (|wire| wire.memory_mib = Some(1 << 31), "more memory than any machine"),
            (|wire| wire.command.clear(), "after --"),
            (|wire| wire.workdir = "here".into(), "absolute path"),
            (|wire| wire.command.push("a\0b".into()), "zero bytes"),
            (|wire| drop(wire.environment.insert("A=B".into(), "".into())), "'='"),
            (|wire| wire.grace_ms = Some(u64::MAX), "at most 3600 s"),
            (|wire| wire.warning_signal = Some("KILL".into()), "USR1"),
            (|wire| wire.share = None, "how much"),
            (|wire| wire.share = Some(Share::Memory(Bytes::mib(5)).into()), "no bytes"),
            (|wire| wire.memory_mib = Some(5), "whole GPUs are given entirely"),
            (|wire| (wire.share, wire.memory_mib) = (None, Some(0)), "smallest is 1 MiB"),
            (|wire| (wire.memory_mib, wire.compute) = (Some(5), Some(0)), "without any compute"),
            (|wire| wire.compute = Some(1001), "more than one whole GPU"),
            (|wire| wire.latency_us = Some(0), "2 ms to 10 s"),
            (|wire| wire.name = "Under_score".into(), "name of a job"),
        ];
        for (spoil, told) in cases {
            let mut wire = v1::SubmitJobRequest::from(submission());
            spoil(&mut wire);
            let refused = Submission::try_from(wire).unwrap_err().to_string();
            assert!(refused.contains(told), "{refused} does not say {told}");
        }
    }

    #[test]
    fn omitted_fields_have_defaults() {
        let mut wire = v1::SubmitJobRequest::from(submission());
        (wire.parallelism, wire.completions, wire.grace_ms) = (3, 0, None);
        let read = Submission::try_from(wire).unwrap();
        assert_eq!(
            (read.spec.completions.get(), read.terms.farewell.grace),
            (3, TerminationPolicy::DEFAULT.grace)
        );
    }
}
