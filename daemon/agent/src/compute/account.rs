//! From compute records to what the arbiter is told: pure, and believing of what tenants write only what harms
//! nobody else.
//!
//! A process says for how long it has had work outstanding, and since when. It learns late that its work is done,
//! as it may not ask; its marks tell sooner. So a look counts what the process claims since the last look, never
//! more than the time that has passed, and of a process that is *unaware*, which still claims to be busy though
//! its marks say that nothing is outstanding, never more than was outstanding at the last look.
//!
//! What a process takes for its longest launch may have been something else that kept it from looking. A launch that
//! long would have kept it from making progress, too: what it says is cut to the longest time without.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use tranche_domain::compute::{Instant, Nanos, Observed};
use tranche_domain::id::GpuUuid;
use tranche_shm::compute::{Record, Tally};
use tranche_shm::control::Identity;
use tranche_shm::{DeviceSlot, MAX_DEVICES, Slot};

/// A number for each device of a process.
type PerDevice = [u64; MAX_DEVICES];

/// What runs for so much longer than twice what was thought does not only wait for another's tail.
const LONG_RUN: Nanos = Nanos::millis(2);

/// What runs is taken to be as long as it has run so far, but for no longer than this: it may never end, and then nobody
/// must wait for it the longer the longer it runs.
const HOPE: Nanos = Nanos::millis(4);

/// What is remembered of a slice between two looks.
#[derive(Debug)]
pub struct Account {
    /// For each place in the sorted order of its GPUs the device that is there.
    order: Vec<DeviceSlot>,
    looked: Option<Instant>,
    busy: Vec<Nanos>,
    processes: BTreeMap<Slot, Process>,
    active: bool,
    launching: u64,
    passes: u64,
    degraded: u64,
}

/// What is remembered of a process.
#[derive(Debug, Default)]
struct Process {
    identity: Identity,
    last: Reading,
    /// What of its claims was counted, in nanoseconds; less than them while it is unaware.
    counted: PerDevice,
    /// For how long it has been busy without progress, and the longest such time lately, in nanoseconds.
    stalled: u64,
    longest_stall: u64,
    /// For each device when the first of what is outstanding there should have begun, in nanoseconds; zero if nobody
    /// knows.
    begun: PerDevice,
    /// Since when the first of what is outstanding on each device has been seen to be the first, in nanoseconds.
    first_since: PerDevice,
    /// The longest time lately for which a launch has been seen to run that was thought to be much shorter: whoever
    /// launched it may have slept since.
    longest_run: u64,
    /// What is left of what is outstanding on each device, as it should be, and what was at the look before.
    left: PerDevice,
    due: PerDevice,
}

/// What a record says at an instant.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    waiting: u64,
    sequence: u64,
    launches: u64,
    kernel_ns: u64,
    longest_ns: u64,
    passes: u64,
    degraded: u64,
    marks: u64,
    /// For how long it claims to have been busy in all, in nanoseconds.
    claimed: PerDevice,
    /// Since when it says that it is busy, by CLOCK_MONOTONIC in nanoseconds; zero if it says it is not.
    since: PerDevice,
    /// What is outstanding by its marks, in nanoseconds; zero where there are none.
    pending: PerDevice,
    /// The oldest mark that is pending on each device: its number and its estimate in nanoseconds.
    first: [(u64, u64); MAX_DEVICES],
}

impl Account {
    /// Of a slice that has these GPUs, in the order of its devices.
    pub(crate) fn new(gpus: &[GpuUuid]) -> Self {
        let mut sorted: Vec<_> = gpus.iter().zip((0..).map_while(DeviceSlot::new)).collect();
        sorted.sort_unstable();
        let order: Vec<_> = sorted.into_iter().map(|(_, device)| device).collect();
        Self {
            busy: vec![Nanos::ZERO; order.len()],
            order,
            looked: None,
            processes: BTreeMap::new(),
            active: false,
            launching: 0,
            passes: 0,
            degraded: 0,
        }
    }

    /// Whether anything was outstanding or waited at the last look.
    pub(super) const fn is_active(&self) -> bool {
        self.active
    }

    /// How many of its processes launch at the same time, as far as is known.
    pub(super) const fn launching(&self) -> u64 {
        self.launching
    }

    /// Launches let through because nothing made progress, and because there was no daemon.
    pub(super) const fn let_through(&self) -> (u64, u64) {
        (self.passes, self.degraded)
    }

