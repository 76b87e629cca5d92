//! Use of GPUs over the last day, sampled while the process runs.

use std::collections::BTreeMap;

use tranche_domain::id::GpuUuid;

use crate::limits::BINS_OF_DAY;

/// Length of a part of the day: ten minutes.
const BIN_MS: u64 = 600_000;

/// Sum and number of the samples of ten minutes.
#[derive(Clone, Copy, Debug, Default)]
struct SampleSum {
    percent: u64,
    count: u64,
}

/// Samples of each GPU, by number of the ten minutes since the Unix epoch.
#[derive(Debug, Default)]
pub(crate) struct DayOfUse(BTreeMap<GpuUuid, BTreeMap<u64, SampleSum>>);

impl DayOfUse {
    /// Enters a sample in percent, and forgets what is older than a day.
    pub(crate) fn enter(&mut self, gpu: GpuUuid, percent: u32, now_unix_ms: u64) {
        let now = now_unix_ms / BIN_MS;
        let bins = self.0.entry(gpu).or_default();
        // After the clock was set back, later bins would stay for a day.
        bins.retain(|bin, _| *bin <= now && now - *bin < BINS_OF_DAY as u64);
        let sum = bins.entry(now).or_default();
        sum.percent = sum.percent.saturating_add(percent.min(100).into());
        sum.count = sum.count.saturating_add(1);
    }

    /// Mean of each ten minutes of the last day in percent, oldest first.
    pub(crate) fn of(&self, gpu: GpuUuid, now_unix_ms: u64) -> Vec<Option<u8>> {
        let now = now_unix_ms / BIN_MS;
        let bins = self.0.get(&gpu);
        let mean = |ago: u64| {
            let sum = bins?.get(&now.checked_sub(ago)?)?;
            u8::try_from(sum.percent / sum.count.max(1)).ok()
        };
        (0..BINS_OF_DAY as u64).rev().map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_has_the_mean_of_each_ten_minutes() {
        let (gpu, mut day) = (GpuUuid::from_bytes([7; 16]), DayOfUse::default());
        let begin = 1000 * BIN_MS;
        for (at, percent) in [(begin, 10), (begin + 1, 30), (begin + BIN_MS, 999)] {
            day.enter(gpu, percent, at);
        }
        let shown = day.of(gpu, begin + 2 * BIN_MS);
        assert_eq!(shown.len(), BINS_OF_DAY);
        assert_eq!(shown[BINS_OF_DAY - 4..], [None, Some(20), Some(100), None]);
        day.enter(gpu, 50, begin + 200 * BIN_MS);
        assert_eq!(day.of(gpu, begin + 200 * BIN_MS).iter().flatten().count(), 1);
        assert_eq!(day.of(GpuUuid::from_bytes([8; 16]), begin), vec![None; BINS_OF_DAY]);
    }
}
