//! Surroundings of a gate: a GPU, a clock that moves in sleeps, and a scripted daemon.

use core::cell::{Cell, RefCell};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;

use tranche_shm::compute::{ComputeRecord, RECORD_WORDS, Tally};
use tranche_shm::control::{self, ControlWriter};

use super::super::*;
use super::gpu::{Gpu, WHOLE};

pub(super) const DEVICE: usize = 0;
pub(super) const MS: u64 = 1_000_000;
pub(super) const OPEN: Lease =
    Lease { open: true, governed: true, frozen: false, bell: false, depth_us: 4_000, least: 1 };
pub(super) const CLOSED: Lease = Lease { open: false, ..OPEN };

pub(super) struct World {
    control: Vec<AtomicU64>,
    record: Vec<AtomicU64>,
    words: Vec<AtomicU64>,
    pub(super) now: Cell<u64>,
    pub(super) gpu: RefCell<Gpu>,
    pub(super) kernel_ns: Cell<u64>,
    /// The part of the GPU that a kernel needs.
    pub(super) size: Cell<u64>,
    /// Stream of the next launches.
    pub(super) stream: Cell<u64>,
    /// Launches granted to the program's thread, and the rest of them.
    grant: Cell<Grant>,
    left: Cell<u32>,
    pub(super) launched: Cell<u64>,
    pub(super) marked: Cell<u64>,
    pub(super) rung: Cell<u64>,
    pub(super) slept: Cell<u64>,
    /// Largest number of waiting threads in the record during a sleep.
    pub(super) seen_waiting: Cell<u64>,
    pub(super) captured: Cell<bool>,
    pub(super) daemon_lives: Cell<bool>,
    /// The kernel shows that a daemon that does not live has ended.
    pub(super) daemon_shows_end: Cell<bool>,
    /// Lead of the daemon's clock over the process's, which may be in a time namespace of its own.
    pub(super) daemon_ahead: Cell<i64>,
    pub(super) can_mark: Cell<bool>,
    /// Time that the process is stopped within its next call of the driver.
    pub(super) stops: Cell<u64>,
    /// Words of marks that the GPU reaches are written; else they are later than all that follows.
    pub(super) words_come: Cell<bool>,
    pub(super) orders: RefCell<Vec<(u64, Lease)>>,
}

impl World {
    pub(super) fn new(lease: Lease) -> Self {
        let zeroed = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        let now = 1_000 * MS;
        let world = Self {
            control: zeroed(control::WORDS),
            record: zeroed(RECORD_WORDS),
            words: zeroed(GATE_WORDS),
            now: Cell::new(now),
            gpu: RefCell::new(Gpu::new(now)),
            kernel_ns: Cell::new(MS),
            size: Cell::new(WHOLE),
            stream: Cell::new(5),
            grant: Cell::new(Grant::NONE),
            left: Cell::new(0),
            launched: Cell::new(0),
            marked: Cell::new(0),
            rung: Cell::new(0),
            slept: Cell::new(0),
            seen_waiting: Cell::new(0),
            captured: Cell::new(false),
            daemon_lives: Cell::new(true),
            daemon_shows_end: Cell::new(false),
            daemon_ahead: Cell::new(0),
            can_mark: Cell::new(true),
            stops: Cell::new(0),
            words_come: Cell::new(true),
            orders: RefCell::default(),
        };
        ControlWriter::init(&world.control, 1, 1).unwrap().set_lease(lease);
        world.pass(0);
        world
    }

