//! Faults of GPUs, and when they are over.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::Serialize;

use crate::id::GpuUuid;
use crate::number::number;

number! {
    /// Kind of a fault in NVIDIA's numbering: 79 is a GPU that fell off the bus.
    Xid(u64)
}

impl Xid {
    /// Tests if programs cause this fault on a healthy GPU.
    ///
    /// Examples are an illegal address, a stopped launch, and a channel closed with its neighbour. The list is that of
    /// NVIDIA's device plugin.
    pub fn is_of_programs(self) -> bool {
        [13, 31, 43, 45, 68, 109].contains(&self.0)
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Xid {}", self.0)
    }
}

/// A fault that is still in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Xid that the driver reported.
    pub xid: Xid,
    /// Time of the first report, in milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
    /// Number of reports since then.
    pub count: u64,
}

/// Faults in force by GPU. Times are on a monotonic clock with any origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    quiet: Duration,
    by_gpu: BTreeMap<GpuUuid, FaultyGpu>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FaultyGpu {
    faults: BTreeMap<Xid, Fault>,
    /// Time of the latest fault or failed check.
    well_since: Duration,
}

impl Faults {
    /// No faults; a fault is over after its GPU has been healthy for `quiet`.
    pub const fn new(quiet: Duration) -> Self {
        Self { quiet, by_gpu: BTreeMap::new() }
    }

    /// Sets the healthy time after which faults are over.
    pub const fn set_quiet(&mut self, quiet: Duration) {
        self.quiet = quiet;
    }

    /// Records a fault report. Returns true for the first of its kind.
    pub fn happened(&mut self, gpu: GpuUuid, xid: Xid, now: Duration, now_unix_ms: u64) -> bool {
        let gpu = self.by_gpu.entry(gpu).or_default();
        gpu.well_since = now;
        let fault = gpu.faults.entry(xid).or_insert(Fault { xid, since_unix_ms: now_unix_ms, count: 0 });
        fault.count = fault.count.saturating_add(1);
        fault.count == 1
    }

    /// Records a health check of a GPU; returns the faults that are over.
    pub fn look(&mut self, gpu: GpuUuid, is_well: bool, now: Duration) -> Vec<Fault> {
        let Some(known) = self.by_gpu.get_mut(&gpu) else { return Vec::new() };
        if !is_well {
            known.well_since = now;
        }
        if now.saturating_sub(known.well_since) < self.quiet || !is_well {
            return Vec::new();
        }
        self.by_gpu.remove(&gpu).map(|gpu| gpu.faults.into_values().collect()).unwrap_or_default()
    }

    /// The faults of a GPU that are in force.
    pub fn of(&self, gpu: GpuUuid) -> Vec<Fault> {
        self.by_gpu.get(&gpu).map(|gpu| gpu.faults.values().copied().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const GPU: GpuUuid = GpuUuid::from_bytes([7; 16]);

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn numbers(faults: &[Fault]) -> Vec<u64> {
        faults.iter().map(|fault| fault.xid.get()).collect()
    }

    #[test]
    fn faults_end_after_healthy_quiet_time() {
        let mut faults = Faults::new(at(60));
        assert!(faults.happened(GPU, Xid::new(48), at(0), 5));
        assert!(!faults.happened(GPU, Xid::new(48), at(30), 9), "the same again");
        assert!(faults.happened(GPU, Xid::new(63), at(31), 9));
        assert_eq!(faults.look(GPU, true, at(90)), vec![], "59 s after the last");
        assert_eq!(faults.of(GPU)[0], Fault { xid: Xid::new(48), since_unix_ms: 5, count: 2 });
        assert_eq!(numbers(&faults.look(GPU, true, at(91))), [48, 63]);
        assert_eq!(faults.of(GPU), vec![]);
    }

    #[test]
    fn unhealthy_gpu_keeps_its_faults() {
        let mut faults = Faults::new(at(60));
        faults.happened(GPU, Xid::new(79), at(0), 5);
        assert_eq!(faults.look(GPU, false, at(500)), vec![]);
        assert_eq!(faults.look(GPU, true, at(559)), vec![], "well for 59 s");
        assert_eq!(numbers(&faults.look(GPU, true, at(560))), [79]);
    }

    #[test]
    fn program_faults_differ_from_gpu_faults() {
        let of_programs: Vec<u64> = (0..200).filter(|xid| Xid::new(*xid).is_of_programs()).collect();
        assert_eq!(of_programs, [13, 31, 43, 45, 68, 109]);
    }

    proptest! {
        #[test]
        fn fault_ends_exactly_after_quiet_time(
            events in proptest::collection::vec((0u64..20, proptest::option::of(0u64..4), any::<bool>()), 0..60),
        ) {
            let (mut faults, mut now, mut ill) = (Faults::new(at(60)), at(0), at(0));
            for (later, xid, is_well) in events {
                now += at(later);
                if let Some(xid) = xid {
                    faults.happened(GPU, Xid::new(xid), now, 0);
                }
                if xid.is_some() || !is_well {
                    ill = now;
                }
                let over = faults.look(GPU, is_well, now);
                prop_assert!(over.is_empty() || now >= ill + at(60));
            }
            faults.look(GPU, true, now + at(60));
            prop_assert_eq!(faults.of(GPU), vec![]);
        }
    }
}
