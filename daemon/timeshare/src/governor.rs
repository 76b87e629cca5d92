//! The scheduler of all slices' GPU time, and its thread.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tranche_domain::compute::{ComputeTerms, Gang, Instant, Nanos, Rules, Waits, Why, Window};
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::slice::Slice;
use tranche_domain::units::Permille;

use crate::check::CheckReply;
use crate::handle::SliceHandle;
use crate::measured::MeasuredUse;
use crate::rounds::Rounds;
use crate::used::{Readings, Used};
use crate::wakeups::{Number, Wakeups};
use tranche_linux::clock::monotonic_ns;

use tranche_shm::CountedTransfers;
use tranche_slices::slice_runtime::SliceRuntime;

/// Use of a GPU over the last second, in thousandths, from which a slice counts as running.
const WORKS: u32 = 10;

/// Enforcement technique, as in [`tranche_domain::view::NodeView::compute_enforcement`].
pub const TECHNIQUE: &str = "GPU time, by a gate before each launch; a running kernel is not interrupted";

/// Scheduler of all slices' GPU time, with its thread.
pub struct Governor {
    state: Mutex<GovernorState>,
    wakeups: Arc<Wakeups>,
    counted: CountedTransfers,
    stopping: AtomicBool,
    /// Pending question of the watchdog, until the thread's next iteration.
    asked: Mutex<Option<CheckReply>>,
}

/// A slice's use of compute, for views and metrics.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Use of each device over one second and over one minute.
    pub used: Vec<(Permille, Permille)>,
    /// Time used of each device, including earlier slices of the name since the daemon started.
    pub busy: Vec<Duration>,
    /// Reason for waiting; `None` if the slice is unknown to the scheduler.
    pub why: Option<Why>,
    /// Launches admitted because no outstanding work made progress.
    pub passes: u64,
    /// Launches admitted because there was no daemon.
    pub degraded: u64,
    /// Waits for the GPU, counted if the slice has a latency target.
    pub waits: Waits,
}

struct GovernorState {
    rounds: Rounds<SliceHandle>,
    /// Use by slices that have ended.
    used: Used,
    /// Use by programs without the shim.
    measured: MeasuredUse,
    next_number: Number,
}

impl GovernorState {
    /// Retains the use of a slice that ends, if it is scheduled.
    fn depart(&mut self, name: &SliceName) {
        self.rounds.settle(now(), name);
        let Some((gpus, busy)) = self.busy(name) else { return };
        self.used.end(name, &gpus, &busy);
        self.measured.end(name);
    }

    /// GPUs of a slice, and its use of each since it was admitted, with the use that the driver measured.
    fn busy(&self, name: &SliceName) -> Option<(Vec<GpuUuid>, Vec<Nanos>)> {
        let gpus = self.rounds.site(name)?.runtime.gpus.clone();
        let scheduled = self.rounds.busy(name)?;
        let sum = |(gpu, busy): (&GpuUuid, Nanos)| {
            Nanos::new(busy.get().saturating_add(self.measured.total(name, *gpu).get()))
        };
        let busy = gpus.iter().zip(scheduled).map(sum).collect();
        Some((gpus, busy))
    }
}

/// The running thread; dropping it ends the thread and waits for it.
pub struct RunningGovernor {
    governor: Arc<Governor>,
    thread: Option<JoinHandle<()>>,
}

