//! Conversion of compute records into the scheduler's input. Pure, and trusting what tenants write only where it can
//! harm no other slice.
//!
//! A process reports for how long it has had work outstanding, and since when. It notices completion late, because it
//! must not wait for it; its completion markers are sooner. A read therefore counts what the process claims since the
//! last read, at most the time that has passed. An *unaware* process still claims to be busy though its markers show
//! nothing outstanding; of its claim at most what was outstanding at the last read counts.
//!
//! The longest launch that a process reports may have been another delay. A launch that long would also have kept the
//! process from progress, so the report is cut to the longest time without progress.

mod process;
mod reading;

use tranche_domain::compute::{Instant, Nanos, Observed};
use tranche_domain::id::GpuUuid;
use tranche_shm::compute::ComputeRecord;
use tranche_shm::control::ProcessIdentity;
use tranche_shm::{DeviceSlot, MAX_DEVICES, Slot};

use process::ProcessState;
use reading::RecordReading;

/// State of a slice's records between two looks.
#[derive(Debug, Default)]
pub struct Account {
    /// Device at each position of the sorted order of GPUs.
    order: Vec<DeviceSlot>,
    looked: Option<Instant>,
    busy: Vec<Nanos>,
    /// In ascending order of slots.
    processes: Vec<ProcessState>,
    /// Buffer for the record being read.
    reading: RecordReading,
    waiting: bool,
    claims_work: bool,
    marks: u64,
    launching: u64,
    passes: u64,
    degraded: u64,
}

impl Account {
    /// Account of a slice with these GPUs, in the order of its devices.
    pub(crate) fn new(gpus: &[GpuUuid]) -> Self {
        let mut sorted: Vec<_> = gpus.iter().zip((0..).map_while(DeviceSlot::new)).collect();
        sorted.sort_unstable();
        let order: Vec<_> = sorted.into_iter().map(|(_, device)| device).collect();
        Self {
            busy: vec![Nanos::ZERO; order.len()],
            reading: RecordReading::blank(order.len()),
            order,
            ..Self::default()
        }
    }

    /// Returns true if work was outstanding at the last look.
    pub(super) const fn has_work(&self) -> bool {
        self.marks > 0
    }

    /// Returns true if at the last look work was outstanding, waiting, or claimed. The marker of a claim may appear a
    /// moment later.
    pub(super) const fn is_active(&self) -> bool {
        self.has_work() || self.waiting || self.claims_work
    }

    /// Number of processes that launch concurrently, as far as is known.
    pub(super) const fn launching(&self) -> u64 {
        self.launching
    }

    /// Launches admitted because no outstanding work made progress, and because there was no daemon.
    pub(super) const fn let_through(&self) -> (u64, u64) {
        (self.passes, self.degraded)
    }

    /// Busy time of each device since this daemon has observed the slice.
    pub(super) fn busy(&self) -> Vec<Nanos> {
        let mut busy = vec![Nanos::ZERO; self.order.len()];
        for (device, used) in self.order.iter().zip(&self.busy) {
            busy[device.index()] = *used;
        }
        busy
    }

    /// Reads all records, in ascending order of slots. All processes share the daemon's clock.
    pub fn look<'a>(
        &mut self,
        now: Instant,
        records: impl Iterator<Item = (Slot, ProcessIdentity, ComputeRecord<'a>)>,
    ) -> Observed {
        self.look_by_clocks(now, records.map(|(slot, identity, record)| (slot, identity, record, now)))
    }

    /// Reads all records, each with the present time by its process's own clock.
    pub(super) fn look_by_clocks<'a>(
        &mut self,
        now: Instant,
        records: impl Iterator<Item = (Slot, ProcessIdentity, ComputeRecord<'a>, Instant)>,
    ) -> Observed {
        let first = self.looked.is_none();
        let passed = now.since(self.looked.unwrap_or(now)).get();
        self.looked = Some(now);
        let (mut sum, mut seated) = (Sum::default(), 0);
        for (slot, identity, record, clock) in records {
            self.reading.take(record, clock);
            self.seat(seated, slot, identity, first);
            let process = &mut self.processes[seated];
            process.follow(&self.reading, now.nanos(), passed);
            sum.add(process, &self.reading, passed);
            std::mem::swap(&mut process.last, &mut self.reading);
            seated += 1;
        }
        self.processes.truncate(seated);
        self.take(&sum, passed)
    }