    /// Takes note of what everybody's record says now.
    pub fn look<'a>(
        &mut self,
        now: Instant,
        records: impl Iterator<Item = (Slot, Identity, Record<'a>)>,
    ) -> Observed {
        let first = self.looked.is_none();
        let passed = now.since(self.looked.unwrap_or(now)).get();
        self.looked = Some(now);
        let mut sum = Sum::default();
        let mut processes = BTreeMap::new();
        for (slot, identity, record) in records {
            let reading = Reading::of(record, now);
            let known = self.processes.remove(&slot).filter(|process| process.identity == identity);
            let mut process = known.unwrap_or_else(|| Process::new(identity, first.then_some(reading)));
            process.follow(&reading, now.nanos(), passed);
            sum.add(&mut process, &reading, passed);
            process.last = reading;
            processes.insert(slot, process);
        }
        self.processes = processes;
        self.take(&sum, passed)
    }

    fn take(&mut self, sum: &Sum, passed: u64) -> Observed {
        for (busy, device) in self.busy.iter_mut().zip(&self.order) {
            // Processes that are busy at the same time are busy once.
            *busy += Nanos::new(sum.busy[device.index()].min(passed));
        }
        self.passes = self.passes.saturating_add(sum.passes);
        self.degraded = self.degraded.saturating_add(sum.degraded);
        self.launching = sum.launching;
        self.active = sum.launching > 0;
        let outstanding = self.order.iter().map(|device| sum.pending[device.index()]).max();
        let (kernel, longest) = if sum.launching > 0 { sum.of_active } else { sum.of_all };
        Observed {
            busy: self.busy.clone(),
            outstanding: Nanos::new(outstanding.unwrap_or(0)),
            waiting: sum.waiting,
            kernel: Nanos::new(kernel),
            longest: Nanos::new(longest),
            progress: sum.progress,
        }
    }
}

/// Over all processes.
#[derive(Default)]
struct Sum {
    busy: PerDevice,
    pending: PerDevice,
    waiting: bool,
    launching: u64,
    passes: u64,
    degraded: u64,
    progress: u64,
    /// Typical and longest launch of those who have work or want to.
    of_active: (u64, u64),
    of_all: (u64, u64),
}

impl Sum {
    fn add(&mut self, process: &mut Process, reading: &Reading, passed: u64) {
        let mut most_busy = 0;
        for device in 0..MAX_DEVICES {
            let busy = process.count(reading, device).min(passed);
            most_busy = busy.max(most_busy);
            self.busy[device] = self.busy[device].saturating_add(busy);
            self.pending[device] = self.pending[device].saturating_add(process.left[device]);
        }
        process.watch_progress(reading, most_busy);
        let (last, launches) = (&process.last, process.lengths(reading));
        let most = |all: (u64, u64)| (all.0.max(launches.0), all.1.max(launches.1));
        self.of_all = most(self.of_all);
        if reading.is_active() {
            self.of_active = most(self.of_active);
            self.launching += 1;
        }
        self.waiting |= reading.waiting > 0;
        self.passes = self.passes.saturating_add(reading.passes.saturating_sub(last.passes));
        self.degraded = self.degraded.saturating_add(reading.degraded.saturating_sub(last.degraded));
        self.progress = self.progress.wrapping_add(reading.progress());
    }
}

impl Process {
    /// One that is seen for the first time. What it did before the first look of this daemon has been charged by
    /// another.
    fn new(identity: Identity, before: Option<Reading>) -> Self {
        let before = before.unwrap_or_default();
        let last = Reading { passes: 0, degraded: 0, ..before };
        Self { identity, last, counted: last.claimed, ..Self::default() }
    }

    /// Estimates what is left of what is outstanding. Nobody says when a launch began or ended: if one before it ended
    /// since the last look, `passed` ago, then likely in the middle of that time, or of its own if that is shorter.
    fn follow(&mut self, now: &Reading, at: u64, passed: u64) {
        for device in 0..MAX_DEVICES {
            let ((sequence, estimate), (before, thought)) = (now.first[device], self.last.first[device]);
            self.due[device] = self.left[device];
            if sequence != before {
                // What ended did so after the last look.
                let run = at.saturating_sub(passed).saturating_sub(self.first_since[device]);
                if before != 0 && run > thought.saturating_mul(2).saturating_add(LONG_RUN.get()) {
                    self.longest_run = self.longest_run.max(run);
                }
                self.first_since[device] = at;
                let ended = before != 0 && sequence != 0;
                self.begun[device] = if ended { at.saturating_sub(passed.min(estimate) / 2) } else { 0 };
            }
            let run = at.saturating_sub(self.first_since[device]);
            if sequence != 0 && run > estimate.saturating_mul(2).saturating_add(LONG_RUN.get()) {
                self.longest_run = self.longest_run.max(run.min(HOPE.get()));
            }
            let begun = self.begun[device];
            let ran = if begun == 0 { 0 } else { at.saturating_sub(begun).min(estimate) };
            let pending = now.pending[device];
            self.left[device] = pending.saturating_sub(ran).max(pending.min(1000));
        }
    }

