//! State shared by all programs of a game: the clock, the GPUs, and the memory of processes.
//!
//! Programs run as coroutines, one at a time, and hand the clock back whenever they sleep. So all is in
//! cells, and no borrow of a cell is held while a program runs.

mod gpus;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::AtomicU64;

use simgpu::law::Timeline;
use tranche_policy::{GATE_WORDS, Gate, Grant};
use tranche_shm::Slot;
use tranche_shm::compute::{ComputeRecord, MARKS, RECORD_WORDS};
use tranche_shm::control::{self, Control, ControlWriter, ProcessIdentity};

use crate::US;
use crate::chance::Chance;
use crate::report::Report;
use crate::setup::{Program, Setup, Tail};

/// Something that happens at a moment; of two at the same, the one that was foreseen first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A thread resumes, if this is its valid appointment.
    Act { thread: usize, turn: u32 },
    /// The GPU's word that a mark was reached is in a process's record.
    Written { process: usize, sequence: u32 },
    /// The daemon wakes, if this is its valid appointment.
    Round(u64),
    /// The daemon has seen that a tenant's processes are dead.
    Reaped(usize),
    /// An entry of the script.
    Script(usize),
}

/// Condition on which a thread sleeps. Each but the first may end before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Until a moment in nanoseconds.
    Until(u64),
    /// Until the lease has changed, or a moment.
    Turn(u64),
    /// Until the driver takes one more launch.
    Room,
    /// Until all that it launched is done.
    Drained,
}

/// A thread, as far as it is not its program.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tenant: usize,
    pub(crate) process: usize,
    pub(crate) program: Program,
    pub(crate) in_flight: Cell<u32>,
    /// It has launched before.
    pub(crate) launched: Cell<bool>,
    /// Grant of launches without the gate; `left` is the rest of it.
    pub(crate) grant: Cell<Grant>,
    pub(crate) left: Cell<u32>,
    pub(crate) sleep: Cell<Sleep>,
    /// Number of the valid appointment; earlier ones are void.
    pub(crate) turn: Cell<u32>,
}

/// Shared memory of a process, and its events.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) tenant: usize,
    record: Vec<AtomicU64>,
    words: Vec<AtomicU64>,
    /// Sequence plus one of the last event that has come, by marker slot, where the GPU writes no markers.
    events: Vec<Cell<u64>>,
}

impl Process {
    pub(crate) fn record(&self) -> ComputeRecord<'_> {
        ComputeRecord::over(self.words_of_record())
    }

    pub(crate) fn words_of_record(&self) -> &[AtomicU64; RECORD_WORDS] {
        self.record.first_chunk().expect("it was made as long as a record")
    }

    pub(crate) fn event(&self, sequence: u32) -> &Cell<u64> {
        &self.events[sequence as usize % MARKS]
    }
}

/// A slice's memory, and how it fares.
#[derive(Debug)]
pub(crate) struct Slice {
    /// The number of the GPU that each of its devices is.
    pub(crate) gpus: Vec<usize>,
    control: Vec<AtomicU64>,
    pub(crate) rung: Cell<bool>,
    pub(crate) heard: Cell<bool>,
    pub(crate) stopped: Cell<bool>,
    pub(crate) parked: RefCell<Vec<usize>>,
    /// Its processes are gone, and the daemon knows.
    pub(crate) empty: Cell<bool>,
}

impl Slice {
    pub(crate) fn control(&self) -> ControlWriter<'_> {
        ControlWriter::attach(&self.control).expect("it was made a control region")
    }

    pub(crate) fn reader(&self) -> Control<'_> {
        Control::known(&self.control).expect("it was made a control region")
    }
}

/// State of a game: clock, GPUs, slices, processes and threads.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) now: Cell<u64>,
    serial: Cell<u64>,
    sequence: Cell<u64>,
    events: RefCell<BinaryHeap<Reverse<(u64, u64, Event)>>>,
    gpus: RefCell<Vec<Timeline>>,
    /// By group and step: the kernels of a collective that have the GPU and wait for the others.
    collectives: RefCell<BTreeMap<(u64, u64), Vec<u64>>>,
    pub(crate) slices: Vec<Slice>,
    pub(crate) processes: Vec<Process>,
    pub(crate) threads: Vec<Thread>,
    chance: RefCell<Chance>,
    pub(crate) report: RefCell<Report>,
    /// Time of the daemon's next wakeup, and the number of that appointment.
    pub(crate) round: Cell<Option<(u64, u64)>>,
    /// Something else than a ring wakes it.
    pub(crate) stirred: Cell<bool>,
    pub(crate) daemon_ended: Cell<bool>,
}