    /// Finds the process of a record by slot and identity, or inserts it in its place.
    fn seat(&mut self, place: usize, slot: Slot, identity: ProcessIdentity, first: bool) {
        let gone = |process: &ProcessState| {
            process.slot < slot || process.slot == slot && process.identity != identity
        };
        while self.processes.get(place).is_some_and(gone) {
            self.processes.remove(place);
        }
        if self.processes.get(place).is_none_or(|process| process.slot != slot) {
            let before = if first { self.reading.clone() } else { RecordReading::blank(self.order.len()) };
            self.processes.insert(place, ProcessState::new(slot, identity, before));
        }
    }

    fn take(&mut self, sum: &Sum, passed: u64) -> Observed {
        for (busy, device) in self.busy.iter_mut().zip(&self.order) {
            // Concurrently busy processes count once.
            *busy += Nanos::new(sum.busy[device.index()].min(passed));
        }
        self.passes = self.passes.saturating_add(sum.passes);
        self.degraded = self.degraded.saturating_add(sum.degraded);
        (self.launching, self.waiting, self.marks) = (sum.launching, sum.waiting, sum.marks);
        self.claims_work = sum.claims_work;
        let outstanding = self.order.iter().map(|device| sum.pending[device.index()]).max();
        let contexts = self.order.iter().map(|device| sum.contexts[device.index()]).max();
        let (kernel, longest) = if sum.launching > 0 { sum.of_active } else { sum.of_all };
        Observed {
            busy: self.busy.clone(),
            outstanding: Nanos::new(outstanding.unwrap_or(0)),
            claims_work: sum.claims_work,
            waiting: sum.waiting,
            contexts: contexts.unwrap_or(0),
            in_order: sum.launching > 0 && !sum.side_by_side,
            kernel: Nanos::new(kernel),
            longest: Nanos::new(longest),
            progress: sum.progress,
        }
    }
}

/// Totals over all processes of a slice.
#[derive(Default)]
struct Sum {
    busy: [u64; MAX_DEVICES],
    pending: [u64; MAX_DEVICES],
    /// Processes with work outstanding.
    contexts: [u32; MAX_DEVICES],
    claims_work: bool,
    waiting: bool,
    /// Launches of an active process run side by side, or may.
    side_by_side: bool,
    marks: u64,
    launching: u64,
    passes: u64,
    degraded: u64,
    progress: u64,
    /// Typical and longest launch, in nanoseconds, of processes that have outstanding or waiting work.
    of_active: (u64, u64),
    of_all: (u64, u64),
}

impl Sum {
    fn add(&mut self, process: &mut ProcessState, reading: &RecordReading, passed: u64) {
        let mut most_busy = 0;
        for device in 0..process.devices.len() {
            let busy = process.count(reading, device).min(passed);
            most_busy = busy.max(most_busy);
            self.busy[device] = self.busy[device].saturating_add(busy);
            let left = process.devices[device].left;
            self.pending[device] = self.pending[device].saturating_add(left);
            self.contexts[device] += u32::from(left > 0);
        }
        process.watch_progress(reading, most_busy);
        let (last, launches) = (&process.last, process.lengths(reading));
        let most = |all: (u64, u64)| (all.0.max(launches.0), all.1.max(launches.1));
        self.of_all = most(self.of_all);
        if reading.is_active() {
            self.of_active = most(self.of_active);
            self.launching += 1;
            self.side_by_side |= reading.streams != 1;
        }
        self.claims_work |= reading.devices.iter().any(|there| there.since != 0);
        self.waiting |= reading.waiting > 0;
        self.marks += reading.marks;
        self.passes = self.passes.saturating_add(reading.passes.saturating_sub(last.passes));
        self.degraded = self.degraded.saturating_add(reading.degraded.saturating_sub(last.degraded));
        self.progress = self.progress.wrapping_add(reading.progress());
    }
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
