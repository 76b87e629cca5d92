//! Outlook of a pending job: position in the queue, and range of its start by runtimes of ended jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use tranche_domain::jobs::{
    JobId, JobKind, JobView, MemberId, MemberProgress, ProjectName, QuotaScheduler, RuntimeRange,
};

use crate::clock::Now;
use crate::state::ControllerState;

/// Least number of runtimes from which one is expected.
const ENOUGH: usize = 5;

/// Snapshot of what a forecast needs, so that it is computed without the state's lock.
#[derive(Debug)]
pub(crate) struct Outlook {
    id: JobId,
    scheduler: QuotaScheduler,
    /// Members in the way: each job's kind, and its members' times since their start.
    jobs: BTreeMap<JobId, JobInTheWay>,
    /// Runtimes of members that succeeded, ascending.
    runtimes: BTreeMap<(ProjectName, JobKind), Vec<Duration>>,
}

#[derive(Debug)]
struct JobInTheWay {
    key: (ProjectName, JobKind),
    limit: Option<Duration>,
    elapsed: BTreeMap<u32, Duration>,
}

impl Outlook {
    /// The outlook of a job; `None` if it has ended, or no decision was made since it came.
    pub(crate) fn of(state: &ControllerState, id: JobId, now: Now) -> Option<Self> {
        if state.fresh.contains(&id) || !state.scheduler.jobs().contains_key(&id) {
            return None;
        }
        let (mut jobs, mut runtimes) = (BTreeMap::new(), BTreeMap::<_, Vec<Duration>>::new());
        for (id, entry) in &state.entries {
            let key = (entry.spec.project.clone(), entry.spec.kind);
            let ran = entry.members.values().filter_map(|member| member.ran);
            runtimes.entry(key.clone()).or_default().extend(ran);
            if entry.ended_unix_ms.is_none() {
                let started =
                    entry.members.iter().map(|(index, member)| (*index, now.moment().since(member.started)));
                let limit = entry.terms.max_runtime;
                jobs.insert(*id, JobInTheWay { key, limit, elapsed: started.collect() });
            }
        }
        runtimes.values_mut().for_each(|runtimes| runtimes.sort_unstable());
        Some(Self { id, scheduler: state.scheduler.clone(), jobs, runtimes })
    }

    /// Enters position and range in the view of the job.
    pub(crate) fn enter(self, view: &mut JobView) {
        let queue = self.scheduler.queue_position(self.id);
        view.queue_position = queue.map(|queue| queue.position);
        view.queue_length = queue.map(|queue| queue.length);
        let range = self.scheduler.forecast(self.id, |member, progress| self.runtime(member, progress));
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        view.starts_after_ms = range.earliest.map(millis);
        view.starts_within_ms = range.latest.map(millis);
    }

    fn runtime(&self, member: MemberId, progress: MemberProgress) -> RuntimeRange {
        let Some(job) = self.jobs.get(&member.job) else { return RuntimeRange::UNKNOWN };
        let elapsed = match progress {
            MemberProgress::Running => job.elapsed.get(&member.index).copied().unwrap_or_default(),
            MemberProgress::Starting => Duration::ZERO,
        };
        let known = self.runtimes.get(&job.key).map_or(&[][..], Vec::as_slice);
        remaining(known, elapsed, job.limit)
    }
}

/// Remaining runtime after `elapsed`, by the known ones that are longer: their inner eight tenths.
fn remaining(known: &[Duration], elapsed: Duration, limit: Option<Duration>) -> RuntimeRange {
    let longer = &known[known.partition_point(|runtime| *runtime <= elapsed)..];
    let left = limit.map(|limit| limit.saturating_sub(elapsed));
    if longer.len() < ENOUGH {
        return RuntimeRange { least: Duration::ZERO, most: left };
    }
    let tenth = longer.len() / 10;
    let [least, most] = [longer[tenth], longer[longer.len() - 1 - tenth]].map(|runtime| runtime - elapsed);
    let within = |time: Duration| left.map_or(time, |left| time.min(left));
    RuntimeRange { least: within(least), most: Some(within(most)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn remaining_runtime_is_that_of_longer_ones_within_the_limit() {
        let known: Vec<Duration> = (1..=20).map(seconds).collect();
        let range = |least, most| RuntimeRange { least: seconds(least), most: Some(seconds(most)) };
        assert_eq!(remaining(&known, Duration::ZERO, None), range(3, 18));
        assert_eq!(remaining(&known, seconds(10), None), range(2, 9));
        assert_eq!(remaining(&known, seconds(10), Some(seconds(13))), range(2, 3));
        assert_eq!(remaining(&known, seconds(17), None), RuntimeRange::UNKNOWN, "three are longer");
        assert_eq!(remaining(&known, seconds(17), Some(seconds(60))), range(0, 43));
        assert_eq!(remaining(&[], seconds(17), Some(seconds(10))), range(0, 0));
    }
}
