//! Launches: their path through the gate, and the gate's view of thread, machine and driver.
//!
//! A governed launch (`jump!`) jumps to the driver's function, with the program's arguments in place, as long as the
//! thread has launches left under the present lease. All others go to a function of the shim with the same arguments.
//! A copy or fill (`pass!`) takes the direct path likewise unless it counts.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};

use tranche_policy::{Awaited, Gate, Host, Launch, Pending, Place, Transfer, Work};
use tranche_shm::DeviceSlot;
use tranche_shm::control::Control;
use tranche_shm::lease::Lease;

use crate::attach::{self, Inside};
use crate::connection;
use crate::cuda::abi::SUCCESS;
use crate::cuda::{capture, device, driver, mark, placement, pool};
use crate::progress;
use crate::root::Word;
use crate::{bell, sys, thread};

/// A lease whose turn no thread holds.
static SHUT: AtomicU64 = AtomicU64::new(u64::MAX);

/// The word that each launch compares: the slice's lease, or a turn that no thread holds.
pub(crate) static LEASE: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const SHUT).cast_mut());

/// Initial value of [`TRANSFERS`]: counts until the control region is known.
static UNKNOWN: AtomicU64 = AtomicU64::new(1);

/// The word by which each copy and fill decides: the control region's, once the first has attached.
pub(crate) static TRANSFERS: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const UNKNOWN).cast_mut());

/// Captures that have begun and not ended, as far as the program's calls show.
static CAPTURES: AtomicU32 = AtomicU32::new(0);

/// A stream, as the driver's queries take it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream(pub(crate) u64);

impl Stream {
    /// The stream of a function in whose name stream 0 is the calling thread's own.
    pub(crate) const fn per_thread(stream: u64) -> Self {
        Self(if stream == 0 { pool::PER_THREAD } else { stream })
    }

    /// Number that no other queue of the process has.
    ///
    /// In a context the legacy stream is one, and each thread has one of its own.
    fn number(self, context: u64) -> u64 {
        match self.0 {
            0 | LEGACY => context ^ 1 << 62,
            pool::PER_THREAD => context ^ thread::number() ^ 1 << 63,
            handle => handle,
        }
    }

    fn is_captured(self) -> bool {
        let mut status = 0;
        // SAFETY: the driver writes one value into a local; the stream is the program's, valid by the launch's
        // contract.
        let asked = unsafe { driver::cuStreamIsCapturing(self.0, &mut status) };
        // The legacy stream may not even be queried while another captures: then the driver decides about the launch.
        asked == STREAM_CAPTURE_IMPLICIT || asked == SUCCESS && status != 0
    }
}

