//! The game itself: events in the order of their moments, programs and the daemon in turns.

use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Release};

use corosensei::CoroutineResult;
use tranche_domain::compute::{Instant, Observed};
use tranche_domain::id::GpuUuid;
use tranche_domain::units::Permille;
use tranche_shm::lease::Lease;
use tranche_timeshare::{Account, Rounds, SliceSite};

use crate::S;
use crate::program::{self, Life};
use crate::report::Report;
use crate::setup::{Action, Policy, Setup, name, permille};
use crate::world::{Event, Sleep, World};

/// Plays a game of some length in nanoseconds.
pub fn run(setup: &Setup, length: u64) -> Report {
    let world = Rc::new(World::new(setup, length));
    let mut index = vec![0_usize; setup.tenants.len()];
    let begin = |thread: usize| {
        let index = &mut index[world.threads[thread].tenant];
        *index += 1;
        Some(program::begin(&world, thread, *index - 1))
    };
    let lives = (0..world.threads.len()).map(begin).collect();
    let mut game = Game { lives, rounds: None, asks_driver_at: SAMPLE, world: Rc::clone(&world) };
    game.daemon_begins();
    game.play();
    world.report.borrow().clone()
}

/// Interval of the driver's utilisation samples in nanoseconds, and the span that one covers.
const SAMPLE: u64 = S;

struct Game {
    world: Rc<World>,
    /// Each thread's program, as long as it runs.
    lives: Vec<Option<Life>>,
    /// The daemon, if there is one.
    rounds: Option<Rounds<Premises>>,
    /// Time of the daemon's next query for the processes' compute time, in nanoseconds.
    asks_driver_at: u64,
}

/// A tenant as the daemon reaches it.
struct Premises {
    world: Rc<World>,
    tenant: usize,
}

impl SliceSite for Premises {
    fn look(&self, now: Instant, account: &mut Account) -> Observed {
        account.look(now, self.world.records(self.tenant))
    }

    fn write(&self, lease: Lease) {
        self.world.slices[self.tenant].control().set_lease(lease);
        self.world.report.borrow_mut().leases += 1;
        if lease.open {
            self.wake();
        }
    }

    fn announce(&self, next: Option<(Lease, Instant)>, wakes: bool) {
        let control = self.world.slices[self.tenant].control();
        match next {
            Some((lease, at)) => control.announce(lease, at.nanos()),
            None => control.withdraw(),
        }
        if wakes {
            self.wake();
        }
    }

    fn hear(&self, heard: bool) {
        let slice = &self.world.slices[self.tenant];
        slice.heard.set(heard);
        if heard && slice.rung.get() {
            self.world.round_at(self.world.wakes(self.world.setup.delays.bell));
        }
    }

    fn beat(&self, now: Instant, _: &dyn Fn(GpuUuid) -> Permille) {
        self.world.slices[self.tenant].control().beat(now.nanos());
    }
}

impl Premises {
    /// Wakes the threads that wait for a change of the lease.
    fn wake(&self) {
        for (thread, its) in self.world.threads.iter().enumerate() {
            if its.tenant == self.tenant && matches!(its.sleep.get(), Sleep::Turn(_)) {
                its.sleep.set(Sleep::Until(0));
                self.world.act_at(thread, self.world.wakes(self.world.setup.delays.wake));
            }
        }
    }
}

