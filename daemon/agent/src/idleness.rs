//! Time for which slices have not used their GPUs.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tranche_domain::id::SliceName;

/// Least time without use that counts as idle; samples are a second apart.
const LEAST: Duration = Duration::from_secs(2);

/// Idleness of all slices, from samples of their GPU time.
#[derive(Debug)]
pub(crate) struct Idleness {
    state: Mutex<IdlenessState>,
}

#[derive(Debug)]
struct IdlenessState {
    /// Time without use after which a slice counts as idle.
    after: Duration,
    /// Time of the last sample. Idleness is known up to then, however long the driver delays the next one.
    sampled: Option<Instant>,
    slices: BTreeMap<SliceName, LastUse>,
}

/// Last known use of the GPU by a slice.
#[derive(Clone, Copy, Debug)]
struct LastUse {
    /// Time of creation; a later slice of the same name has another.
    created_unix_ms: u64,
    /// GPU time that it had used by then.
    used: Duration,
    at: Instant,
    /// True once it was found to be idle since then.
    is_known: bool,
}

/// A sample of a slice's use of its GPUs.
#[derive(Clone, Debug)]
pub(crate) struct UseSample {
    pub(crate) name: SliceName,
    pub(crate) created_unix_ms: u64,
    /// GPU time used since the slice was created.
    pub(crate) used: Duration,
    /// True if work is outstanding, waits for its turn, or is measured by the driver.
    pub(crate) wants: bool,
}

impl Idleness {
    /// Idleness of no slice so far.
    pub(crate) fn new(after: Duration) -> Self {
        let state = IdlenessState { after: after.max(LEAST), sampled: None, slices: BTreeMap::new() };
        Self { state: Mutex::new(state) }
    }

    /// Begins anew for a slice that is created now; an earlier one may have had its name.
    pub(crate) fn begin(&self, name: &SliceName, created_unix_ms: u64) {
        let last = LastUse { created_unix_ms, used: Duration::ZERO, at: Instant::now(), is_known: false };
        self.state().slices.insert(name.clone(), last);
    }

    fn state(&self) -> MutexGuard<'_, IdlenessState> {
        self.state.lock().expect("nothing panics while it holds the samples")
    }

    /// Sets the time without use after which a slice counts as idle.
    pub(crate) fn set_after(&self, after: Duration) {
        self.state().after = after.max(LEAST);
    }

    /// Enters a sample of all slices. Returns those that are found to be idle for the first time since they were used,
    /// with the time without use.
    pub(crate) fn observe(&self, samples: &[UseSample], now: Instant) -> Vec<(SliceName, Duration)> {
        let mut state = self.state();
        state.sampled = Some(now);
        let before = std::mem::take(&mut state.slices);
        let mut found = Vec::new();
        for sample in samples {
            let UseSample { name, created_unix_ms, used, wants } = sample.clone();
            let known = before.get(&name).filter(|known| known.created_unix_ms == created_unix_ms);
            let mut last = match known {
                Some(known) if known.used == used && !wants => *known,
                _ => LastUse { created_unix_ms, used, at: now, is_known: false },
            };
            let unused = now.saturating_duration_since(last.at);
            if unused >= state.after && !last.is_known {
                last.is_known = true;
                found.push((name.clone(), unused));
            }
            state.slices.insert(name, last);
        }
        found
    }

    /// Time since the last known use of the GPU by a slice; zero before its first sample.
    pub(crate) fn unused(&self, name: &SliceName) -> Duration {
        self.state().unused(name)
    }

    /// That time, if it is long enough to count as idle.
    pub(crate) fn idle(&self, name: &SliceName) -> Option<Duration> {
        let state = self.state();
        Some(state.unused(name)).filter(|unused| *unused >= state.after)
    }
}

impl IdlenessState {
    fn unused(&self, name: &SliceName) -> Duration {
        let Some((last, sampled)) = self.slices.get(name).zip(self.sampled) else { return Duration::ZERO };
        sampled.saturating_duration_since(last.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(5);

    fn sample(created_unix_ms: u64, used_ms: u64, wants: bool) -> UseSample {
        let used = Duration::from_millis(used_ms);
        UseSample { name: "a".parse().unwrap(), created_unix_ms, used, wants }
    }

    /// Samples one slice each second; returns the numbers of those that found it idle.
    fn found(samples: impl IntoIterator<Item = UseSample>) -> Vec<usize> {
        let (idleness, begin) = (Idleness::new(AFTER), Instant::now());
        let each = samples.into_iter().enumerate().filter_map(|(second, sample)| {
            let now = begin + Duration::from_secs(second as u64);
            (!idleness.observe(&[sample], now).is_empty()).then_some(second)
        });
        each.collect()
    }

    #[test]
    fn slice_is_found_idle_once_after_each_use() {
        assert_eq!(found((0..20).map(|_| sample(1, 0, false))), [5]);
        assert_eq!(found((0..20).map(|second| sample(1, if second < 8 { 0 } else { 1 }, false))), [5, 13]);
    }

    #[test]
    fn use_of_one_percent_of_the_time_is_never_idle() {
        assert_eq!(found((0..1_000).map(|second| sample(1, second / 4 * 40, false))), [0; 0]);
    }

    #[test]
    fn outstanding_work_is_no_idleness() {
        assert_eq!(found((0..60).map(|_| sample(1, 7, true))), [0; 0]);
    }

    #[test]
    fn idleness_is_known_up_to_the_last_sample() {
        let (idleness, name) = (Idleness::new(Duration::ZERO), "a".parse().unwrap());
        let now = Instant::now();
        let idle_at = |seconds: u64| {
            idleness.observe(&[sample(1, 0, false)], now + Duration::from_secs(seconds));
            idleness.idle(&name)
        };
        assert_eq!((idle_at(0), idle_at(1), idle_at(2)), (None, None, Some(LEAST)));
        assert_eq!(idleness.unused(&name), LEAST, "whatever time has passed since");
        idleness.set_after(AFTER);
        assert_eq!(idleness.idle(&name), None);
    }

    #[test]
    fn configuration_names_the_least_time_that_counts() {
        let documented = format!("after which a slice counts as idle, {} at least.", LEAST.as_secs());
        assert!(crate::config::manual::template().contains(&documented), "{documented}");
    }

    #[test]
    fn created_slice_has_no_idleness_of_an_earlier_one() {
        let (idleness, name) = (Idleness::new(LEAST), "a".parse().unwrap());
        let begin = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        for second in [0, 30] {
            idleness.observe(&[sample(1, 0, false)], begin + Duration::from_secs(second));
        }
        assert!(idleness.idle(&name).is_some());
        idleness.begin(&name, 2);
        assert_eq!((idleness.idle(&name), idleness.unused(&name)), (None, Duration::ZERO));
    }
}
