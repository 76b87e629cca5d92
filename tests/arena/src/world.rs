//! The game itself: events in the order of their moments.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow::{self, Break};

use simgpu::law::{After, Piece, Queue, Ran, Timeline, Witness};
use simgpu::{Lane, WorkKind};
use tranche_domain::compute::{Arbiter, Instant, Lease, Nanos, Observed};

use crate::gate::Account;
use crate::host::{Phase, Process, Slice, Thread, chance};
use crate::load::{Chance, Load};
use crate::report::Report;
use crate::setup::{Action, Policy, Setup, name};
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

/// Tenants.
impl World<'_> {
    fn act(&mut self, thread: usize) {
        let tenant = self.threads[thread].tenant;
        let player = &mut self.threads[thread];
        if std::mem::take(&mut player.waits) {
            self.slices[tenant].waiting -= 1;
        }
        if std::mem::take(&mut player.deep) {
            self.slices[tenant].waiting -= 1;
        }
        if self.slices[tenant].stopped {
            return self.slices[tenant].parked.push(thread);
        }
        match (player.phase, player.program.load) {
            (Phase::Begin, _) if self.now >= player.program.lives.1 => {}
            (Phase::Begin, Load::Saturating { .. }) => self.launch(thread, u32::MAX),
            (Phase::Begin, Load::Rounds { batch, .. }) => {
                player.round_began = self.now;
                self.launch(thread, batch);
            }
            (Phase::Launch(left) | Phase::Full(left), _) => self.launch(thread, left),
            (Phase::Sync, load) => self.end_round(thread, load),
        }
    }

    fn end_round(&mut self, thread: usize, load: Load) {
        let player = &mut self.threads[thread];
        let (process, stream) = (player.process, player.program.stream);
        self.report.rounds[player.tenant].push((player.round_began, self.now - player.round_began));
        player.phase = Phase::Begin;
        let gap = match load {
            Load::Rounds { gap, .. } => gap.draw(&mut player.chance),
            Load::Saturating { .. } => 0,
        };
        self.act_at(thread, self.now + gap);
        for device in 0..self.processes[process].accounts.len() {
            self.learn(process, device, stream, u64::MAX);
            self.settle(process, device);
        }
    }

    /// A process finds itself idle and rings, if it is and shall.
    fn settle(&mut self, process: usize, device: usize) {
        let tenant = self.processes[process].tenant;
        if self.processes[process].accounts[device].settle(self.now) && self.slices[tenant].lease.bell {
            self.ring();
        }
    }

    fn launch(&mut self, thread: usize, left: u32) {
        let now = self.now;
        let player = &mut self.threads[thread];
        if now >= player.program.lives.1 && matches!(player.program.load, Load::Saturating { .. }) {
            player.phase = Phase::Sync;
            if player.in_flight == 0 {
                self.act_at(thread, now);
            }
            return;
        }
        player.phase = Phase::Launch(left);
        player.kernel();
        let process = &self.processes[player.process];
        let tenant = player.tenant;
        if let Policy::Arbiter(_) = self.setup.policy {
            let lease = self.slices[tenant].lease;
            if !lease.open && !self.is_degraded() {
                return self.wait_closed(thread);
            }
            if !process.has_room(lease, process.kernel) {
                self.threads[thread].deep = true;
                self.slices[tenant].waiting += 1;
                return self.mark_tail(thread);
            }
        }
        self.submit(thread);
        self.go_on(thread, left);
    }

    /// What a thread does after a launch.
    fn go_on(&mut self, thread: usize, left: u32) {
        let at = self.now + self.setup.delays.launch;
        let player = &mut self.threads[thread];
        let full = matches!(player.program.load, Load::Saturating { ahead, .. } if player.in_flight >= ahead);
        let left = if left == u32::MAX { left } else { left - 1 };
        player.phase = match left {
            0 => Phase::Sync,
            left if full => Phase::Full(left),
            left => Phase::Launch(left),
        };
        if matches!(player.phase, Phase::Launch(_)) {
            self.act_at(thread, at);
        }
    }

    fn is_degraded(&self) -> bool {
        self.daemon_gone.is_some_and(|since| self.now >= since + DEGRADED_AFTER)
    }

    fn wait_closed(&mut self, thread: usize) {
        let player = &mut self.threads[thread];
        player.waits = true;
        let tenant = player.tenant;
        self.slices[tenant].waiting += 1;
        self.slices[tenant].waiters.push(thread);
        self.mark_tail(thread);
        self.ring();
    }

    /// Whoever is about to wait makes sure that the end of what it launched last becomes known.
    fn mark_tail(&mut self, thread: usize) {
        let player = &self.threads[thread];
        let (process, stream) = (player.process, player.program.stream);
        for device in 0..self.processes[process].accounts.len() {
            if let Some(sequence) = self.processes[process].accounts[device].mark_tail(stream) {
                self.learn(process, device, stream, sequence);
            }
        }
    }

    fn submit(&mut self, thread: usize) {
        let player = &mut self.threads[thread];
        let length = player.kernel();
        player.next = None;
        let (tenant, stream, process) = (player.tenant, player.program.stream, player.process);
        let was_idle = self.is_idle(tenant);
        let slice = &self.slices[tenant];
        for (device, at) in slice.gpus.iter().enumerate() {
            self.sequence += 1;
            let host = &mut self.processes[process];
            let estimate = host.kernel;
            let marks = self.setup.delays.marks.min(slice.lease.depth.get() / 4);
            host.accounts[device].launch(self.now, self.sequence, stream, estimate, marks);
            host.progress += 1;
            self.threads[thread].in_flight += 1;
            let queue = self.gpus[*at].queues.iter_mut().find(|queue| queue.context == process);
            queue.expect("a live process has its queues").pieces.push(Piece {
                sequence: self.sequence,
                place: length as usize,
                lane: Lane::Free((thread as u64) << 8 | stream),
                kind: WorkKind::Kernel,
                remaining: length,
                after: After::Nothing,
            });
        }
        if was_idle && slice.lease.bell {
            self.ring();
        }
    }

    fn is_idle(&self, tenant: usize) -> bool {
        let mut mine = self.processes.iter().filter(|process| process.tenant == tenant);
        mine.all(|process| process.outstanding() == 0)
    }

    /// The GPU has done a piece.
    fn finish(&mut self, at: usize, process: usize, piece: &Piece) {
        let Lane::Free(lane) = piece.lane else { return };
        let (thread, stream) = ((lane >> 8) as usize, lane & 0xff);
        let tenant = self.processes[process].tenant;
        self.report.add_work(tenant, self.now.min(self.report.length - 1), piece.place as u64);
        let device = self.slices[tenant].gpus.iter().position(|gpu| *gpu == at).unwrap_or(0);
        let host = &mut self.processes[process];
        host.learn_kernel(piece.place as u64);
        if host.accounts[device].done(piece.sequence) {
            self.push(self.now, Event::Known { process, device, stream, sequence: piece.sequence });
        }
        let player = &mut self.threads[thread];
        player.in_flight -= 1;
        match player.phase {
            Phase::Full(_) => self.act_at(thread, self.now + 2 * US),
            Phase::Sync if player.in_flight == 0 => {
                let at = self.later(self.setup.delays.sync);
                self.act_at(thread, at);
            }
            _ => {}
        }
    }

    /// A process's record says that the work up to a mark is done; who waits for depth sees it at its next glance.
    fn learn(&mut self, process: usize, device: usize, stream: u64, sequence: u64) {
        let host = &mut self.processes[process];
        host.progress += host.accounts[device].learn(stream, sequence);
        for thread in 0..self.threads.len() {
            if self.threads[thread].process == process && self.threads[thread].deep {
                let at = self.later(self.setup.delays.nap);
                self.act_at(thread, at);
            }
        }
    }
}

