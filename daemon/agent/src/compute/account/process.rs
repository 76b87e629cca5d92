//! What is remembered of a process between two looks. What it adds up is what tenants wrote: no arithmetic on it may wrap.
#![deny(clippy::arithmetic_side_effects)]

use tranche_domain::compute::Nanos;
use tranche_shm::Slot;
use tranche_shm::control::Identity;

use super::reading::{Reading, There};

/// What runs for so much longer than twice what was thought does not only wait for another's tail.
const LONG_RUN: Nanos = Nanos::millis(2);

/// What runs is taken to be as long as it has run so far, but for no longer than this: it may never end, and then nobody
/// must wait for it the longer the longer it runs.
pub(super) const HOPE: Nanos = Nanos::millis(4);

/// What is remembered of a process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) slot: Slot,
    pub(super) identity: Identity,
    pub(super) last: Reading,
    pub(super) devices: Vec<Device>,
    /// For how long it has been busy without progress, and the longest such time lately, in nanoseconds.
    stalled: u64,
    longest_stall: u64,
    /// The longest time lately for which a launch has been seen to run that was thought to be much shorter: whoever
    /// launched it may have slept since.
    longest_run: u64,
}

/// What is remembered of its work on a device, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Device {
    /// What of its claims was counted; less than them while it is unaware.
    counted: u64,
    /// When the first of what is outstanding should have begun; zero if nobody knows.
    begun: u64,
    /// Since when the first of what is outstanding has been seen to be the first.
    first_since: u64,
    /// What is left of what is outstanding, as it should be, and what was at the look before.
    pub(super) left: u64,
    due: u64,
}

impl Process {
    /// One that is seen for the first time. What it did before the first look of this daemon, which `before` tells, has
    /// been charged by another.
    pub(super) fn new(slot: Slot, identity: Identity, before: Reading) -> Self {
        let devices =
            before.devices.iter().map(|there| Device { counted: there.claimed, ..Device::default() });
        let devices = devices.collect();
        let last = Reading { passes: 0, degraded: 0, ..before };
        Self { slot, identity, last, devices, stalled: 0, longest_stall: 0, longest_run: 0 }
    }

    /// Estimates what is left of what is outstanding, `passed` after the last look.
    pub(super) fn follow(&mut self, now: &Reading, at: u64, passed: u64) {
        for ((device, now), last) in self.devices.iter_mut().zip(&now.devices).zip(&self.last.devices) {
            let run = device.follow(now, last, at, passed);
            self.longest_run = self.longest_run.max(run);
        }
    }

    /// It was busy for so long until it was seen like this.
    pub(super) fn watch_progress(&mut self, now: &Reading, busy: u64) {
        self.stalled = self.stalled.saturating_add(busy);
        if now.progress() != self.last.progress() {
            let faded = self.longest_stall.saturating_sub(self.longest_stall / 32);
            self.longest_stall = self.stalled.max(faded);
            self.longest_run = self.longest_run.saturating_sub(self.longest_run / 32);
            self.stalled = 0;
        }
    }

    /// What one of its launches takes typically and at most, as far as that is believed.
    pub(super) fn lengths(&self, now: &Reading) -> (u64, u64) {
        let stall = self.longest_stall.max(self.stalled);
        let believed = if stall == 0 { u64::MAX } else { stall };
        let kernel = now.kernel_ns.min(believed);
        (kernel, now.longest_ns.max(self.longest_run).min(believed).max(kernel))
    }

    /// For how long it was busy on a device since the last look, as far as that is believed.
    pub(super) fn count(&mut self, now: &Reading, device: usize) -> u64 {
        let (last, there, was) = (&self.last, now.devices[device], self.last.devices[device]);
        let Device { counted, due, .. } = &mut self.devices[device];
        let same_stretch = there.since == was.since;
        let base = if same_stretch { was.claimed } else { *counted };
        let claimed = there.claimed.saturating_sub(base);
        let unaware = there.since != 0 && there.pending == 0;
        if !unaware {
            *counted = there.claimed;
            let was_done = was.since != 0 && was.pending == 0;
            // It has learnt since that its work was done, and may have counted the time until then.
            return if was_done && !same_stretch { claimed.min(now.submitted_since(last)) } else { claimed };
        }
        let launched = now.sequence != last.sequence;
        let busy = if launched { claimed } else { claimed.min(*due) };
        *counted = counted.saturating_add(busy);
        busy
    }
}

impl Device {
    /// Estimates what is left. Nobody says when a launch began or ended: if one before it ended since the last look,
    /// then likely in the middle of that time, or of its own if that is shorter. Gives for how long a launch has been
    /// seen to run that was thought to be much shorter.
    fn follow(&mut self, now: &There, last: &There, at: u64, passed: u64) -> u64 {
        let ((sequence, estimate), (before, thought)) = (now.first, last.first);
        let mut longest = 0;
        self.due = self.left;
        if sequence != before {
            // What ended did so after the last look.
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
