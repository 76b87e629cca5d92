//! Arguments of `tranche notify`.

use clap::{ArgGroup, Args, ValueEnum};
use tranche_domain::jobs::{JobName, ProjectName};

/// `tranche notify`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("receiver").args(["command", "webhook", "mail"]).required(true).multiple(true))]
pub struct NotifyArgs {
    /// Jobs to follow until they have ended [default: all jobs of this user, until interrupted]
    #[arg(value_name = "JOB")]
    pub jobs: Vec<JobName>,
    /// Project of the jobs [default: that of `tranche project set`] [env: TRANCHE_PROJECT]
    #[arg(short = 'p', long, value_name = "PROJECT")]
    pub project: Option<ProjectName>,
    /// Jobs of all users
    #[arg(short = 'A', long, conflicts_with = "jobs")]
    pub all: bool,
    /// Changes that are reported; others are left out
    #[arg(long = "on", value_enum, value_name = "CHANGE", value_delimiter = ',', default_values_t = JobChange::ALL)]
    pub on: Vec<JobChange>,
    /// Shell command; gets the report as JSON on its input, and parts of it in variables TRANCHE_...
    #[arg(long, value_name = "CMD")]
    pub command: Option<String>,
    /// Address to which the report is posted as JSON; `text` is a sentence, as chat services read it
    #[arg(long, value_name = "URL")]
    pub webhook: Option<String>,
    /// Mail address; needs a sendmail program
    #[arg(long, value_name = "ADDRESS")]
    pub mail: Option<String>,
}

/// Kinds of changes that a job goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum JobChange {
    /// A member has started
    Started,
    /// A member has to give back its GPUs
    Preempted,
    /// The job has succeeded or failed
    Ended,
}

impl JobChange {
    /// Each of them, in the order of a job.
    pub const ALL: [Self; 3] = [Self::Started, Self::Preempted, Self::Ended];
}
