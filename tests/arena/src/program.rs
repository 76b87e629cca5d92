//! Execution of a thread's load through the gate of its process, on a simulated machine and driver.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use tranche_policy::{Awaited, Grant, Host, Launch, LaunchTarget, Spent, Work};
use tranche_shm::DeviceSlot;
use tranche_shm::lease::Lease;

use crate::US;
use crate::chance::Chance;
use crate::lies::{self, Lie, Lies};
use crate::load::Load;
use crate::world::{Sleep, World};

/// Coroutine of a running program, which yields its sleeps.
pub(crate) type Life = Coroutine<(), Sleep, (), DefaultStack>;

/// More than a gate and a load need.
const STACK: usize = 64 << 10;

/// Random source of a thread's kernels, the same under every policy.
pub(crate) const fn chance(seed: u64, tenant: usize, program: usize) -> Chance {
    Chance::new(seed ^ ((tenant as u64) << 32) ^ ((program as u64) << 48))
}

/// Begins a thread, which is the `index`th of its tenant.
///
/// # Panics
/// If there is no memory for its stack.
pub(crate) fn begin(world: &Rc<World>, thread: usize, index: usize) -> Life {
    let world = Rc::clone(world);
    let stack = DefaultStack::new(STACK).expect("there is memory for a small stack");
    Coroutine::with_stack(stack, move |hand, ()| {
        let chance = chance(world.setup.seed, world.threads[thread].tenant, index);
        Thread { world: &world, thread, hand, chance }.live();
    })
}

/// A thread that runs.
struct Thread<'a> {
    world: &'a World,
    thread: usize,
    /// Through this it hands the clock back.
    hand: &'a Yielder<(), Sleep>,
    chance: Chance,
}

impl Thread<'_> {
    fn its(&self) -> &crate::world::Thread {
        &self.world.threads[self.thread]
    }

    fn now(&self) -> u64 {
        self.world.now.get()
    }

    fn sleep(&self, sleep: Sleep) {
        self.hand.suspend(sleep);
    }

    fn live(&mut self) {
        let (load, ends) = (self.its().program.load, self.its().program.lives.1);
        let costs = self.graphs();
        match load {
            Load::Saturating { .. } => {
                while self.now() < ends {
                    self.launch(&costs);
                }
                self.wait();
            }
            Load::Lying(lies) => self.lie(lies, ends),
            Load::Rounds { batch, gap, .. } => {
                while self.now() < ends {
                    self.round(|thread| (0..batch).for_each(|_| thread.launch(&costs)));
                    let gap = gap.draw(&mut self.chance);
                    self.sleep(Sleep::Until(self.now() + gap));
                }
            }
            Load::Collective { batch, together, .. } => {
                for step in 0.. {
                    if self.now() >= ends {
                        break;
                    }
                    self.round(|thread| {
                        (0..batch).for_each(|_| thread.launch(&costs));
                        thread.launch_on_each(Work::Kernel, together, Some(step));
                    });
                }
            }
        }
    }

    /// Launches and waits, and notes how long that took.
    fn round(&mut self, launch: impl FnOnce(&mut Self)) {
        let began = self.now();
        launch(self);
        self.wait();
        let round = (began, self.now() - began);
        self.world.report.borrow_mut().rounds[self.its().tenant].push(round);
    }

    /// Takes the steps of a strategy until its end.
    fn lie(&self, lies: Lies, ends: u64) {
        let words = self.world.processes[self.its().process].words_of_record();
        let slice = &self.world.slices[self.its().tenant];
        let mut skips = false;
        for lie in lies.steps().into_iter().cycle() {
            if self.now() >= ends {
                return;
            }
            if core::mem::take(&mut skips) && !matches!(lie, Lie::Sleep(_)) {
                continue;
            }
            match lie {
                Lie::Sleep(length) => self.sleep(Sleep::Until(self.now() + length.max(1))),
                Lie::Wakeup => self.ring(),
                Lie::If(open) => skips = slice.reader().lease().open != open,
                _ => lies::write(words, lie, self.now()),
            }
        }
    }

    /// Draws the lengths of its graphs in nanoseconds; none if it launches kernels.
    fn graphs(&mut self) -> Vec<u64> {
        let (lengths, graphs) = (self.its().program.load.kernels(), self.its().program.graphs);
        (0..graphs).map(|_| lengths.draw(&mut self.chance)).collect()
    }

    /// One launch on each of its devices.
    fn launch(&mut self, graphs: &[u64]) {
        let (work, length) = if graphs.is_empty() {
            (Work::Kernel, self.its().program.load.kernels().draw(&mut self.chance))
        } else {
            let which = self.chance.between(0, graphs.len() as u64 - 1);
            // An address, as handles are, and the thread's own.
            let handle = 0x7f00_0000 + (self.thread as u64) * 0x1_0000 + which * 0x240;
            (Work::Graph(handle), graphs[which as usize])
        };
        self.launch_on_each(work, length, None);
    }

    fn launch_on_each(&self, work: Work, length: u64, step: Option<u64>) {
        for device in 0..self.world.slices[self.its().tenant].gpus.len() {
            self.pass(work, &One { thread: self, device, length: length.max(1), step });
        }
    }

    /// Launches under the thread's grant while that lasts, else through the gate, as the library does.
    fn pass(&self, work: Work, one: &One<'_, '_>) {
        let its = self.its();
        let word = self.world.slices[its.tenant].reader().lease_word().load(Relaxed);
        let (grant, left) = (its.grant.get(), its.left.get());
        if work == Work::Kernel && grant.turn == Lease::turn(word) && left > 0 {
            its.left.set(left - 1);
            one.launch();
            return;
        }
        let (_, grant) = self.world.gate(its.process).launch(self.spend(), work, self, one);
        its.grant.set(grant);
        its.left.set(grant.launches);
    }

    /// Takes back the thread's grant. Returns the launches made under it, none where the gate is not
    /// governed.
    fn spend(&self) -> Spent {
        let spent = self.its().grant.replace(Grant::NONE).spent(self.its().left.replace(0));
        if self.world.gate(self.its().process).is_governed() { spent } else { Spent::default() }
    }

    /// Waits for all that it has launched.
    fn wait(&self) {
        let gate = self.world.gate(self.its().process);
        let before = gate.is_governed().then(|| gate.pending(self));
        if self.its().in_flight.get() > 0 {
            self.sleep(Sleep::Drained);
        }
        if gate.is_governed() {
            for device in 0..self.world.slices[self.its().tenant].gpus.len() {
                let place = self.place(device);
                gate.waited(self.spend(), Awaited::Stream, place, before.unwrap_or_default(), self);
            }
        }
    }

    fn place(&self, device: usize) -> LaunchTarget {
        let context = (self.its().process * 16 + device) as u64 + 1;
        LaunchTarget {
            device: DeviceSlot::new(device).expect("a tenant has few devices"),
            context,
            stream: context * 1000 + self.its().program.stream,
        }
    }
}

