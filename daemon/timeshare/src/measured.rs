//! GPU time by the driver's measurement, of slices whose programs have no shim.

use std::collections::{BTreeMap, VecDeque};

use tranche_domain::compute::{Instant, Nanos, Window};
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::units::Permille;

/// Longest time for which one sample counts; samples are a second apart.
const LONGEST: Nanos = Nanos::millis(2_000);
const MINUTE: Nanos = Nanos::millis(60_000);

/// Measured use of GPUs by slices, by name and GPU.
#[derive(Debug, Default)]
pub(super) struct MeasuredUse(BTreeMap<SliceName, BTreeMap<GpuUuid, MeasuredDevice>>);

/// Measured use of one GPU by a slice.
#[derive(Debug)]
struct MeasuredDevice {
    total: Nanos,
    last: Instant,
    /// Percent of the GPU's time in the last sample.
    percent: u32,
    /// GPU time of each sample of the last minute, with the sample's time.
    recent: VecDeque<(Instant, Nanos)>,
}

impl MeasuredUse {
    /// Adds a sample: percent of the GPU's time since the one before.
    pub(super) fn add(&mut self, name: &SliceName, gpu: GpuUuid, now: Instant, percent: u32) {
        let of_slice = self.0.entry(name.clone()).or_default();
        let new = || MeasuredDevice { total: Nanos::ZERO, last: now, percent: 0, recent: VecDeque::new() };
        let device = of_slice.entry(gpu).or_insert_with(new);
        let percent = percent.min(100);
        let busy = now.since(device.last).min(LONGEST).scaled(percent.into(), 100);
        (device.last, device.percent) = (now, percent);
        device.total = Nanos::new(device.total.get().saturating_add(busy.get()));
        device.recent.push_back((now, busy));
        while device.recent.front().is_some_and(|(at, _)| now.since(*at) > MINUTE) {
            device.recent.pop_front();
        }
    }

    /// Part of the GPU's time that was used over a window.
    pub(super) fn used(&self, name: &SliceName, gpu: GpuUuid, now: Instant, window: Window) -> Permille {
        let Some(device) = self.0.get(name).and_then(|gpus| gpus.get(&gpu)) else { return Permille::ZERO };
        let permille = match window {
            Window::Second if now.since(device.last) > LONGEST => 0,
            Window::Second => u64::from(device.percent) * 10,
            Window::Minute => {
                let within = device.recent.iter().filter(|(at, _)| now.since(*at) <= MINUTE);
                within.map(|(_, busy)| busy.get()).sum::<u64>().saturating_mul(1000) / MINUTE.get()
            }
        };
        u32::try_from(permille).ok().and_then(|permille| permille.try_into().ok()).unwrap_or(Permille::WHOLE)
    }

    /// Time used of a GPU since the slice was admitted.
    pub(super) fn total(&self, name: &SliceName, gpu: GpuUuid) -> Nanos {
        self.0.get(name).and_then(|gpus| gpus.get(&gpu)).map_or(Nanos::ZERO, |device| device.total)
    }

    /// Forgets a slice that ends.
    pub(super) fn end(&mut self, name: &SliceName) {
        self.0.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GPU: GpuUuid = GpuUuid::from_bytes([1; 16]);

    fn second(count: u64) -> Instant {
        Instant::from_nanos(Nanos::millis(1000 * count).get())
    }

    #[test]
    fn samples_are_use_of_the_time_between_them() {
        let (mut measured, name) = (MeasuredUse::default(), "a".parse().unwrap());
        for (at, percent) in [(10, 90), (11, 50), (12, 100), (13, 20)] {
            measured.add(&name, GPU, second(at), percent);
        }
        // Nothing is known of the time before the first.
        assert_eq!(measured.total(&name, GPU), Nanos::millis(1_700));
        let used = |at, window| measured.used(&name, GPU, second(at), window).get();
        assert_eq!((used(13, Window::Second), used(13, Window::Minute)), (200, 28));
        // The last sample counts for two seconds.
        assert_eq!((used(15, Window::Second), used(16, Window::Second)), (200, 0));
        assert_eq!((used(72, Window::Minute), used(74, Window::Minute)), (20, 0));
        measured.end(&name);
        assert_eq!(measured.total(&name, GPU), Nanos::ZERO);
    }

    proptest! {
        #[test]
        fn use_is_at_most_the_time_that_passed(samples in prop::collection::vec((0..5_000u64, any::<u32>()), 1..200)) {
            let (mut measured, name) = (MeasuredUse::default(), "a".parse().unwrap());
            let (mut now, mut before) = (0, Nanos::ZERO);
            for (more, percent) in &samples {
                now += Nanos::millis(*more).get();
                measured.add(&name, GPU, Instant::from_nanos(now), *percent);
                let total = measured.total(&name, GPU);
                prop_assert!(total >= before && total.get() - before.get() <= Nanos::millis(*more).get());
                before = total;
                prop_assert!(measured.used(&name, GPU, Instant::from_nanos(now), Window::Minute) <= Permille::WHOLE);
            }
        }
    }
}
