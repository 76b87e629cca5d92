//! Values of a process's compute record at one instant. The tenant may have written anything: no arithmetic may wrap.
#![deny(clippy::arithmetic_side_effects)]

use std::sync::atomic::Ordering::Relaxed;

use tranche_domain::compute::Instant;
use tranche_shm::DeviceSlot;
use tranche_shm::compute::{ComputeRecord, Tally};

/// Values of one record.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordReading {
    pub(super) waiting: u64,
    pub(super) launches: u64,
    pub(super) kernel_ns: u64,
    pub(super) longest_ns: u64,
    pub(super) passes: u64,
    pub(super) degraded: u64,
    pub(super) sequence: u64,
    pub(super) streams: u64,
    pub(super) marks: u64,
    /// One entry for each device of the slice.
    pub(super) devices: Vec<There>,
}

/// Values of one device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct There {
    /// Total busy time that the process claims, in nanoseconds.
    pub(super) claimed: u64,
    /// Start of the current busy time by the process's CLOCK_MONOTONIC, in nanoseconds. Zero if it claims to be idle.
    pub(super) since: u64,
    /// Sum of the estimates of pending markers, in nanoseconds.
    pub(super) pending: u64,
    /// Sequence number and estimate in nanoseconds of the oldest pending marker; zero if there is none.
    pub(super) first: (u64, u64),
}

impl RecordReading {
    /// Empty values for this number of devices.
    pub(super) fn blank(devices: usize) -> Self {
        Self { devices: vec![There::default(); devices], ..Self::default() }
    }

    /// Reads a record; `now` is the present time by the process's clock.
    pub(super) fn take(&mut self, record: ComputeRecord<'_>, now: Instant) {
        let tally = |tally| record.tally(tally).load(Relaxed);
        self.waiting = tally(Tally::Waiting);
        self.launches = tally(Tally::Launches);
        self.kernel_ns = tally(Tally::KernelNs);
        self.longest_ns = tally(Tally::LongestNs);
        self.passes = tally(Tally::Passes);
        self.degraded = tally(Tally::Degraded);
        self.sequence = tally(Tally::Sequence);
        self.streams = tally(Tally::Streams);
        for (there, device) in self.devices.iter_mut().zip((0..).map_while(DeviceSlot::new)) {
            let since = record.busy_since_ns(device).load(Relaxed);
            let stretch = if since == 0 { 0 } else { now.nanos().saturating_sub(since) };
            let claimed = record.busy_ns(device).load(Relaxed).saturating_add(stretch);
            *there = There { claimed, since, pending: 0, first: (0, 0) };
        }
        self.take_marks(record);
    }

    fn take_marks(&mut self, record: ComputeRecord<'_>) {
        self.marks = 0;
        for mark in record.marks().pending() {
            self.marks = self.marks.saturating_add(1);
            let Some(there) = self.devices.get_mut(mark.device.index()) else { continue };
            let estimate = u64::from(mark.estimate_us.max(1)).saturating_mul(1000);
            there.pending = there.pending.saturating_add(estimate);
            let (sequence, (first, _)) = (u64::from(mark.sequence), there.first);
            if first == 0 || sequence < first {
                there.first = (sequence, estimate);
            }
        }
    }

    pub(super) const fn is_active(&self) -> bool {
        self.waiting > 0 || self.marks > 0
    }

    /// Estimated duration of all launches since an earlier reading, in nanoseconds.
    pub(super) const fn submitted_since(&self, last: &Self) -> u64 {
        self.launches.saturating_sub(last.launches).saturating_mul(self.kernel_ns)
    }

    /// Changes whenever a marker is submitted or reached. Submission adds two and subtracts one, completion adds one.
    pub(super) const fn progress(&self) -> u64 {
        self.sequence.wrapping_mul(2).wrapping_add(self.launches).wrapping_sub(self.marks)
    }
}