impl Governor {
    /// A scheduler without slices, whose thread is not started.
    ///
    /// The `counted` copies and fills count as launches do.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub fn new(counted: CountedTransfers) -> io::Result<Self> {
        let rounds = Rounds::new(Rules::default());
        let state = Mutex::new(GovernorState {
            rounds,
            used: Used::default(),
            measured: MeasuredUse::default(),
            next_number: Number::FIRST,
        });
        let wakeups = Arc::new(Wakeups::new()?);
        Ok(Self { state, wakeups, counted, stopping: AtomicBool::new(false), asked: Mutex::default() })
    }

    /// Returns the copies and fills that count as launches do.
    pub fn counted_transfers(&self) -> CountedTransfers {
        self.counted
    }

    fn state(&self) -> MutexGuard<'_, GovernorState> {
        self.state.lock().expect("nothing panics while it holds the state")
    }

    /// Starts the thread that decides about leases.
    pub fn start(self: &Arc<Self>) -> io::Result<RunningGovernor> {
        let governor = Arc::clone(self);
        let thread = thread::Builder::new().name("compute".into()).spawn(move || governor.run())?;
        Ok(RunningGovernor { governor: Arc::clone(self), thread: Some(thread) })
    }

    /// Schedules a slice, replacing one of the same name.
    pub fn admit(&self, slice: &Slice, runtime: &Arc<SliceRuntime>) -> io::Result<()> {
        self.show_presence(slice, runtime);
        let mut state = self.state();
        let number = state.next_number.take();
        self.wakeups.add(runtime.regions.bell(), number)?;
        let handle = SliceHandle::new(Arc::clone(runtime), number, Arc::clone(&self.wakeups));
        state.depart(&slice.name);
        state.used.begin(&slice.name);
        let before = state.rounds.admit(now(), slice.name.clone(), terms(slice), &runtime.gpus, handle);
        if let Some(before) = before {
            self.wakeups.remove(before.runtime.regions.bell());
        }
        drop(state);
        self.wake();
        Ok(())
    }

    /// Shows the processes of a slice if it is away from its GPUs. What waits is woken by the change of its terms.
    pub fn show_presence(&self, slice: &Slice, runtime: &SliceRuntime) {
        let (control, is_away) = (runtime.regions.control(), slice.parked.is_some());
        control.set_transfers(if is_away { CountedTransfers::Held } else { self.counted });
        control.set_away(is_away);
    }

    /// Applies a slice's changed terms.
    pub fn change(&self, slice: &Slice) {
        self.state().rounds.change(now(), &slice.name, terms(slice));
        self.wake();
    }

    /// Sets the slices that use their GPUs without recording it, each with the unrecorded use until now.
    pub fn mistrust(&self, whom: &BTreeMap<SliceName, Duration>) {
        self.state().rounds.mistrust(now(), whom);
    }

    /// Takes in the share of time in which the driver saw a slice's processes compute. `None` if the driver has no
    /// figure.
    pub fn confirm(&self, name: &SliceName, gpu: GpuUuid, busy: Option<Permille>) {
        self.state().rounds.confirm(now(), name, gpu, busy);
    }

    /// Sets the slices that keep their GPUs from others without computing.
    pub fn expect_nothing(&self, of: &BTreeSet<SliceName>) {
        self.state().rounds.expect_nothing(now(), of);
    }

    /// Share of the last second in which a slice kept others waiting.
    pub fn kept(&self, name: &SliceName) -> Permille {
        self.state().rounds.arbiter().kept(now(), name)
    }

    /// Stops scheduling a slice.
    pub fn leave(&self, name: &SliceName) {
        let mut state = self.state();
        state.depart(name);
        if let Some(handle) = state.rounds.leave(now(), name) {
            self.wakeups.remove(handle.runtime.regions.bell());
        }
        drop(state);
        self.wake();
    }

    /// Charges a slice for what its records show. A record that is cleared between two iterations would be lost otherwise.
    pub fn settle(&self, name: &SliceName) {
        self.state().rounds.settle(now(), name);
    }

    /// Wakes the thread for a full iteration, as when a process has ended and its outstanding work is void.
    pub fn wake(&self) {
        self.wakeups.wake();
    }

    /// Makes the thread answer the watchdog in its next iteration.
    pub fn answer_next_time(&self, answer: CheckReply) {
        *self.asked() = Some(answer);
        self.wake();
    }

    fn asked(&self) -> MutexGuard<'_, Option<CheckReply>> {
        self.asked.lock().expect("nothing panics while it holds what was asked")
    }

    /// Recent use of a slice and its reason for waiting; `None` if it is not scheduled.
    pub fn show(&self, name: &SliceName) -> Option<Shown> {
        let state = self.state();
        let (now, arbiter) = (now(), state.rounds.arbiter());
        let used = |gpu: &GpuUuid| {
            let over = |window| {
                let measured = state.measured.used(name, *gpu, now, window);
                arbiter.used(now, name, *gpu, window).checked_add(measured).unwrap_or(Permille::WHOLE)
            };
            (over(Window::Second), over(Window::Minute))
        };
        let (gpus, busy) = state.busy(name)?;
        let busy = gpus.iter().zip(busy);
        let busy = busy.map(|(gpu, busy)| state.used.before(name, *gpu) + Duration::from_nanos(busy.get()));
        let (passes, degraded) = state.rounds.let_through(name)?;
        let used: Vec<_> = gpus.iter().map(used).collect();
        // Between two short kernels a program has no outstanding work, yet keeps the GPU busy.
        let why = match arbiter.why_waiting(name) {
            Why::NoWork if used.iter().any(|(second, _)| second.get() >= WORKS) => Why::Running,
            why => why,
        };
        let waits = arbiter.waits(name);
        Some(Shown { used, busy: busy.collect(), why: Some(why), passes, degraded, waits })
    }

    /// Adds a sample of a slice's use by programs without the shim.
    ///
    /// `percent` is of the GPU's time since the last sample.
    pub fn measure(&self, name: &SliceName, gpu: GpuUuid, percent: u32) {
        let mut state = self.state();
        if state.rounds.site(name).is_some() {
            state.measured.add(name, gpu, now(), percent);
        }
    }

    /// GPU time of each slice since it was admitted, and that of slices that ended since the last call.
    ///
    /// For a single reader.
    pub fn readings(&self) -> Readings {
        let mut state = self.state();
        let mut live = BTreeMap::new();
        for name in state.rounds.names() {
            for (gpu, busy) in
                state.busy(name).into_iter().flat_map(|(gpus, busy)| gpus.into_iter().zip(busy))
            {
                live.insert((name.clone(), gpu), Duration::from_nanos(busy.get()));
            }
        }
        Readings { live, ended: state.used.take_ended() }
    }

    /// Use of a GPU by all slices since the daemon started.
    pub fn total(&self, gpu: GpuUuid) -> Duration {
        let state = self.state();
        let of = |name: &SliceName| {
            let (gpus, busy) = state.busy(name)?;
            gpus.iter().position(|own| *own == gpu).and_then(|at| busy.get(at).copied())
        };
        let now: Duration =
            state.rounds.names().filter_map(of).map(|busy| Duration::from_nanos(busy.get())).sum();
        now + state.used.of_gpu(gpu)
    }

    /// Time by which the loop is overdue.
    pub fn lateness(&self) -> Duration {
        Duration::from_nanos(self.state().rounds.lateness(now()).get())
    }

    fn run(&self) {
        let mut alarm = None;
        while !self.stopping.load(Ordering::Acquire) {
            let signalled = self.wakeups.wait();
            let has_signalled = |handle: &SliceHandle| signalled.contains(handle.number);
            let deadline = self.state().rounds.go(now(), signalled.by_daemon(), has_signalled);
            if alarm.replace(deadline) != Some(deadline) {
                self.wakeups.set_timer(deadline);
            }
            if signalled.by_daemon()
                && let Some(answer) = self.asked().take()
            {
                answer.give();
            }
        }
    }
}

impl Drop for RunningGovernor {
    fn drop(&mut self) {
        self.governor.stopping.store(true, Ordering::Release);
        self.governor.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has already been reported by its hook.
            let _ = thread.join();
        }
    }
}

fn terms(slice: &Slice) -> ComputeTerms {
    let mut gpus: Vec<GpuUuid> = slice.parts.iter().map(|part| part.gpu).collect();
    gpus.sort_unstable();
    let (request, limit) = (slice.guaranteed(), slice.limit);
    let gang = slice.gang.clone().map(|name| Gang { owner_uid: slice.owner_uid, name });
    let (priority, frozen, latency) = (slice.priority, slice.is_held(), slice.latency);
    ComputeTerms { gpus, request, limit, priority, frozen, latency, gang }
}

fn now() -> Instant {
    Instant::from_nanos(monotonic_ns())
}

#[cfg(test)]
#[path = "governor_tests.rs"]
mod tests;