fn zeroed(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

impl World {
    pub(crate) fn new(setup: &Setup, length: u64) -> Self {
        let mut world = Self {
            setup: setup.clone(),
            now: Cell::new(0),
            serial: Cell::new(0),
            sequence: Cell::new(0),
            events: RefCell::default(),
            gpus: RefCell::default(),
            collectives: RefCell::default(),
            slices: Vec::new(),
            processes: Vec::new(),
            threads: Vec::new(),
            chance: RefCell::new(Chance::new(setup.seed)),
            report: RefCell::new(Report::new(setup.tenants.len(), length)),
            round: Cell::new(None),
            stirred: Cell::new(false),
            daemon_ended: Cell::new(false),
        };
        (0..setup.tenants.len()).for_each(|tenant| world.enter(tenant));
        world.begin();
        world
    }

    /// A tenant with its processes and threads.
    fn enter(&mut self, tenant: usize) {
        let player = self.setup.tenants[tenant].clone();
        let gpus: Vec<usize> = player.terms.gpus.iter().map(|uuid| usize::from(uuid.bytes()[0])).collect();
        let first = self.processes.len();
        let processes = player.programs.iter().map(|program| program.process + 1).max().unwrap_or(0);
        for process in first..first + processes {
            let events = vec![Cell::new(0); MARKS];
            let (record, words) = (zeroed(RECORD_WORDS), zeroed(GATE_WORDS));
            self.processes.push(Process { tenant, record, words, events });
            gpus.iter().for_each(|gpu| self.add_context(*gpu, process));
        }
        self.threads.extend(player.programs.into_iter().map(|program| Thread {
            tenant,
            process: first + program.process,
            program,
            in_flight: Cell::new(0),
            launched: Cell::new(false),
            grant: Cell::new(Grant::NONE),
            left: Cell::new(0),
            sleep: Cell::new(Sleep::Until(0)),
            turn: Cell::new(0),
        }));
        let control = zeroed(control::WORDS);
        ControlWriter::init(&control, 1, gpus.len()).expect("a tenant has few devices");
        self.slices.push(Slice {
            gpus,
            control,
            rung: Cell::new(false),
            heard: Cell::new(true),
            stopped: Cell::new(false),
            parked: RefCell::default(),
            empty: Cell::new(false),
        });
    }

    fn begin(&self) {
        for (thread, its) in self.threads.iter().enumerate() {
            // A random offset keeps threads from all beginning at the same nanosecond.
            self.act_at(thread, its.program.lives.0 + self.between((0, 50 * US)));
        }
        for (entry, (at, _)) in self.setup.script.iter().enumerate() {
            self.push(*at, Event::Script(entry));
        }
    }

    /// The gate of a process.
    pub(crate) fn gate(&self, process: usize) -> Gate<'_> {
        let its = &self.processes[process];
        let control = self.slices[its.tenant].reader();
        Gate::over(control, its.record(), &its.words, |_| {}).expect("the words are as many as a gate needs")
    }

    /// The records of a tenant's processes, as long as the daemon takes them for alive.
    pub(crate) fn records(
        &self,
        tenant: usize,
    ) -> impl Iterator<Item = (Slot, ProcessIdentity, ComputeRecord<'_>)> {
        let gone = self.slices[tenant].empty.get();
        let mine = self.processes.iter().filter(move |process| process.tenant == tenant && !gone);
        mine.zip(0..).filter_map(|(process, at)| {
            let identity = ProcessIdentity { pid: at + 1, start_time: 1, inner_pid: at + 1 };
            Some((Slot::new(at as usize)?, identity, process.record()))
        })
    }

    pub(crate) fn push(&self, at: u64, event: Event) {
        self.serial.set(self.serial.get() + 1);
        self.events.borrow_mut().push(Reverse((at.max(self.now.get()), self.serial.get(), event)));
    }

    /// Time of the next event; `u64::MAX` if there is none.
    pub(crate) fn next(&self) -> u64 {
        self.events.borrow().peek().map_or(u64::MAX, |Reverse((at, _, _))| *at)
    }

    pub(crate) fn pop(&self) -> Option<Event> {
        self.events.borrow_mut().pop().map(|Reverse((_, _, event))| event)
    }

    fn between(&self, range: (u64, u64)) -> u64 {
        self.chance.borrow_mut().between(range.0, range.1)
    }

    pub(crate) fn later(&self, range: (u64, u64)) -> u64 {
        self.now.get() + self.between(range)
    }

    /// Time at which a wakeup that is due now takes effect.
    pub(crate) fn wakes(&self, range: (u64, u64)) -> u64 {
        self.later(range) + self.more(self.setup.delays.late_wakeups)
    }

    /// Extra delay in nanoseconds. Without a tail no random number is drawn.
    fn more(&self, tail: Tail) -> u64 {
        let is_late = tail.permille > 0 && self.between((1, 1000)) <= tail.permille;
        if is_late { self.between(tail.more) } else { 0 }
    }

    /// Resumes a thread at a moment and voids its earlier appointment.
    pub(crate) fn act_at(&self, thread: usize, at: u64) {
        let turn = &self.threads[thread].turn;
        turn.set(turn.get() + 1);
        self.push(at, Event::Act { thread, turn: turn.get() });
    }

    /// The daemon wakes at a moment, or before.
    pub(crate) fn round_at(&self, at: u64) {
        if self.round.get().is_none_or(|(earlier, _)| at < earlier) {
            let id = self.serial.get() + 1;
            self.round.set(Some((at, id)));
            self.push(at, Event::Round(id));
        }
    }

    /// The daemon wakes because something has changed that no process rings for.
    pub(crate) fn stir(&self) {
        self.stirred.set(true);
        self.round_at(self.now.get());
    }

    /// A process rings its slice's bell.
    pub(crate) fn ring(&self, tenant: usize) {
        self.slices[tenant].rung.set(true);
        if self.slices[tenant].heard.get() {
            self.round_at(self.wakes(self.setup.delays.bell));
        }
    }
}
