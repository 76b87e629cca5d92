//! Options of `tranche submit` for services.

use std::time::Duration;

use clap::Args;
use tranche_domain::jobs::HealthTarget;

use super::quantity;

/// Service, and the check of its health.
#[derive(Args, Clone, Debug)]
pub struct ServiceArgs {
    /// Service: started again whenever it ends, never preempted, and before training on its GPU
    #[arg(long, conflicts_with_all = ["interactive", "parallelism", "completions", "retries"])]
    pub serve: bool,
    /// Port at 127.0.0.1 that has to accept connections, or to answer with a path; else a restart follows
    #[arg(long, value_name = "PORT[/PATH]", requires = "serve")]
    pub health: Option<HealthTarget>,
    /// Time between two checks of health, 1s to 1h; three failures in a row end it [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = quantity::time, requires = "health")]
    pub health_interval: Option<Duration>,
    /// Time from the start within which the first check has to pass, up to 24h [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = quantity::time, requires = "health")]
    pub health_start: Option<Duration>,
}
