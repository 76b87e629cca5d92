//! Monotonic counters of GPU time. The use of an ended slice stays counted for its GPUs, and for the next slice of
//! its name.

use std::collections::BTreeMap;
use std::time::Duration;

use tranche_domain::compute::Nanos;
use tranche_domain::id::{GpuUuid, SliceName};

use tranche_telemetry::retained::Retained;

/// GPU time used by slices that have ended since the daemon started.
#[derive(Debug, Default)]
pub(super) struct Used {
    gpus: BTreeMap<GpuUuid, Duration>,
    slices: Retained<BTreeMap<GpuUuid, Duration>>,
    /// Use of slices that ended since it was last taken.
    ended: BTreeMap<(SliceName, GpuUuid), Duration>,
}

/// Maximum number of ended slices whose use is kept for the reader.
const MOST_ENDED: usize = 10_000;

/// GPU time used by slices, by name and GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Use by each slice since it was admitted.
    pub live: BTreeMap<(SliceName, GpuUuid), Duration>,
    /// Use by slices that ended since the last reading; several of one name are summed.
    pub ended: BTreeMap<(SliceName, GpuUuid), Duration>,
}

impl Used {
    /// Registers a new slice of this name.
    pub(super) fn begin(&mut self, name: &SliceName) {
        self.slices.begin(name);
    }

    /// Adds the use of a slice that ended; `busy` is in the order of `gpus`.
    pub(super) fn end(&mut self, name: &SliceName, gpus: &[GpuUuid], busy: &[Nanos]) {
        let busy = || gpus.iter().zip(busy).map(|(gpu, busy)| (*gpu, Duration::from_nanos(busy.get())));
        add(&mut self.gpus, busy());
        for (gpu, busy) in busy() {
            let key = (name.clone(), gpu);
            if self.ended.len() < MOST_ENDED || self.ended.contains_key(&key) {
                *self.ended.entry(key).or_default() += busy;
            }
        }
        if let Some(of_slice) = self.slices.of(name) {
            add(of_slice, busy());
        }
        self.slices.end(name);
    }

    /// Use of slices that ended since the last call.
    pub(super) fn take_ended(&mut self) -> BTreeMap<(SliceName, GpuUuid), Duration> {
        std::mem::take(&mut self.ended)
    }

    /// Use of a GPU by slices that have ended.
    pub(super) fn of_gpu(&self, gpu: GpuUuid) -> Duration {
        self.gpus.get(&gpu).copied().unwrap_or_default()
    }

    /// Use of a GPU by earlier slices of a name.
    pub(super) fn before(&self, name: &SliceName, gpu: GpuUuid) -> Duration {
        self.slices.get(name).and_then(|gpus| gpus.get(&gpu)).copied().unwrap_or_default()
    }
}

fn add(sums: &mut BTreeMap<GpuUuid, Duration>, more: impl Iterator<Item = (GpuUuid, Duration)>) {
    for (gpu, busy) in more {
        *sums.entry(gpu).or_default() += busy;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_of_ended_slices_stays_counted() {
        let (mut used, gpu, other) =
            (Used::default(), GpuUuid::from_bytes([1; 16]), GpuUuid::from_bytes([2; 16]));
        let (a, b): (SliceName, SliceName) = ("a".parse().unwrap(), "b".parse().unwrap());
        used.begin(&a);
        used.end(&a, &[gpu, other], &[Nanos::millis(3), Nanos::millis(1)]);
        used.begin(&a);
        used.end(&a, &[gpu], &[Nanos::millis(4)]);
        used.begin(&b);
        used.end(&b, &[gpu], &[Nanos::millis(5)]);
        let ms = Duration::from_millis;
        let ended = used.take_ended();
        assert_eq!((ended[&(a.clone(), gpu)], ended[&(b.clone(), gpu)]), (ms(7), ms(5)));
        assert!(used.take_ended().is_empty());
        assert_eq!((used.of_gpu(gpu), used.of_gpu(other)), (ms(12), ms(1)));
        assert_eq!(
            (used.before(&a, gpu), used.before(&b, gpu), used.before(&b, other)),
            (ms(7), ms(5), ms(0))
        );
    }
}
