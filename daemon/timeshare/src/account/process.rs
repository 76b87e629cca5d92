//! State of one process between two looks. Sums contain numbers that tenants wrote: no arithmetic may wrap.
#![deny(clippy::arithmetic_side_effects)]

use tranche_domain::compute::Nanos;
use tranche_shm::Slot;
use tranche_shm::control::ProcessIdentity;

use super::reading::{RecordReading, There};

/// Margin beyond twice the estimate from which a running launch counts as long.
/// Within it, the launch may have waited for the end of another one.
const LONG_RUN: Nanos = Nanos::millis(2);

/// Longest time for which a running launch raises the estimate. It may never end, and the wait of other slices must
/// not grow without bound.
pub(super) const HOPE: Nanos = Nanos::millis(4);

/// State of one attached process.
#[derive(Debug)]
pub(super) struct ProcessState {
    pub(super) slot: Slot,
    pub(super) identity: ProcessIdentity,
    pub(super) last: RecordReading,
    pub(super) devices: Vec<DeviceWork>,
    /// Busy time without progress, and its longest recent value, in nanoseconds.
    stalled: u64,
    longest_stall: u64,
    /// Longest recent run of a launch that was estimated to be much shorter, in nanoseconds. The launching thread may
    /// have slept since.
    longest_run: u64,
}

/// State of a process's work on one device, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceWork {
    /// Claimed busy time that has been charged; below the claim while the process is unaware.
    counted: u64,
    /// Estimated start of the oldest outstanding launch; zero if unknown.
    begun: u64,
    /// Time since which the oldest outstanding launch has been the oldest.
    first_since: u64,
    /// Estimated remainder of the outstanding work, and its value at the previous look.
    pub(super) left: u64,
    due: u64,
}

impl ProcessState {
    /// A process seen for the first time. An earlier daemon charged what `before` shows, which precedes this daemon's
    /// first look.
    pub(super) fn new(slot: Slot, identity: ProcessIdentity, before: RecordReading) -> Self {
        let devices =
            before.devices.iter().map(|there| DeviceWork { counted: there.claimed, ..DeviceWork::default() });
        let devices = devices.collect();
        let last = RecordReading { passes: 0, degraded: 0, ..before };
        Self { slot, identity, last, devices, stalled: 0, longest_stall: 0, longest_run: 0 }
    }

    /// Estimates the remainder of the outstanding work, `passed` nanoseconds after the last look.
    pub(super) fn follow(&mut self, now: &RecordReading, at: u64, passed: u64) {
        for ((device, now), last) in self.devices.iter_mut().zip(&now.devices).zip(&self.last.devices) {
            let run = device.follow(now, last, at, passed);
            self.longest_run = self.longest_run.max(run);
        }
    }

    /// Updates the time without progress, given the busy time since the last look.
    pub(super) fn watch_progress(&mut self, now: &RecordReading, busy: u64) {
        self.stalled = self.stalled.saturating_add(busy);
        if now.progress() != self.last.progress() {
            let faded = self.longest_stall.saturating_sub(self.longest_stall / 32);
            self.longest_stall = self.stalled.max(faded);
            self.longest_run = self.longest_run.saturating_sub(self.longest_run / 32);
            self.stalled = 0;
        }
    }

    /// Typical and longest duration of one launch, cut to what the time without progress allows.
    pub(super) fn lengths(&self, now: &RecordReading) -> (u64, u64) {
        let stall = self.longest_stall.max(self.stalled);
        let believed = if stall == 0 { u64::MAX } else { stall };
        let kernel = now.kernel_ns.min(believed);
        (kernel, now.longest_ns.max(self.longest_run).min(believed).max(kernel))
    }

    /// Busy time on a device since the last look, as far as the claim is credible.
    pub(super) fn count(&mut self, now: &RecordReading, device: usize) -> u64 {
        let (last, there, was) = (&self.last, now.devices[device], self.last.devices[device]);
        let DeviceWork { counted, due, .. } = &mut self.devices[device];
        let same_stretch = there.since == was.since;
        let base = if same_stretch { was.claimed } else { *counted };
        let claimed = there.claimed.saturating_sub(base);
        let unaware = there.since != 0 && there.pending == 0;
        if !unaware {
            *counted = there.claimed;
            let was_done = was.since != 0 && was.pending == 0;
            // The process has noticed completion since, and may have counted the time until then.
            return if was_done && !same_stretch { claimed.min(now.submitted_since(last)) } else { claimed };
        }
        let launched = now.sequence != last.sequence;
        let busy = if launched { claimed } else { claimed.min(*due) };
        *counted = counted.saturating_add(busy);
        busy
    }
}

impl DeviceWork {
    /// Estimates the remainder. The start and end of a launch are not reported: if one before it ended since the last
    /// look, then probably in the middle of that time, or of its own duration if that is shorter. Returns the time
    /// for which a launch has run that was estimated to be much shorter.
    fn follow(&mut self, now: &There, last: &There, at: u64, passed: u64) -> u64 {
        let ((sequence, estimate), (before, thought)) = (now.first, last.first);
        let mut longest = 0;
        self.due = self.left;
        if sequence != before {
            // The launch that ended did so after the last look.
            let run = at.saturating_sub(passed).saturating_sub(self.first_since);
            if before != 0 && is_long(run, thought) {
                longest = run;
            }
            self.first_since = at;
            let ended = before != 0 && sequence != 0;
            self.begun = if ended { at.saturating_sub(passed.min(estimate) / 2) } else { 0 };
        }
        let run = at.saturating_sub(self.first_since);
        if sequence != 0 && is_long(run, estimate) {
            longest = longest.max(run.min(HOPE.get()));
        }
        let ran = if self.begun == 0 { 0 } else { at.saturating_sub(self.begun).min(estimate) };
        self.left = now.pending.saturating_sub(ran).max(now.pending.min(1000));
        longest
    }
}

const fn is_long(run: u64, thought: u64) -> bool {
    run > thought.saturating_mul(2).saturating_add(LONG_RUN.get())
}
