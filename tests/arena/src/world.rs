//! The game itself: events in the order of their moments.

mod daemon;
mod tenants;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow::{self, Break};

use simgpu::law::{Piece, Queue, Ran, Timeline, Witness};
use tranche_domain::compute::{Arbiter, Instant};

use crate::gate::Account;
use crate::host::{Phase, Process, Slice, Thread, chance};
use crate::load::Chance;
use crate::report::Report;
use crate::setup::{Policy, Setup, name};
use crate::{S, US};

/// How far GPUs may run before each other. One alone runs from event to event.
const STRIDE: u64 = 10 * US;
/// A gate lets everybody through that has not heard of a daemon for so long.
const DEGRADED_AFTER: u64 = S;

/// Plays a game of some length in nanoseconds.
pub fn run(setup: &Setup, length: u64) -> Report {
    let mut world = World::new(setup, length);
    world.begin();
    world.play();
    world.report
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A thread goes on, if this is its valid appointment.
    Act { thread: usize, turn: u32 },
    /// A mark's word is seen.
    Known { process: usize, device: usize, stream: u64, sequence: u64 },
    /// The daemon looks, if this is its valid appointment.
    Look(u64),
    /// An entry of the script.
    Script(usize),
    /// Gates notice that the daemon is gone.
    Degrade,
}

struct World<'s> {
    setup: &'s Setup,
    now: u64,
    serial: u64,
    sequence: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    gpus: Vec<Timeline>,
    slices: Vec<Slice>,
    processes: Vec<Process>,
    threads: Vec<Thread>,
    arbiter: Arbiter,
    look: Option<(u64, u64)>,
    daemon_gone: Option<u64>,
    chance: Chance,
    report: Report,
}

struct Watch<'a> {
    report: &'a mut Report,
    processes: &'a [Process],
    finished: Option<(usize, Piece, u64)>,
}

impl Witness for Watch<'_> {
    fn ran(&mut self, context: usize, _: Ran, from: u64, to: u64) {
        self.report.add_ran(self.processes[context].tenant, from, to);
    }

    fn finished(&mut self, context: usize, piece: &Piece, at: u64) -> ControlFlow<()> {
        self.finished = Some((context, *piece, at));
        Break(())
    }
}

impl<'s> World<'s> {
    fn new(setup: &'s Setup, length: u64) -> Self {
        let rules = match setup.policy {
            Policy::Arbiter(rules) => rules,
            Policy::Unscheduled => Default::default(),
        };
        let mut world = Self {
            setup,
            now: 0,
            serial: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            gpus: Vec::new(),
            slices: Vec::new(),
            processes: Vec::new(),
            threads: Vec::new(),
            arbiter: Arbiter::new(rules),
            look: None,
            daemon_gone: None,
            chance: Chance::new(setup.seed),
            report: Report::new(setup.tenants.len(), length),
        };
        (0..setup.tenants.len()).for_each(|tenant| world.enter(tenant));
        world
    }

    /// A tenant with its processes and threads.
    fn enter(&mut self, tenant: usize) {
        let player = &self.setup.tenants[tenant];
        let gpus: Vec<usize> = player.terms.gpus.iter().map(|uuid| usize::from(uuid.bytes()[0])).collect();
        let most = gpus.iter().max().map_or(0, |most| most + 1).max(self.gpus.len());
        self.gpus.resize_with(most, Timeline::default);
        let first = self.processes.len();
        let processes = player.programs.iter().map(|program| program.process + 1).max().unwrap_or(0);
        for context in first..first + processes {
            let accounts = vec![Account::default(); gpus.len()];
            self.processes.push(Process { tenant, accounts, kernel: 0, longest: 0, progress: 0 });
            for at in &gpus {
                self.gpus[*at].queues.push(Queue { context, slice: None, pieces: Vec::new() });
            }
        }
        for (index, program) in player.programs.iter().enumerate() {
            self.threads.push(Thread {
                tenant,
                process: first + program.process,
                program: *program,
                chance: chance(self.setup.seed, tenant, index),
                phase: Phase::Begin,
                next: None,
                in_flight: 0,
                round_began: 0,
                waits: false,
                deep: false,
                turn: 0,
            });
        }
        self.slices.push(Slice { gpus, ..Slice::default() });
    }

    fn begin(&mut self) {
        self.admit_all();
        for thread in 0..self.threads.len() {
            // Nobody begins at the same nanosecond as another.
            let at = self.threads[thread].program.lives.0 + self.chance.between(0, 50 * US);
            self.act_at(thread, at);
        }
        for entry in 0..self.setup.script.len() {
            self.push(self.setup.script[entry].0, Event::Script(entry));
        }
    }

    fn admit_all(&mut self) {
        if let Policy::Arbiter(_) = self.setup.policy {
            for (tenant, player) in self.setup.tenants.iter().enumerate() {
                self.arbiter.admit(Instant::from_nanos(self.now), name(tenant), player.terms.clone());
            }
            self.look_at(self.now);
        }
    }

    fn play(&mut self) {
        loop {
            let next = self.events.peek().map_or(u64::MAX, |Reverse((at, _, _))| *at);
            let until = next.min(self.report.length);
            if self.run_gpus(until) {
                continue;
            }
            if until == self.report.length {
                break;
            }
            let Some(Reverse((_, _, event))) = self.events.pop() else { break };
            self.handle(event);
        }
    }

    /// Runs every GPU towards a moment. Says whether anything happened on the way, or the moment is not reached yet.
    fn run_gpus(&mut self, until: u64) -> bool {
        let stride = if self.gpus.len() == 1 { until } else { until.min(self.now + STRIDE) };
        let mut stopped = stride;
        let mut happened = false;
        for at in 0..self.gpus.len() {
            while let Some((context, piece, when)) = self.run_gpu(at, stride) {
                happened = true;
                self.now = self.now.max(when);
                self.finish(at, context, &piece);
                if self.gpus.len() == 1 {
                    stopped = when;
                    break;
                }
            }
        }
        self.now = self.now.max(stopped);
        happened || stride < until
    }

    fn run_gpu(&mut self, at: usize, until: u64) -> Option<(usize, Piece, u64)> {
        let mut watch = Watch { report: &mut self.report, processes: &self.processes, finished: None };
        self.gpus[at].advance(until, self.setup.law, &mut watch);
        watch.finished
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Act { thread, turn } if self.threads[thread].turn == turn => self.act(thread),
            Event::Act { .. } => {}
            Event::Known { process, device, stream, sequence } => {
                self.learn(process, device, stream, sequence);
            }
            Event::Look(id) if self.look.is_some_and(|(_, valid)| valid == id) => self.decide(),
            Event::Look(_) => {}
            Event::Script(entry) => self.follow(&self.setup.script[entry].1),
            Event::Degrade => (0..self.slices.len()).for_each(|tenant| self.wake(tenant)),
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((at.max(self.now), self.serial, event)));
    }

    fn later(&mut self, range: (u64, u64)) -> u64 {
        self.now + self.chance.between(range.0, range.1)
    }

    fn act_at(&mut self, thread: usize, at: u64) {
        self.threads[thread].turn += 1;
        self.push(at, Event::Act { thread, turn: self.threads[thread].turn });
    }
}