impl Game {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.world.now.get())
    }

    fn play(&mut self) {
        let end = self.world.report.borrow().length;
        loop {
            let until = self.world.next().min(end);
            if self.world.run_gpus(until) {
                continue;
            }
            if until == end {
                break;
            }
            let Some(event) = self.world.pop() else { break };
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Act { thread, turn } if self.world.threads[thread].turn.get() == turn => self.act(thread),
            Event::Round(id) if self.world.round.get().is_some_and(|(_, valid)| valid == id) => self.round(),
            Event::Act { .. } | Event::Round(_) => {}
            Event::Written { process, sequence } => {
                // What is written to one place comes in order. A program that has waited need not wait for the word.
                let done = self.world.processes[process].record().marks().done(sequence);
                if sequence.wrapping_sub(done.load(Acquire) as u32) < u32::MAX / 2 {
                    done.store(sequence.into(), Release);
                }
            }
            Event::Reaped(tenant) => {
                self.world.slices[tenant].empty.set(true);
                self.world.stir();
            }
            Event::Script(entry) => {
                let action = self.world.setup.script[entry].1.clone();
                self.follow(&action);
            }
        }
    }

    /// Resumes a thread until it sleeps again.
    fn act(&mut self, thread: usize) {
        let world = &self.world;
        let its = &world.threads[thread];
        let slice = &world.slices[its.tenant];
        if slice.stopped.get() {
            return slice.parked.borrow_mut().push(thread);
        }
        its.sleep.set(Sleep::Until(0));
        let Some(life) = &mut self.lives[thread] else { return };
        match life.resume(()) {
            CoroutineResult::Return(()) => self.lives[thread] = None,
            CoroutineResult::Yield(sleep) => {
                its.sleep.set(sleep);
                if let Sleep::Until(at) | Sleep::Turn(at) = sleep {
                    world.act_at(thread, at);
                }
            }
        }
    }

    fn round(&mut self) {
        self.world.round.set(None);
        let now = self.now();
        self.ask_driver();
        self.world.report.borrow_mut().looks += u64::from(self.rounds.is_some());
        let Some(rounds) = &mut self.rounds else { return };
        let again = rounds.go(now, self.world.stirred.take(), |premises| {
            let slice = &premises.world.slices[premises.tenant];
            slice.heard.get() && slice.rung.take()
        });
        let late = self.world.wakes(self.world.setup.delays.alarm) - self.world.now.get();
        self.world.round_at(again.nanos() + late);
    }

    /// Passes the driver's utilisation over the last second to the daemon's rounds.
    fn ask_driver(&mut self) {
        let (now, Some(rounds)) = (self.world.now.get(), &mut self.rounds) else { return };
        if now < self.asks_driver_at {
            return;
        }
        self.asks_driver_at = now + SAMPLE;
        for (tenant, player) in self.world.setup.tenants.iter().enumerate() {
            let ran = self.world.report.borrow().ran(tenant, now.saturating_sub(SAMPLE), now);
            let busy = permille(u32::try_from(ran * 1000 / SAMPLE).unwrap_or(1000).min(1000));
            for gpu in &player.terms.gpus {
                rounds.confirm(Instant::from_nanos(now), &name(tenant), *gpu, Some(busy));
            }
        }
    }

    fn daemon_begins(&mut self) {
        let Policy::Arbiter(rules) = self.world.setup.policy else { return };
        let mut rounds = Rounds::new(rules);
        for (tenant, player) in self.world.setup.tenants.iter().enumerate() {
            self.world.slices[tenant].heard.set(true);
            let premises = Premises { world: Rc::clone(&self.world), tenant };
            rounds.admit(self.now(), name(tenant), player.terms.clone(), &player.terms.gpus, premises);
        }
        self.rounds = Some(rounds);
        self.world.daemon_ended.set(false);
        self.world.round.set(None);
        self.world.stir();
    }

    fn follow(&mut self, action: &Action) {
        let (world, now) = (&self.world, self.now());
        match action {
            Action::Change(tenant, terms) => {
                if let Some(rounds) = &mut self.rounds {
                    rounds.change(now, &name(*tenant), terms.clone());
                }
                world.stir();
            }
            Action::Stop(tenant) => world.slices[*tenant].stopped.set(true),
            Action::Continue(tenant) => {
                world.slices[*tenant].stopped.set(false);
                for thread in world.slices[*tenant].parked.take() {
                    world.act_at(thread, world.now.get());
                }
            }
            Action::Kill(tenant) => self.kill(*tenant),
            Action::DaemonDies => {
                self.rounds = None;
                world.daemon_ended.set(true);
            }
            Action::DaemonReturns => self.daemon_begins(),
        }
    }

    fn kill(&mut self, tenant: usize) {
        let dead = self.world.processes.iter().enumerate().filter(|(_, process)| process.tenant == tenant);
        dead.for_each(|(process, _)| self.world.remove_contexts(process));
        let threads = self.world.threads.iter().zip(&mut self.lives);
        for (its, life) in threads.filter(|(its, _)| its.tenant == tenant) {
            its.turn.set(its.turn.get() + 1);
            *life = None;
        }
        self.world.push(self.world.later(self.world.setup.delays.reap), Event::Reaped(tenant));
    }
}