/// `CU_STREAM_LEGACY`
const LEGACY: u64 = 1;
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`
const STREAM_CAPTURE_IMPLICIT: c_int = 906;

/// Passes one launch through the gate, and grants the thread as many as the gate allows.
pub(crate) fn through(stream: Option<Stream>, work: Work, real: impl Fn() -> c_int) -> c_int {
    let spent = thread::spend();
    let Some(inside) = attach::inside() else { return real() };
    let Some(gate) = gate(&inside) else { return real() };
    let machine = Machine { inside: &inside, gate };
    let one = One { inside: &inside, stream, place: Cell::new(None), real };
    let (result, grant) = gate.launch(spent, work, &machine, &one);
    thread::grant(grant);
    let open = if CAPTURES.load(Relaxed) > 0 { &SHUT } else { inside.control.lease_word() };
    let open = core::ptr::from_ref(open).cast_mut();
    if LEASE.load(Relaxed) != open {
        LEASE.store(open, Relaxed);
    }
    result
}

/// Passes a copy or fill: as a launch if it counts, and else at once.
pub(crate) fn transferred(
    stream: Stream,
    what: impl FnOnce() -> Transfer,
    real: impl Fn() -> c_int,
) -> c_int {
    let Some(inside) = attach::inside() else { return real() };
    let word = inside.control.transfers_word();
    if !core::ptr::eq(TRANSFERS.load(Relaxed), word) {
        TRANSFERS.store(core::ptr::from_ref(word).cast_mut(), Relaxed);
    }
    if Control::counts(word.load(Acquire)) {
        through(Some(stream), Work::Transfer(what()), real)
    } else {
        real()
    }
}

fn gate(inside: &Inside) -> Option<Gate<'static>> {
    Gate::over(inside.control, inside.record, inside.root.gate(), sys::pause)
}

/// The gate, if the slice has one, for notices about calls other than launches.
fn governed() -> Option<(Inside, Gate<'static>)> {
    let inside = attach::inside()?;
    let gate = gate(&inside)?;
    gate.is_governed().then_some((inside, gate))
}

/// State before a wait, for [`after_wait`].
pub(crate) fn before_wait() -> Pending {
    let pending = |(inside, gate): (Inside, Gate<'static>)| gate.pending(&Machine { inside: &inside, gate });
    governed().map(pending).unwrap_or_default()
}

/// Notifies the gate that the program has waited for its work, in this stream if it was for one.
pub(crate) fn after_wait(before: Pending, what: Awaited, stream: Option<Stream>) {
    let Some((inside, gate)) = governed() else { return };
    let Some(place) = place(&inside, stream) else { return };
    let machine = Machine { inside: &inside, gate };
    gate.waited(thread::spend(), what, place, before, &machine);
}

/// Ends a context's outstanding work and mappings.
pub(crate) fn context_ended(context: u64) {
    let Some(inside) = attach::inside() else { return };
    progress::forget(inside.root, context);
    capture::context_gone(context);
    if let Some(gate) = gate(&inside) {
        gate.context_gone(context);
    }
}

/// Ends the outstanding work of a device's primary context.
pub(crate) fn primary_ended(device: c_int) {
    let (Some(inside), Ok(ledger)) = (attach::inside(), attach::ledger()) else { return };
    let primary = |context: &u64| ledger.may_be_primary(*context);
    progress::contexts_on(inside.root, device).filter(primary).for_each(context_ended);
}

/// Drops the estimates of an executable graph that was destroyed.
pub(crate) fn graph_gone(graph: u64) {
    if let Some(gate) = attach::inside().and_then(|inside| gate(&inside)) {
        gate.graph_gone(graph);
    }
}

/// Counts a begun capture: every launch queries its stream from now on.
pub(crate) fn capture_begins() {
    CAPTURES.fetch_add(1, Relaxed);
    LEASE.store((&raw const SHUT).cast_mut(), Relaxed);
}

/// Counts the end of a capture, or one that never began.
pub(crate) fn capture_ends() {
    let _ = CAPTURES.fetch_update(Relaxed, Relaxed, |captures| captures.checked_sub(1));
}

/// Captures under way, as far as the program's calls show.
#[cfg(test)]
pub(crate) fn captures() -> u32 {
    CAPTURES.load(Relaxed)
}

/// Makes driver calls of the shim's own, without an effect on the program's captures.
pub(crate) fn undisturbed<T>(call: impl FnOnce() -> T) -> T {
    if CAPTURES.load(Relaxed) == 0 { call() } else { mark::unnoticed(call) }
}

/// Context and device of work in this stream.
///
/// In a slice of one device it can run on no other, so the driver is queried only if the calling thread has no
/// context.
fn place(inside: &Inside, stream: Option<Stream>) -> Option<Place> {
    let current = driver::context().ok().filter(|context| *context != 0);
    let own = || stream.and_then(|stream| placement::context_of(stream.0));
    let (device, context) = match inside.control.device_count() {
        1 => (DeviceSlot::new(0)?, current.or_else(own)?),
        _ => {
            let device = match stream {
                Some(stream) => placement::device_of(stream.0).ok()?,
                None => driver::device().ok()?,
            };
            (device::slot(&*attach::ledger().ok()?, device).ok()?, own().or(current)?)
        }
    };
    Some(Place { device, context, stream: stream.map_or(0, |stream| stream.number(context)) })
}

/// The gate's view of thread and machine.
struct Machine<'a> {
    inside: &'a Inside,
    gate: Gate<'static>,
}

/// Interval in which a thread at a closed gate tests if the daemon has ended, in nanoseconds.
const CHECK_NS: u64 = 25_000_000;

impl Host for Machine<'_> {
    fn now_ns(&self) -> u64 {
        sys::quick_now_ns()
    }

    fn sleep_ns(&self, nanoseconds: u64) {
        sys::sleep_ns(nanoseconds);
    }

    fn wait_for_turn(&self, turn: u32, nanoseconds: u64) {
        let word = self.inside.control.lease_word();
        let mut left = nanoseconds;
        loop {
            let part = left.min(CHECK_NS);
            sys::wait_while(word, turn, part);
            left -= part;
            if left == 0 || Lease::turn(word.load(Acquire)) != turn || self.has_daemon_ended() {
                break;
            }
        }
    }

    fn ring(&self) {
        let daemon = self.inside.control.daemon();
        if self.inside.root.word(Word::Daemon).load(Acquire) != daemon {
            connection::renew(self.inside.root, daemon);
        }
        bell::ring();
    }

    /// A connection to the daemon before is no evidence about the one that serves the slice now.
    fn has_daemon_ended(&self) -> bool {
        let Inside { root, control, .. } = self.inside;
        root.word(Word::Daemon).load(Acquire) == control.daemon() && connection::has_daemon_ended(*root)
    }

    fn refresh(&self) -> bool {
        progress::refresh(self.inside, self.gate.pending_marks())
    }
}

/// One launch of the program.
struct One<'a, F> {
    inside: &'a Inside,
    stream: Option<Stream>,
    /// Its context and device, once queried.
    place: Cell<Option<Place>>,
    real: F,
}

impl<F: Fn() -> c_int> Launch for One<'_, F> {
    /// No stream is queried before the first capture has begun.
    fn is_captured(&self) -> bool {
        CAPTURES.load(Relaxed) > 0 && self.stream.is_some_and(Stream::is_captured)
    }

    fn place(&self) -> Option<Place> {
        self.place.set(place(self.inside, self.stream));
        self.place.get()
    }

    fn launch(&self) -> i32 {
        (self.real)()
    }

    fn mark(&self, sequence: u32) -> bool {
        let (Some(Stream(stream)), Some(place)) = (self.stream, self.place.get()) else { return false };
        let mark = || progress::place(self.inside, place.context, stream, sequence);
        undisturbed(|| match driver::context() {
            Ok(current) if current == place.context => mark(),
            _ => placement::within(place.context, mark).unwrap_or(false),
        })
    }
}
