//! Submissions by the arguments of `tranche submit`.

use std::path::{Path, PathBuf};

use tranche_domain::jobs::{
    HealthCheck, HealthTarget, HostLimits, JobKind, JobSpec, JobTerms, LaunchSpec, MemberPart, ProjectName,
    ServiceSpec, Size, Submission, TerminationPolicy,
};
use tranche_domain::request::Share;

use super::{container, environment, naming};
use crate::cli::{ServiceArgs, SubmitArgs};
use crate::errors::Failure;

/// The submission of a job to this project.
pub(super) fn submission(args: &SubmitArgs, project: ProjectName) -> Result<Submission, Failure> {
    let kind = if args.interactive || args.service.serve { JobKind::Interactive } else { JobKind::Training };
    let (size, part) = MemberPart::of(args.share.map(size).transpose()?, args.memory, args.compute)
        .map_err(tranche_rpc::BadMessage::from)?;
    let spec = JobSpec {
        project,
        // Without a name it is generated from the command.
        name: args.name.clone().unwrap_or_else(naming::fallback),
        size,
        part,
        kind,
        preemptible: args.preemptible || kind == JobKind::Training,
        priority: args.priority,
        parallelism: args.parallelism,
        completions: args.completions.unwrap_or(args.parallelism),
        latency: args.latency,
        gang: args.gang,
        service: service(&args.service)?,
    };
    let terms = JobTerms {
        max_runtime: args.max_runtime,
        retries: args.retries,
        farewell: TerminationPolicy { warning: args.warn, grace: args.grace },
        host: HostLimits { cpus: args.cpus, memory: args.host_memory },
    };
    let container = container::of_job(args)?;
    // A container has the image's environment and folders, and of this shell's what is named.
    let (environment, workdir) = match &container {
        Some(_) => (environment::named(&args.env)?, "/".to_owned()),
        None => (environment::of_job(&args.env, args.clean_env)?, workdir(args.workdir.as_deref())?),
    };
    let launch = LaunchSpec { command: args.command.clone(), environment, workdir, container };
    Ok(Submission { spec, launch, terms, after: args.after.iter().cloned().collect(), ticket: None })
}

/// Service by the options, if any.
fn service(args: &ServiceArgs) -> Result<Option<ServiceSpec>, Failure> {
    let check = |target: &HealthTarget| {
        HealthCheck::new(target.clone(), args.health_interval, args.health_start)
            .map_err(tranche_rpc::BadMessage::from)
    };
    let health = args.health.as_ref().map(check).transpose()?;
    Ok(args.serve.then_some(ServiceSpec { health }))
}

fn size(share: Share) -> Result<Size, Failure> {
    match share {
        Share::Fraction(fraction) => Ok(Size::Part(fraction)),
        Share::Whole(count) => Ok(Size::Whole(count)),
        Share::Memory(_) => Err(tranche_rpc::BadMessage::SizeInBytes.into()),
    }
}

fn workdir(told: Option<&Path>) -> Result<String, Failure> {
    let path = std::path::absolute(told.unwrap_or(Path::new("."))).map_err(Failure::Output)?;
    let path = if told.is_none() { std::env::current_dir().unwrap_or(path) } else { path };
    path.into_os_string().into_string().map_err(|path| {
        Failure::Environment(format!(
            "{} is no UTF-8, and a job's folder has to be",
            PathBuf::from(path).display()
        ))
    })
}