    pub(super) fn daemon(&self) -> ControlWriter<'_> {
        ControlWriter::attach(&self.control).unwrap()
    }

    pub(super) fn record(&self) -> ComputeRecord<'_> {
        ComputeRecord::over(self.record.first_chunk().unwrap())
    }

    pub(super) fn gate(&self) -> Gate<'_> {
        Gate::over(self.daemon().reader(), self.record(), &self.words, |_| {}).unwrap()
    }

    pub(super) fn tally(&self, tally: Tally) -> u64 {
        self.record().tally(tally).load(Relaxed)
    }

    /// Time passes: the GPU runs and writes its marks, the daemon beats and changes leases.
    pub(super) fn pass(&self, nanoseconds: u64) {
        self.now.set(self.now.get() + nanoseconds);
        let now = self.now.get();
        self.gpu.borrow_mut().run(now);
        for sequence in self.gpu.borrow_mut().reached.drain(..).filter(|_| self.words_come.get()) {
            let done = self.record().marks().done(sequence);
            done.store(done.load(Relaxed) & !0xffff_ffff | u64::from(sequence), Relaxed);
        }
        self.orders.borrow_mut().retain(|(at, lease)| {
            let due = *at <= now;
            if due {
                self.daemon().set_lease(*lease);
            }
            !due
        });
        if self.daemon_lives.get() {
            self.daemon().beat(now.saturating_add_signed(self.daemon_ahead.get()));
        }
    }

    /// One launch after `spent` that did not come to the gate.
    pub(super) fn launch_after(&self, spent: u32) -> Grant {
        let mut all = self.spend();
        all.device = all.device.or(DeviceSlot::new(DEVICE));
        all.launches += spent;
        self.gate().launch(all, Work::Kernel, self, self).1
    }

    /// Launches of the program's thread since it was last at the gate.
    fn spend(&self) -> Spent {
        self.grant.replace(Grant::NONE).spent(self.left.replace(0))
    }

    /// Launches this often, as fast as possible, from one thread in several streams by turns.
    ///
    /// Earlier grants are used up first.
    pub(super) fn saturate_in(&self, streams: u64, launches: u64) {
        for _ in 0..launches {
            self.stream.set(5 + self.launched.get() % streams);
            let turn = Lease::turn(self.daemon().reader().lease_word().load(Relaxed));
            if self.left.get() > 0 && self.grant.get().turn == turn {
                self.left.set(self.left.get() - 1);
                self.launch();
            } else {
                let grant = self.launch_after(0);
                self.grant.set(grant);
                self.left.set(grant.launches);
            }
            self.pass(2_000);
        }
    }

    pub(super) fn saturate(&self, launches: u64) {
        self.saturate_in(1, launches);
    }

    pub(super) fn outstanding_ns(&self) -> u64 {
        self.gpu.borrow().drain_ns()
    }

    pub(super) fn wait(&self, what: Awaited) {
        let before = self.gate().pending(self);
        self.pass(self.outstanding_ns());
        self.gate().waited(self.spend(), what, self.place().unwrap(), before, self);
    }
}

impl Host for World {
    fn now_ns(&self) -> u64 {
        self.now.get()
    }
    fn sleep_ns(&self, nanoseconds: u64) {
        self.slept.set(self.slept.get() + 1);
        self.seen_waiting.set(self.seen_waiting.get().max(self.tally(Tally::Waiting)));
        self.pass(nanoseconds);
    }
    fn pause(&self) {
        self.pass(2_000);
    }
    fn wait_for_turn(&self, turn: u32, nanoseconds: u64) {
        let mut left = nanoseconds;
        while left > 0 && Lease::turn(self.daemon().reader().lease_word().load(Relaxed)) == turn {
            self.pass(left.min(MS));
            left -= left.min(MS);
        }
    }
    fn ring(&self) {
        self.rung.set(self.rung.get() + 1);
    }
    fn has_daemon_ended(&self) -> bool {
        !self.daemon_lives.get() && self.daemon_shows_end.get()
    }
}

impl Launch for World {
    fn is_captured(&self) -> bool {
        self.captured.get()
    }
    fn place(&self) -> Option<LaunchTarget> {
        Some(LaunchTarget {
            device: DeviceSlot::new(DEVICE).unwrap(),
            context: 77,
            stream: self.stream.get(),
        })
    }
    fn launch(&self) -> i32 {
        self.launched.set(self.launched.get() + 1);
        self.pass(self.stops.take());
        self.gpu.borrow_mut().launch(self.stream.get(), self.kernel_ns.get(), self.size.get());
        0
    }
    fn mark(&self, sequence: u32) -> bool {
        if self.can_mark.get() {
            self.marked.set(self.marked.get() + 1);
            self.gpu.borrow_mut().mark(self.stream.get(), sequence);
        }
        self.can_mark.get()
    }
}
