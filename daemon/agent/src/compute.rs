//! Who may use a GPU now: the arbiter of `tranche-domain`, driven by what the slices' processes ring and write.
//!
//! One thread of its own does nothing else: it sleeps until a slice rings, a slice changes, or the arbiter wants
//! to look again, reads the compute records of those that may want something, asks the arbiter, and writes the
//! leases that change. While nobody is busy it wakes only to say that the daemon is alive.

mod account;
mod bells;
mod member;
mod premises;
mod rounds;
mod site;
mod used;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tranche_domain::compute::{Instant, Rules, Terms, Why, Window};
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::slice::Slice;
use tranche_domain::units::Permille;

use crate::clock::monotonic_ns;
use crate::config::Transfers;
use crate::tenancy::Tenancy;
use crate::watchdog::Answer;
use bells::{Bells, Number};
use premises::Premises;
use used::Used;

/// Use of a GPU over the last second, in thousandths, that counts as work.
const WORKS: u32 = 10;

pub use account::Account;
pub use rounds::Rounds;
pub use site::Site;

/// How compute is bounded, in the words of [`tranche_domain::view::NodeView::compute_enforcement`].
pub(crate) const TECHNIQUE: &str =
    "GPU time, by a gate before each launch; a running kernel is not interrupted";

/// The slices whose compute is governed, and the thread that does it.
pub(crate) struct Governor {
    state: Mutex<State>,
    bells: Arc<Bells>,
    transfers: Transfers,
    stopping: AtomicBool,
    /// What the watchdog asked, until the thread comes to it.
    asked: Mutex<Option<Answer>>,
}

/// What there is to see of a slice's compute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// What it used of each of its devices over a second and over a minute.
    pub(crate) used: Vec<(Permille, Permille)>,
    /// What it used of each of its devices, with what earlier slices of its name did since the daemon started.
    pub(crate) busy: Vec<Duration>,
    /// Nothing where it is not known.
    pub(crate) why: Option<Why>,
    /// Launches let through because nothing that was outstanding made progress.
    pub(crate) passes: u64,
    /// Launches let through because there was no daemon.
    pub(crate) degraded: u64,
}

struct State {
    rounds: Rounds<Premises>,
    /// By slices that have ended.
    used: Used,
    next_number: Number,
}

impl State {
    /// Keeps what a slice used that ends, if it is governed.
    fn depart(&mut self, name: &SliceName) {
        let Some(premises) = self.rounds.site(name) else { return };
        let busy = self.rounds.busy(name).unwrap_or_default();
        self.used.end(name, &premises.tenancy.gpus, &busy);
    }
}

/// The thread; it ends with this.
pub(crate) struct Running {
    governor: Arc<Governor>,
    thread: Option<JoinHandle<()>>,
}

impl Governor {
    pub(crate) fn new(transfers: Transfers) -> io::Result<Self> {
        let rounds = Rounds::new(Rules::default());
        let state = Mutex::new(State { rounds, used: Used::default(), next_number: Number::FIRST });
        let bells = Arc::new(Bells::new()?);
        Ok(Self { state, bells, transfers, stopping: AtomicBool::new(false), asked: Mutex::default() })
    }

    /// Whether copies and fills count as launches do.
    pub(crate) fn counts_transfers(&self) -> bool {
        self.transfers == Transfers::Counted
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the state")
    }

