//! Stop of a member that has to leave its GPUs.

use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::{Instant, timeout_at};
use tranche_domain::slice::ProcessId;
use tranche_shm::crash::point;

use crate::controller::JobController;
use crate::record::JobRecord;
use crate::runner_protocol::signals;
use crate::site::{JobCondition, JobSite, JobSlice};

/// Time beyond the termination policy after which a runner is killed with its slice.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time before a later signal at which its preparation begins.
const MOST_LEAD: Duration = Duration::from_secs(5);

/// Time before a later signal at which its preparation begins: a quarter of the grace, 5 s at most.
fn lead(grace: Duration) -> Duration {
    (grace / 4).min(MOST_LEAD)
}

/// Stops the command of a member by its runner; kills the runner with its slice if that does not end.
pub(crate) async fn stop_runner<S: JobSite>(
    controller: &JobController<S>,
    entry: &JobRecord,
    slice: &JobSlice,
    shepherd: ProcessId,
) {
    let policy = entry.terms.farewell;
    let mut begun = Instant::now();
    for (after, signal) in signals(policy) {
        let due = begun + after.saturating_sub(lead(policy.grace));
        if !after.is_zero() && timeout_at(due, controller.site.ended(shepherd)).await.is_ok() {
            return;
        }
        controller.site.prepare_signal(slice, signal).await;
        if after.is_zero() {
            controller.site.signal(shepherd, Signal::SIGTERM);
            point("jobs: told");
            begun = Instant::now();
        }
    }
    let patience = policy.grace * 2 + PATIENCE;
    if timeout_at(begun + patience, controller.site.ended(shepherd)).await.is_err() {
        let message = format!("job {} did not end as it was told to, and is killed", slice.name);
        let condition = JobCondition::Killed(slice.name.clone());
        controller.site.set_condition(condition.clone(), message);
        controller.site.close(slice).await;
        controller.site.ended(shepherd).await;
        controller.site.clear_condition(condition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::jobs::{TerminationPolicy, Warning};

    #[test]
    fn each_signal_of_the_runner_is_prepared() {
        let grace = Duration::from_secs(10);
        let plain = TerminationPolicy { warning: None, grace };
        assert_eq!(signals(plain), [(Duration::ZERO, Signal::SIGTERM), (grace, Signal::SIGKILL)]);
        let warned = TerminationPolicy { warning: Some(Warning::Usr1), grace };
        let expected =
            [(Duration::ZERO, Signal::SIGUSR1), (grace, Signal::SIGTERM), (grace * 2, Signal::SIGKILL)];
        assert_eq!(signals(warned), expected);
        assert_eq!(lead(grace), Duration::from_millis(2500));
        assert_eq!(lead(Duration::from_hours(1)), MOST_LEAD);
    }
}
