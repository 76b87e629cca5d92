//! Launches: the door that each comes through, and what the gate needs of this thread, machine and driver.
//!
//! A governed launch (`jump!`) goes on to the driver's function, with the program's arguments where they are, as long as the
//! thread has launches left under the present lease. All others go to a function of ours with the same arguments. A copy or
//! fill (`pass!`) goes on likewise unless it counts.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};

use tranche_policy::{Awaited, Gate, Host, Launch, Pending, Place, Transfer, Work};
use tranche_shm::DeviceSlot;
use tranche_shm::control::Control;

use crate::attach::{self, Inside};
use crate::connection;
use crate::cuda::{SUCCESS, capture, device, driver, mark, placement, pool};
use crate::progress;
use crate::root::Word;
use crate::{bell, sys, thread};

/// The turn that no thread holds.
static SHUT: AtomicU64 = AtomicU64::new(u64::MAX);

/// What each launch compares: the slice's lease, or, where every launch must be looked at, what no thread holds.
pub(crate) static LEASE: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const SHUT).cast_mut());

/// What is not known to be uncounted.
static UNKNOWN: AtomicU64 = AtomicU64::new(1);

/// Where each copy and fill finds whether it counts: in the slice's control region, as soon as the first has looked.
pub(crate) static TRANSFERS: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const UNKNOWN).cast_mut());

/// Captures that have begun and not ended, as far as the program has said so.
static CAPTURES: AtomicU32 = AtomicU32::new(0);

/// A stream, as the driver is to be asked about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream(pub(crate) u64);

impl Stream {
    /// Of a function in whose name stream 0 is the calling thread's own.
    pub(crate) const fn per_thread(stream: u64) -> Self {
        Self(if stream == 0 { pool::PER_THREAD } else { stream })
    }

    /// A number that no other queue of the process has. In a context the legacy stream is one, and each thread has
    /// one that is its own.
    fn number(self, context: u64) -> u64 {
        match self.0 {
            0 | LEGACY => context ^ 1 << 62,
            pool::PER_THREAD => context ^ thread::number() ^ 1 << 63,
            handle => handle,
        }
    }

    fn is_captured(self) -> bool {
        let mut status = 0;
        // SAFETY: writes one value into a local.
        let asked = unsafe { driver::cuStreamIsCapturing(self.0, &mut status) };
        // The legacy stream may not even be asked while another captures: then the driver has its say on the launch.
        asked == STREAM_CAPTURE_IMPLICIT || asked == SUCCESS && status != 0
    }
}

/// `CU_STREAM_LEGACY`
const LEGACY: u64 = 1;
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`
const STREAM_CAPTURE_IMPLICIT: c_int = 906;

/// Lets one launch through the gate, and then the thread launch by itself as often as the gate says.
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

/// Lets a copy or fill through: as a launch if it counts, and else at once.
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

/// The gate, if there is one to be told of what the program does besides launching.
fn governed() -> Option<(Inside, Gate<'static>)> {
    let inside = attach::inside()?;
    let gate = gate(&inside)?;
    gate.is_governed().then_some((inside, gate))
}

/// To be handed to [`after_wait`].
pub(crate) fn before_wait() -> Pending {
    let pending = |(inside, gate): (Inside, Gate<'static>)| gate.pending(&Machine { inside: &inside, gate });
    governed().map(pending).unwrap_or_default()
}

/// The program has waited for its work, in this stream if it was for one.
pub(crate) fn after_wait(before: Pending, what: Awaited, stream: Option<Stream>) {
    let Some((inside, gate)) = governed() else { return };
    let Some(place) = place(&inside, stream) else { return };
    let machine = Machine { inside: &inside, gate };
    gate.waited(thread::spend(), what, place, before, &machine);
}

/// A context has ended, and with it all that it had outstanding and was given.
pub(crate) fn context_ended(context: u64) {
    let Some(inside) = attach::inside() else { return };
    progress::forget(inside.root, context);
    capture::context_gone(context);
    if let Some(gate) = gate(&inside) {
        gate.context_gone(context);
    }
}

/// A device's primary context has ended.
pub(crate) fn primary_ended(device: c_int) {
    let (Some(inside), Ok(ledger)) = (attach::inside(), attach::ledger()) else { return };
    let primary = |context: &u64| ledger.may_be_primary(*context);
    progress::contexts_on(inside.root, device).filter(primary).for_each(context_ended);
}

/// An executable graph is no more.
pub(crate) fn graph_gone(graph: u64) {
    if let Some(gate) = attach::inside().and_then(|inside| gate(&inside)) {
        gate.graph_gone(graph);
    }
}

/// From now on every launch asks whether it is captured.
pub(crate) fn capture_begins() {
    CAPTURES.fetch_add(1, Relaxed);
    LEASE.store((&raw const SHUT).cast_mut(), Relaxed);
}

/// A capture is over, or never began.
pub(crate) fn capture_ends() {
    let _ = CAPTURES.fetch_update(Relaxed, Relaxed, |captures| captures.checked_sub(1));
}

/// Captures under way, as far as the program has said so.
#[cfg(test)]
pub(crate) fn captures() -> u32 {
    CAPTURES.load(Relaxed)
}

/// Calls into the driver that are ours and not the program's, and must not disturb its captures.
pub(crate) fn undisturbed<T>(call: impl FnOnce() -> T) -> T {
    if CAPTURES.load(Relaxed) == 0 { call() } else { mark::unnoticed(call) }
}

/// Where work runs that is put into this stream: in the stream's context, on the stream's device. In a slice of one device
/// it can run on no other, so that the driver need not be asked unless the calling thread has no context.
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

/// The thread and the machine around it.
struct Machine<'a> {
    inside: &'a Inside,
    gate: Gate<'static>,
}

impl Host for Machine<'_> {
    fn now_ns(&self) -> u64 {
        sys::quick_now_ns()
    }

    fn sleep_ns(&self, nanoseconds: u64) {
        sys::sleep_ns(nanoseconds);
    }

    fn wait_for_turn(&self, turn: u32, nanoseconds: u64) {
        sys::wait_while(self.inside.control.lease_word(), turn, nanoseconds);
    }

    fn ring(&self) {
        let daemon = self.inside.control.daemon();
        if self.inside.root.word(Word::Daemon).load(Acquire) != daemon {
            connection::renew(self.inside.root, daemon);
        }
        bell::ring();
    }

    fn refresh(&self) -> bool {
        progress::refresh(self.inside, self.gate.pending_marks())
    }
}

/// One launch of the program's.
struct One<'a, F> {
    inside: &'a Inside,
    stream: Option<Stream>,
    /// Where it runs, once that was asked.
    place: Cell<Option<Place>>,
    real: F,
}

impl<F: Fn() -> c_int> Launch for One<'_, F> {
    /// Where none has begun there is none to be asked for.
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