    /// Begins to govern.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<Running> {
        let governor = Arc::clone(self);
        let thread = thread::Builder::new().name("compute".into()).spawn(move || governor.run())?;
        Ok(Running { governor: Arc::clone(self), thread: Some(thread) })
    }

    /// Governs a slice from now on; one of the same name is forgotten.
    pub(crate) fn admit(&self, slice: &Slice, tenancy: &Arc<Tenancy>) -> io::Result<()> {
        tenancy.regions.control().set_transfers(self.transfers == Transfers::Counted);
        let mut state = self.state();
        let number = state.next_number.take();
        self.bells.watch(tenancy.regions.bell(), number)?;
        let premises = Premises::new(Arc::clone(tenancy), number, Arc::clone(&self.bells));
        state.depart(&slice.name);
        state.used.begin(&slice.name);
        let before = state.rounds.admit(now(), slice.name.clone(), terms(slice), &tenancy.gpus, premises);
        if let Some(before) = before {
            self.bells.forget(before.tenancy.regions.bell());
        }
        drop(state);
        self.wake();
        Ok(())
    }

    /// A slice's terms changed.
    pub(crate) fn change(&self, slice: &Slice) {
        self.state().rounds.change(now(), &slice.name, terms(slice));
        self.wake();
    }

    /// These slices use their GPUs without saying so, and no others; so much they did until now that was not known.
    pub(crate) fn mistrust(&self, whom: &BTreeMap<SliceName, Duration>) {
        self.state().rounds.mistrust(now(), whom);
    }

    /// So much of the time the driver saw a slice's processes compute on a GPU lately, if it can say.
    pub(crate) fn confirm(&self, name: &SliceName, gpu: GpuUuid, busy: Option<Permille>) {
        self.state().rounds.confirm(now(), name, gpu, busy);
    }

    /// These slices keep their GPUs from others and compute nothing, and no others.
    pub(crate) fn expect_nothing(&self, of: &BTreeSet<SliceName>) {
        self.state().rounds.expect_nothing(now(), of);
    }

    /// For what part of the last second others waited because of a slice.
    pub(crate) fn kept(&self, name: &SliceName) -> Permille {
        self.state().rounds.arbiter().kept(now(), name)
    }

    /// A slice ended.
    pub(crate) fn leave(&self, name: &SliceName) {
        let mut state = self.state();
        state.depart(name);
        if let Some(premises) = state.rounds.leave(now(), name) {
            self.bells.forget(premises.tenancy.regions.bell());
        }
        drop(state);
        self.wake();
    }

    /// Somebody left a slice, and what it had outstanding counts no more.
    pub(crate) fn wake(&self) {
        self.bells.wake();
    }

    /// Has the thread give this answer when it next gets through a round.
    pub(crate) fn answer_next_time(&self, answer: Answer) {
        *self.asked() = Some(answer);
        self.wake();
    }

    fn asked(&self) -> MutexGuard<'_, Option<Answer>> {
        self.asked.lock().expect("nothing panics while it holds what was asked")
    }

    /// What a slice used lately and why it waits, if it does; nothing if it is not governed.
    pub(crate) fn show(&self, name: &SliceName) -> Option<Shown> {
        let state = self.state();
        let (now, arbiter) = (now(), state.rounds.arbiter());
        let used = |gpu: &GpuUuid| {
            let over = |window| arbiter.used(now, name, *gpu, window);
            (over(Window::Second), over(Window::Minute))
        };
        let gpus = &state.rounds.site(name)?.tenancy.gpus;
        let busy = state.rounds.busy(name)?;
        let busy = gpus.iter().zip(busy);
        let busy = busy.map(|(gpu, busy)| state.used.before(name, *gpu) + Duration::from_nanos(busy.get()));
        let (passes, degraded) = state.rounds.let_through(name)?;
        let used: Vec<_> = gpus.iter().map(used).collect();
        // Between two short kernels a program has no work, and keeps the GPU busy all the same.
        let why = match arbiter.why_waiting(name) {
            Why::NoWork if used.iter().any(|(second, _)| second.get() >= WORKS) => Why::Running,
            why => why,
        };
        Some(Shown { used, busy: busy.collect(), why: Some(why), passes, degraded })
    }

    /// What all slices used of a GPU since the daemon started.
    pub(crate) fn total(&self, gpu: GpuUuid) -> Duration {
        let state = self.state();
        let of = |name: &SliceName| {
            let at = state.rounds.site(name)?.tenancy.gpus.iter().position(|own| *own == gpu)?;
            state.rounds.busy(name)?.get(at).copied()
        };
        let now: Duration =
            state.rounds.names().filter_map(of).map(|busy| Duration::from_nanos(busy.get())).sum();
        now + state.used.of_gpu(gpu)
    }

    /// How late the loop is.
    pub(crate) fn lateness(&self) -> Duration {
        Duration::from_nanos(self.state().rounds.lateness(now()).get())
    }

    fn run(&self) {
        let mut alarm = None;
        while !self.stopping.load(Ordering::Acquire) {
            let rung = self.bells.wait();
            let rang = |premises: &Premises| rung.contains(premises.number);
            let deadline = self.state().rounds.go(now(), rung.ourselves(), rang);
            if alarm.replace(deadline) != Some(deadline) {
                self.bells.alarm(deadline);
            }
            if rung.ourselves()
                && let Some(answer) = self.asked().take()
            {
                answer.give();
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.governor.stopping.store(true, Ordering::Release);
        self.governor.wake();
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has said why.
            let _ = thread.join();
        }
    }
}

fn terms(slice: &Slice) -> Terms {
    let mut gpus: Vec<GpuUuid> = slice.parts.iter().map(|part| part.gpu).collect();
    gpus.sort_unstable();
    let (request, limit) = (slice.guaranteed(), slice.limit);
    Terms { gpus, request, limit, priority: slice.priority, frozen: slice.frozen }
}

fn now() -> Instant {
    Instant::from_nanos(monotonic_ns())
}

#[cfg(test)]
#[path = "compute_tests.rs"]
mod tests;
