//! GPU time and work of tenants, as the law of time records them.

use crate::{MS, S};

/// The grain in which the law's log is kept.
const BUCKET: u64 = MS;

/// Measured GPU time and work of each tenant, and the costs of scheduling.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Length of the game in nanoseconds.
    pub length: u64,
    ran: Vec<Vec<u64>>,
    work: Vec<Vec<u64>>,
    /// Start and duration of each tenant's rounds in nanoseconds, from first launch to end of wait.
    pub rounds: Vec<Vec<(u64, u64)>>,
    /// The longest kernel of each tenant, in nanoseconds.
    pub longest: Vec<u64>,
    /// Number of times the daemon woke.
    pub looks: u64,
    /// Number of leases that the daemon wrote.
    pub leases: u64,
    /// Number of kernels that ended.
    pub kernels: u64,
}

impl Report {
    pub(crate) fn new(tenants: usize, length: u64) -> Self {
        let buckets = vec![0; usize::try_from(length / BUCKET).expect("games are short") + 1];
        Self {
            length,
            ran: vec![buckets.clone(); tenants],
            work: vec![buckets; tenants],
            rounds: vec![Vec::new(); tenants],
            longest: vec![0; tenants],
            ..Self::default()
        }
    }

    pub(crate) fn add_ran(&mut self, tenant: usize, mut from: u64, to: u64) {
        while from < to {
            let end = (from / BUCKET + 1) * BUCKET;
            let end = end.min(to);
            self.ran[tenant][(from / BUCKET) as usize] += end - from;
            from = end;
        }
    }

    pub(crate) fn add_work(&mut self, tenant: usize, at: u64, solo: u64) {
        self.work[tenant][(at / BUCKET) as usize] += solo;
        self.longest[tenant] = self.longest[tenant].max(solo);
        self.kernels += 1;
    }

    /// GPU time that a tenant had from one moment to another, in nanoseconds.
    pub fn ran(&self, tenant: usize, from: u64, to: u64) -> u64 {
        self.ran[tenant][(from / BUCKET) as usize..(to / BUCKET) as usize].iter().sum()
    }

    /// GPU time that all had.
    pub fn ran_by_all(&self, from: u64, to: u64) -> u64 {
        (0..self.ran.len()).map(|tenant| self.ran(tenant, from, to)).sum()
    }

    /// Windows of a second after the first.
    pub fn windows(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        (1..self.length / S).map(|window| (window * S, (window + 1) * S))
    }

    /// The most that a tenant had in any second, whenever that began.
    pub fn most_in_a_second(&self, tenant: usize) -> u64 {
        let second = (S / BUCKET) as usize;
        self.ran[tenant].windows(second).map(|window| window.iter().sum()).max().unwrap_or(0)
    }

    /// Longest time without any tenant on the GPU, in nanoseconds. Whole idle milliseconds count, and the two
    /// at the ends, which may be idle in part.
    pub fn longest_idle(&self, from: u64, to: u64) -> u64 {
        longest_run(from, to, |bucket| self.ran.iter().all(|ran| ran[bucket] == 0))
    }

    /// The longest time in which a tenant did not have the GPU, as for [`Self::longest_idle`].
    pub fn longest_pause(&self, tenant: usize, from: u64, to: u64) -> u64 {
        longest_run(from, to, |bucket| self.ran[tenant][bucket] == 0)
    }

    /// The time that what a tenant finished would have taken alone.
    pub fn finished(&self, tenant: usize, from: u64, to: u64) -> u64 {
        self.work[tenant][(from / BUCKET) as usize..(to / BUCKET) as usize].iter().sum()
    }

    /// The part of the time that a tenant had the GPU, in percent of the game after its first second.
    pub fn percent(&self, tenant: usize) -> f64 {
        100.0 * self.ran(tenant, S, self.length) as f64 / (self.length - S) as f64
    }

    /// The part of the time that some tenant had the GPU, in percent.
    pub fn busy(&self) -> f64 {
        (0..self.ran.len()).map(|tenant| self.percent(tenant)).sum()
    }

    /// Work finished by all tenants, as time alone on the GPU in percent of the game.
    pub fn throughput(&self) -> f64 {
        let done: u64 = (0..self.work.len()).map(|tenant| self.finished(tenant, S, self.length)).sum();
        100.0 * done as f64 / (self.length - S) as f64
    }

    /// Errors of the tenants' parts of what ran against `promised`, in percentage points: mean and worst.
    /// Windows are one second long, and the first second does not count.
    pub fn errors(&self, promised: &[f64]) -> (f64, f64) {
        self.errors_over(promised, S)
    }

    /// The same over windows of another length.
    pub fn errors_over(&self, promised: &[f64], window: u64) -> (f64, f64) {
        let mut all = Vec::new();
        for from in (S..).step_by(window as usize).take_while(|from| from + window <= self.length) {
            let ran: Vec<u64> =
                (0..promised.len()).map(|tenant| self.ran(tenant, from, from + window)).collect();
            let sum: u64 = ran.iter().sum();
            let parts = ran.iter().zip(promised);
            all.extend(parts.map(|(ran, promised)| (100.0 * *ran as f64 / sum as f64 - promised).abs()));
        }
        let worst = all.iter().copied().fold(0.0, f64::max);
        (all.iter().sum::<f64>() / all.len() as f64, worst)
    }

    /// Duration of the slowest in a hundred rounds of a tenant, in nanoseconds. Rounds that began in the
    /// first second do not count.
    ///
    /// # Panics
    /// If there is no such round.
    pub fn p99(&self, tenant: usize) -> u64 {
        let begun_late = self.rounds[tenant].iter().filter(|(at, _)| *at >= S);
        let mut rounds: Vec<u64> = begun_late.map(|(_, took)| *took).collect();
        rounds.sort_unstable();
        rounds[rounds.len() * 99 / 100]
    }

    /// First moment from which a tenant had the GPU again, in nanoseconds, rounded down to 1 ms.
    pub fn runs_from(&self, tenant: usize, from: u64) -> Option<u64> {
        let first = (from / BUCKET) as usize;
        let bucket = self.ran[tenant][first..].iter().position(|ran| *ran > 0)?;
        Some((first + bucket) as u64 * BUCKET)
    }
}

fn longest_run(from: u64, to: u64, is_empty: impl Fn(usize) -> bool) -> u64 {
    let (mut run, mut longest) = (0, 0);
    for bucket in (from / BUCKET) as usize..(to / BUCKET) as usize {
        run = if is_empty(bucket) { run + BUCKET } else { 0 };
        longest = longest.max(run);
    }
    if longest == 0 { 0 } else { longest + 2 * BUCKET }
}