impl Host for Thread<'_> {
    fn now_ns(&self) -> u64 {
        self.now()
    }

    fn sleep_ns(&self, nanoseconds: u64) {
        let late = self.world.wakes(self.world.setup.delays.nap);
        self.sleep(Sleep::Until(late + nanoseconds));
    }

    fn pause(&self) {
        self.sleep(Sleep::Until(self.now() + 2 * US));
    }

    fn wait_for_turn(&self, turn: u32, nanoseconds: u64) {
        let word = self.world.slices[self.its().tenant].reader().lease_word().load(Relaxed);
        if Lease::turn(word) == turn {
            let late = self.world.wakes(self.world.setup.delays.nap);
            self.sleep(Sleep::Turn(late + nanoseconds));
        }
    }

    fn ring(&self) {
        self.world.ring(self.its().tenant);
    }

    fn has_daemon_ended(&self) -> bool {
        self.world.daemon_ended.get()
    }

    fn refresh(&self) -> bool {
        if self.world.setup.driver.writes_marks {
            return false;
        }
        let process = &self.world.processes[self.its().process];
        let mut others = false;
        for sequence in self.world.gate(self.its().process).pending_marks() {
            if process.event(sequence).get() == u64::from(sequence) + 1 {
                process.record().marks().finish(sequence);
            } else {
                others = true;
            }
        }
        others
    }
}

/// One launch on one device.
struct One<'t, 'a> {
    thread: &'t Thread<'a>,
    device: usize,
    length: u64,
    /// The step whose collective it is.
    step: Option<u64>,
}

impl One<'_, '_> {
    /// Launches that the driver takes ahead of the GPU before it lets its caller wait.
    fn ahead(&self) -> u32 {
        let own = match self.thread.its().program.load {
            Load::Saturating { ahead, .. } => ahead,
            Load::Rounds { .. } | Load::Collective { .. } | Load::Lying(_) => u32::MAX,
        };
        let (world, process) = (self.thread.world, self.thread.its().process);
        let threads = || world.threads.iter().filter(|thread| thread.process == process).count();
        world.setup.driver.room.map_or(own, |room| room / threads() as u32)
    }
}

impl Launch for One<'_, '_> {
    fn is_captured(&self) -> bool {
        false
    }

    fn place(&self) -> Option<LaunchTarget> {
        Some(self.thread.place(self.device))
    }

    fn launch(&self) -> i32 {
        let (its, world) = (self.thread.its(), self.thread.world);
        let first = world.setup.driver.first_launch;
        if !its.launched.replace(true) && first > 0 {
            self.thread.sleep(Sleep::Until(world.now.get() + first));
        }
        while its.in_flight.get() >= self.ahead() {
            self.thread.sleep(Sleep::Room);
        }
        match self.step {
            Some(step) => world.put_collective(self.thread.thread, self.device, step, self.length),
            None => world.put_kernel(self.thread.thread, self.device, self.length),
        }
        self.thread.sleep(Sleep::Until(self.thread.now() + world.setup.delays.launch));
        0
    }

    fn mark(&self, sequence: u32) -> bool {
        self.thread.world.put_mark(self.thread.thread, self.device, sequence);
        true
    }
}