    /// It was busy for so long until it was seen like this.
    fn watch_progress(&mut self, now: &Reading, busy: u64) {
        self.stalled = self.stalled.saturating_add(busy);
        if now.progress() != self.last.progress() {
            let faded = self.longest_stall - self.longest_stall / 32;
            self.longest_stall = self.stalled.max(faded);
            self.longest_run -= self.longest_run / 32;
            self.stalled = 0;
        }
    }

    /// What one of its launches takes typically and at most, as far as that is believed.
    fn lengths(&self, now: &Reading) -> (u64, u64) {
        let stall = self.longest_stall.max(self.stalled);
        let believed = if stall == 0 { u64::MAX } else { stall };
        let kernel = now.kernel_ns.min(believed);
        (kernel, now.longest_ns.max(self.longest_run).min(believed).max(kernel))
    }

    /// For how long it was busy on a device since the last look, as far as that is believed.
    fn count(&mut self, now: &Reading, device: usize) -> u64 {
        let Self { last, counted, due, .. } = self;
        let same_stretch = now.since[device] == last.since[device];
        let base = if same_stretch { last.claimed[device] } else { counted[device] };
        let claimed = now.claimed[device].saturating_sub(base);
        let unaware = now.since[device] != 0 && now.pending[device] == 0;
        if !unaware {
            counted[device] = now.claimed[device];
            let was_done = last.since[device] != 0 && last.pending[device] == 0;
            // It has learnt since that its work was done, and may have counted the time until then.
            return if was_done && !same_stretch { claimed.min(now.submitted_since(last)) } else { claimed };
        }
        let launched = now.sequence != last.sequence;
        let busy = if launched { claimed } else { claimed.min(due[device]) };
        counted[device] = counted[device].saturating_add(busy);
        busy
    }
}

impl Reading {
    fn of(record: Record<'_>, now: Instant) -> Self {
        let tally = |tally| record.tally(tally).load(Relaxed);
        let mut reading = Self {
            waiting: tally(Tally::Waiting),
            sequence: tally(Tally::Sequence),
            launches: tally(Tally::Launches),
            kernel_ns: tally(Tally::KernelNs),
            longest_ns: tally(Tally::LongestNs),
            passes: tally(Tally::Passes),
            degraded: tally(Tally::Degraded),
            ..Self::default()
        };
        for device in (0..MAX_DEVICES).filter_map(DeviceSlot::new) {
            let since = record.busy_since_ns(device).load(Relaxed);
            let stretch = if since == 0 { 0 } else { now.nanos().saturating_sub(since) };
            reading.since[device.index()] = since;
            reading.claimed[device.index()] = record.busy_ns(device).load(Relaxed).saturating_add(stretch);
        }
        for mark in record.marks().pending() {
            reading.marks += 1;
            let estimate = u64::from(mark.estimate_us.max(1)) * 1000;
            let (device, sequence) = (mark.device.index(), u64::from(mark.sequence));
            reading.pending[device] += estimate;
            let first = reading.first[device].0;
            if first == 0 || sequence < first {
                reading.first[device] = (sequence, estimate);
            }
        }
        reading
    }

    const fn is_active(&self) -> bool {
        self.waiting > 0 || self.marks > 0
    }

    /// How long all takes that was launched after another reading, in nanoseconds, by its own estimate.
    const fn submitted_since(&self, last: &Self) -> u64 {
        self.launches.saturating_sub(last.launches).saturating_mul(self.kernel_ns)
    }

    /// Differs whenever a mark was submitted or reached: the one adds one, the other too.
    const fn progress(&self) -> u64 {
        self.sequence.wrapping_mul(2).wrapping_add(self.launches).wrapping_sub(self.marks)
    }
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
