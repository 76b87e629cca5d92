//! Launches: their path through the gate, and the gate's view of thread, machine and driver.

use core::cell::Cell;
use core::ffi::c_int;
use core::sync::atomic::Ordering::Acquire;

use tranche_policy::{Awaited, Gate, Host, Launch, LaunchTarget, Pending, Transfer, Work};
use tranche_shm::{CountedTransfers, DeviceSlot};

use crate::attach::{self, Inside};
use crate::connection;
use crate::cuda::captures::{self, undisturbed};
use crate::cuda::stream::{self, Stream};
use crate::cuda::{driver, slots};
use crate::driver_call::DriverCall;
use crate::progress;
use crate::root::RootWord;
use crate::{bell, direct, sys, thread};

/// Passes one launch through the gate, and grants the thread as many as the gate allows.
#[inline(always)]
pub(crate) fn through(real: impl Fn() -> c_int, stream: Option<Stream>, work: Work) -> c_int {
    pass(stream, work, DriverCall::of(&real))
}

fn pass(stream: Option<Stream>, work: Work, real: DriverCall<'_>) -> c_int {
    let spent = thread::spend();
    let Some(inside) = attach::inside() else { return real.make() };
    let Some(gate) = gate(&inside) else { return real.make() };
    let machine = LaunchMachine { inside: &inside, gate };
    let one = One { inside: &inside, stream, place: Cell::new(None), real };
    let (result, grant) = gate.launch(spent, work, &machine, &one);
    thread::grant(grant);
    let lease = inside.control.lease_word();
    direct::open(if captures::are_under_way() { None } else { Some(lease) });
    result
}

/// Passes a copy or fill: as a launch if it counts, and else at once.
///
/// One of unknown route counts wherever any does. The kind is determined only where it counts.
#[inline(always)]
pub(crate) fn transferred(
    real: impl Fn() -> c_int,
    stream: Stream,
    what: impl FnOnce() -> Transfer,
) -> c_int {
    let transfer = match counted_transfers() {
        CountedTransfers::None | CountedTransfers::Held => None,
        CountedTransfers::All => Some(what()),
        CountedTransfers::Inside => Some(what()).filter(|transfer| !transfer.is_over_bus()),
    };
    match transfer {
        Some(transfer) => through(real, Some(stream), Work::Transfer(transfer)),
        None => real(),
    }
}

/// Kinds of transfers that count; none outside a slice. Lets later ones that do not count pass by themselves.
#[inline(never)]
fn counted_transfers() -> CountedTransfers {
    let Some(inside) = attach::inside() else { return CountedTransfers::None };
    let word = inside.control.transfers_word();
    direct::decide_by(word);
    CountedTransfers::of_word(word.load(Acquire))
}

/// Waits while the slice is away from its GPUs, and lets later calls pass by themselves.
#[inline(never)]
pub(crate) fn be_present() {
    if let Some(inside) = attach::inside() {
        direct::decide_by(inside.control.transfers_word());
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
    let pending =
        |(inside, gate): (Inside, Gate<'static>)| gate.pending(&LaunchMachine { inside: &inside, gate });
    governed().map(pending).unwrap_or_default()
}

/// State before a query, for [`after_wait`].
pub(crate) fn before_query() -> Pending {
    governed().map(|(_, gate)| gate.last()).unwrap_or_default()
}

/// Notifies the gate that the program has waited for its work, in this stream if it was for one.
pub(crate) fn after_wait(before: Pending, what: Awaited, stream: Option<Stream>) {
    let Some((inside, gate)) = governed() else { return };
    let Some(place) = place(&inside, stream) else { return };
    let machine = LaunchMachine { inside: &inside, gate };
    gate.waited(thread::spend(), what, place, before, &machine);
}

/// Ends a context's outstanding work and mappings.
pub(crate) fn context_ended(context: u64) {
    let Some(inside) = attach::inside() else { return };
    progress::forget(inside.root, context);
    captures::context_gone(context);
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

/// Parts the work of a stream that is about to be destroyed from that of the next with its handle.
pub(crate) fn stream_ends(stream: u64) {
    if let Some(gate) = attach::inside().and_then(|inside| gate(&inside)) {
        gate.stream_ends(stream);
    }
}

/// Drops the estimates of an executable graph that was destroyed.
pub(crate) fn graph_gone(graph: u64) {
    if let Some(gate) = attach::inside().and_then(|inside| gate(&inside)) {
        gate.graph_gone(graph);
    }
}

/// Context and device of work in this stream.
///
/// In a slice of one device it can run on no other, so the driver is queried only if the calling thread has no
/// context.
fn place(inside: &Inside, stream: Option<Stream>) -> Option<LaunchTarget> {
    let current = driver::context().ok().filter(|context| *context != 0);
    let own = || stream.and_then(|stream| stream::context_of(stream.0));
    let (device, context) = match inside.control.device_count() {
        1 => (DeviceSlot::new(0)?, current.or_else(own)?),
        _ => {
            let device = match stream {
                Some(stream) => stream::device_of(stream.0).ok()?,
                None => driver::device().ok()?,
            };
            (slots::slot(&*attach::ledger().ok()?, device).ok()?, own().or(current)?)
        }
    };
    Some(LaunchTarget { device, context, stream: stream.map_or(0, |stream| stream.number(context)) })
}

/// The gate's view of thread and machine.
struct LaunchMachine<'a> {
    inside: &'a Inside,
    gate: Gate<'static>,
}

impl Host for LaunchMachine<'_> {
    fn now_ns(&self) -> u64 {
        sys::quick_now_ns()
    }

    fn sleep_ns(&self, nanoseconds: u64) {
        sys::sleep_ns(nanoseconds);
    }

    fn pause(&self) {
        (0..16).for_each(|_| core::hint::spin_loop());
    }

    fn wait_for_turn(&self, turn: u32, nanoseconds: u64) {
        sys::wait_while(self.inside.control.lease_word(), turn, nanoseconds);
    }

    fn ring(&self) {
        let daemon = self.inside.control.daemon();
        if self.inside.root.word(RootWord::Daemon).load(Acquire) != daemon {
            connection::renew(self.inside.root, daemon);
        }
        bell::ring();
    }

    /// A connection to the daemon before is no evidence about the one that serves the slice now.
    fn has_daemon_ended(&self) -> bool {
        let Inside { root, control, .. } = self.inside;
        root.word(RootWord::Daemon).load(Acquire) == control.daemon() && connection::has_daemon_ended(*root)
    }

    fn refresh(&self) -> bool {
        progress::refresh(self.inside, self.gate.pending_marks())
    }
}

/// One launch of the program.
struct One<'a> {
    inside: &'a Inside,
    stream: Option<Stream>,
    /// Its context and device, once queried.
    place: Cell<Option<LaunchTarget>>,
    real: DriverCall<'a>,
}

impl Launch for One<'_> {
    /// No stream is queried before the first capture has begun.
    fn is_captured(&self) -> bool {
        captures::are_under_way() && self.stream.is_some_and(Stream::is_captured)
    }

    fn place(&self) -> Option<LaunchTarget> {
        self.place.set(place(self.inside, self.stream));
        self.place.get()
    }

    fn launch(&self) -> i32 {
        self.real.make()
    }

    fn mark(&self, sequence: u32) -> bool {
        let (Some(Stream(stream)), Some(place)) = (self.stream, self.place.get()) else { return false };
        let mark = || progress::place(self.inside, place.context, stream, sequence);
        undisturbed(|| match driver::context() {
            Ok(current) if current == place.context => mark(),
            _ => driver::within(place.context, mark).unwrap_or(false),
        })
    }
}
