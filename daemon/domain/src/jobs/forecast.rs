//! Forecasts of the start of a pending job, by playing the scheduler's own decisions forward.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::decision::Action;
use super::job::{JobId, MemberId};
use super::project::QueueKey;
use super::scheduler::{Exit, Phase, QuotaScheduler};

/// Largest number of members that end in one forecast.
const MOST_STEPS: u32 = 500;

/// Position of a job among those of its project that have a member to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// Position from 1.
    pub position: u32,
    /// Number of jobs in the queue.
    pub length: u32,
}

/// Range of the time until a job's next member starts, if nothing else is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartRange {
    /// Time if members end as early as expected; `None` if too much has to end before.
    pub earliest: Option<Duration>,
    /// Time if they end as late as expected; `None` if nothing bounds what is in the way.
    pub latest: Option<Duration>,
}

/// Expected runtime of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeRange {
    /// Shortest remaining runtime, or runtime of a member that is not started.
    pub least: Duration,
    /// Longest one, if anything bounds it.
    pub most: Option<Duration>,
}

/// MemberProgress of a member when its runtime is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberProgress {
    /// Started, with a part of its runtime behind it.
    Running,
    /// Not started, or to start over.
    Starting,
}

impl RuntimeRange {
    /// Runtime of which nothing is known.
    pub const UNKNOWN: Self = Self { least: Duration::ZERO, most: None };
}

impl QuotaScheduler {
    /// Position of a pending job in its project's queue.
    pub fn queue_position(&self, id: JobId) -> Option<QueuePosition> {
        let account = self.accounts.get(&self.jobs.get(&id)?.spec.project)?;
        let keys: BTreeSet<&QueueKey> = account.queue.values().flatten().collect();
        let position = keys.iter().position(|key| key.1 == id)?;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Some(QueuePosition { position: count(position + 1), length: count(keys.len()) })
    }

    /// Range of the time until the next member of a pending job starts.
    ///
    /// `runtime` gives the remaining runtime of a member that runs, and the whole one of a member that starts later.
    pub fn forecast(
        &self,
        id: JobId,
        runtime: impl Fn(MemberId, MemberProgress) -> RuntimeRange,
    ) -> StartRange {
        StartRange {
            earliest: self.clone().play(id, |member, progress| Some(runtime(member, progress).least)),
            latest: self.clone().play(id, |member, progress| runtime(member, progress).most),
        }
    }

    /// Plays decisions forward until a member of the job starts; returns the time of that.
    fn play(
        mut self,
        id: JobId,
        runtime: impl Fn(MemberId, MemberProgress) -> Option<Duration>,
    ) -> Option<Duration> {
        // Of ends at one moment those of stopped members come first, whose place the decision before has given away.
        let (mut now, mut ends) = (Duration::ZERO, BTreeSet::new());
        for (member, binding) in &self.bindings {
            let left = match binding.phase {
                Phase::Claimed => continue,
                Phase::Stopping => Some((Duration::ZERO, false)),
                Phase::Running => runtime(*member, MemberProgress::Running).map(|left| (left, true)),
            };
            ends.extend(left.map(|(left, completed)| (left, completed, *member)));
        }
        for _ in 0..MOST_STEPS {
            for action in self.decide() {
                match action {
                    Action::Start { member, .. } | Action::Unpark { member } if member.job == id => {
                        return Some(now);
                    }
                    Action::Unpark { member } => {
                        let left = runtime(member, MemberProgress::Running);
                        ends.extend(left.map(|left| (now.saturating_add(left), true, member)));
                    }
                    Action::Start { member, .. } => {
                        let length = runtime(member, MemberProgress::Starting);
                        ends.extend(length.map(|length| (now.saturating_add(length), true, member)));
                    }
                    Action::Stop { member, .. } | Action::Recall { member, .. } => {
                        ends.retain(|(_, _, other)| *other != member);
                        ends.insert((now, false, member));
                    }
                }
            }
            let (end, completed, member) = ends.pop_first()?;
            now = end.max(now);
            self.leave(member, completed);
        }
        None
    }

    fn leave(&mut self, member: MemberId, completed: bool) {
        if member.job.is_slice() {
            self.drop_user_slice(member.job);
            return;
        }
        let over = self.member_exited(member, if completed { Exit::Completed } else { Exit::Requeued });
        if over {
            let after = |job: &super::job::Job| job.after.contains(&member.job);
            let released: Vec<JobId> =
                self.jobs.iter().filter(|(_, job)| after(job)).map(|(id, _)| *id).collect();
            for id in released {
                let mut after = self.jobs.get(&id).map(|job| job.after.clone()).unwrap_or_default();
                after.remove(&member.job);
                self.set_after(id, after);
            }
        }
    }
}