/// The daemon.
impl World<'_> {
    fn ring(&mut self) {
        if let Policy::Arbiter(_) = self.setup.policy {
            let at = self.later(self.setup.delays.bell);
            self.look_at(at);
        }
    }

    fn look_at(&mut self, at: u64) {
        if self.look.is_none_or(|(earlier, _)| at < earlier) {
            self.look = Some((at, self.serial + 1));
            self.push(at, Event::Look(self.serial + 1));
        }
    }

    fn decide(&mut self) {
        self.look = None;
        if self.daemon_gone.is_some() {
            return;
        }
        self.report.looks += 1;
        let now = Instant::from_nanos(self.now);
        for tenant in 0..self.slices.len() {
            let seen = self.observe(tenant);
            self.arbiter.observe(now, &name(tenant), seen);
        }
        let decision = self.arbiter.decide(now);
        for (slice, lease) in decision.leases {
            let tenant = (0..self.slices.len()).find(|tenant| name(*tenant) == slice);
            self.tell(tenant.expect("the arbiter names slices it was told of"), lease);
        }
        if let Some(again) = decision.look_again {
            let at = self.later(self.setup.delays.alarm).max(self.now) - self.now + again.nanos();
            self.look_at(at.max(self.now));
        }
    }

    fn observe(&mut self, tenant: usize) -> Observed {
        let now = self.now;
        let mut seen =
            Observed { busy: vec![Nanos::ZERO; self.slices[tenant].gpus.len()], ..Observed::default() };
        for process in self.processes.iter_mut().filter(|process| process.tenant == tenant) {
            for (device, account) in process.accounts.iter_mut().enumerate() {
                account.settle(now);
                seen.busy[device] += Nanos::new(account.busy(now));
            }
            seen.outstanding += Nanos::new(process.outstanding());
            seen.kernel = seen.kernel.max(Nanos::new(process.kernel));
            seen.longest = seen.longest.max(Nanos::new(process.longest));
            seen.progress += process.progress;
        }
        seen.waiting = self.slices[tenant].waiting > 0;
        seen
    }

    fn tell(&mut self, tenant: usize, lease: Lease) {
        self.report.leases += 1;
        self.slices[tenant].lease = lease;
        if lease.open {
            self.wake(tenant);
        }
    }

    /// Those who wait at a gate that opens, or for depth that may have changed, look again.
    fn wake(&mut self, tenant: usize) {
        let mut woken = std::mem::take(&mut self.slices[tenant].waiters);
        let deep = |thread: &usize| self.threads[*thread].deep && self.threads[*thread].tenant == tenant;
        woken.extend((0..self.threads.len()).filter(deep));
        for thread in woken {
            let at = self.later(self.setup.delays.wake);
            self.act_at(thread, at);
        }
    }

    fn follow(&mut self, action: &Action) {
        let now = Instant::from_nanos(self.now);
        match action {
            Action::Change(tenant, terms) => {
                self.arbiter.change(now, &name(*tenant), terms.clone());
                self.look_at(self.now);
            }
            Action::Stop(tenant) => self.slices[*tenant].stopped = true,
            Action::Continue(tenant) => {
                self.slices[*tenant].stopped = false;
                for thread in std::mem::take(&mut self.slices[*tenant].parked) {
                    self.act_at(thread, self.now);
                }
            }
            Action::Kill(tenant) => self.kill(*tenant),
            Action::DaemonDies => {
                self.daemon_gone = Some(self.now);
                self.push(self.now + DEGRADED_AFTER, Event::Degrade);
            }
            Action::DaemonReturns => {
                self.daemon_gone = None;
                self.look = None;
                if let Policy::Arbiter(rules) = self.setup.policy {
                    self.arbiter = Arbiter::new(rules);
                }
                self.admit_all();
            }
        }
    }

    fn kill(&mut self, tenant: usize) {
        for process in 0..self.processes.len() {
            if self.processes[process].tenant == tenant {
                self.gpus.iter_mut().for_each(|timeline| timeline.remove(process));
                self.processes[process].accounts.iter_mut().for_each(|account| account.clear(self.now));
            }
        }
        for thread in &mut self.threads {
            if thread.tenant == tenant {
                (thread.turn, thread.waits, thread.deep) = (thread.turn + 1, false, false);
            }
        }
        let slice = &mut self.slices[tenant];
        (slice.waiting, slice.dead) = (0, true);
        slice.waiters.clear();
        slice.parked.clear();
        self.ring();
    }
}
