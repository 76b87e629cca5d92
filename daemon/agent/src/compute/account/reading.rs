//! What a process's record says at an instant. Each number is whatever the tenant wrote: no arithmetic on it may wrap.
#![deny(clippy::arithmetic_side_effects)]

use std::sync::atomic::Ordering::Relaxed;

use tranche_domain::compute::Instant;
use tranche_shm::DeviceSlot;
use tranche_shm::compute::{Record, Tally};

/// What a record says.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    pub(super) waiting: u64,
    pub(super) launches: u64,
    pub(super) kernel_ns: u64,
    pub(super) longest_ns: u64,
    pub(super) passes: u64,
    pub(super) degraded: u64,
    pub(super) sequence: u64,
    pub(super) marks: u64,
    /// One for each device of the slice.
    pub(super) devices: Vec<There>,
}

/// What it says of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct There {
    /// For how long the process claims to have been busy in all, in nanoseconds.
    pub(super) claimed: u64,
    /// Since when it says that it is busy, by its own CLOCK_MONOTONIC in nanoseconds; zero if it says it is not.
    pub(super) since: u64,
    /// What is outstanding by its marks, in nanoseconds; zero where there are none.
    pub(super) pending: u64,
    /// The oldest mark that is pending: its number and its estimate in nanoseconds.
    pub(super) first: (u64, u64),
}

impl Reading {
    /// One that says nothing of so many devices.
    pub(super) fn blank(devices: usize) -> Self {
        Self { devices: vec![There::default(); devices], ..Self::default() }
    }

    /// Takes down what a record says now, which is `now` by its process's clock.
    pub(super) fn take(&mut self, record: Record<'_>, now: Instant) {
        let tally = |tally| record.tally(tally).load(Relaxed);
        self.waiting = tally(Tally::Waiting);
        self.launches = tally(Tally::Launches);
        self.kernel_ns = tally(Tally::KernelNs);
        self.longest_ns = tally(Tally::LongestNs);
        self.passes = tally(Tally::Passes);
        self.degraded = tally(Tally::Degraded);
        self.sequence = tally(Tally::Sequence);
        for (there, device) in self.devices.iter_mut().zip((0..).map_while(DeviceSlot::new)) {
            let since = record.busy_since_ns(device).load(Relaxed);
            let stretch = if since == 0 { 0 } else { now.nanos().saturating_sub(since) };
            let claimed = record.busy_ns(device).load(Relaxed).saturating_add(stretch);
            *there = There { claimed, since, pending: 0, first: (0, 0) };
        }
        self.take_marks(record);
    }

    fn take_marks(&mut self, record: Record<'_>) {
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

    /// How long all takes that was launched after another reading, in nanoseconds, by its own estimate.
    pub(super) const fn submitted_since(&self, last: &Self) -> u64 {
        self.launches.saturating_sub(last.launches).saturating_mul(self.kernel_ns)
    }

    /// Differs whenever a mark was submitted or reached: the one adds one, the other too.
    pub(super) const fn progress(&self) -> u64 {
        self.sequence.wrapping_mul(2).wrapping_add(self.launches).wrapping_sub(self.marks)
    }
}
