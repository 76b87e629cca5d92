//! Streams: a lane of the engine for time, and a list of operations that still have to act.
//!
//! Law: bytes move at once when the stream has nothing left to do, for no program may read them earlier than at the
//! operation's end; behind a host function or value wait they move in their turn, by the worker.

use std::sync::Arc;
use std::time::Duration;

use simgpu::{Lane, Ticket, Work, WorkKind};

use crate::act::Progress;
use crate::driver::{Driver, driver, status};
use crate::lookup::{DefaultStream, find, select};
use crate::state::stream::{Deferred, NON_BLOCKING, Op, Stream, lock};
use crate::status::{Outcome, Status};
use crate::wall::{Callee, Host, HostFunction, Out, StreamCallback};

/// The greatest priority a stream can have; the least is 0.
pub(crate) const GREATEST_PRIORITY: i32 = -5;

impl Stream {
    /// Refuses a call that is not allowed in a stream that is being captured, and invalidates the capture.
    pub(crate) fn must_not_capture(&self, driver: &Driver) -> Outcome {
        let capture = self.capture().clone();
        let Some(capture) = capture else { return Ok(()) };
        crate::capture::invalidate(driver, &capture);
        Err(Status::CaptureUnsupported)
    }

    /// Puts an operation into the stream, or into the graph it is being captured into.
    pub(crate) fn enqueue(self: &Arc<Self>, driver: &Driver, op: Op) -> Outcome {
        if crate::capture::takes(driver, self, &op)? {
            return Ok(());
        }
        self.run(driver, &op)
    }

    /// Puts an operation into the stream.
    pub(crate) fn run(self: &Arc<Self>, driver: &Driver, op: &Op) -> Outcome {
        match op {
            Op::Alloc(memory) => crate::memory::graph::graph_alloc(driver, *memory, self.context),
            Op::Free(address) => crate::memory::graph::graph_free(driver, *address),
            Op::Child(ops) => ops.iter().try_for_each(|op| self.run(driver, op)),
            Op::Record(event) => {
                let mark = self.submit(driver, WorkKind::Mark, Duration::ZERO, None)?;
                event.recorded(mark, self.clone());
                Ok(())
            }
            Op::WaitEvent(event) => self.wait_event(driver, op, event.pending(driver.node())),
            _ if op.acts_in_turn() => self.run_in_turn(driver, op),
            _ => self.run_timed(driver, op),
        }
    }

    fn run_timed(self: &Arc<Self>, driver: &Driver, op: &Op) -> Outcome {
        let duration = crate::timing::duration(driver, self.engine().gpu(), op);
        let mut last = lock(&self.last);
        let ticket = self.submit_after(driver, op.kind(), duration, None)?;
        *last = Some(ticket);
        if matches!(op, Op::Kernel(_) | Op::Empty) {
            return Ok(());
        }
        // Free memory, or a value, may be read by others before this stream's turn comes.
        let waits = matches!(op, Op::Leave(..) | Op::Unpin(_) | Op::WriteValue(_));
        let in_turn = waits && !driver.node().is_done(ticket);
        if in_turn || self.is_behind(driver) {
            self.defer(driver, op.clone(), ticket, None);
        } else {
            op.act();
        }
        Ok(())
    }

    fn run_in_turn(self: &Arc<Self>, driver: &Driver, op: &Op) -> Outcome {
        let mut last = lock(&self.last);
        let ready = self.submit_after(driver, WorkKind::Mark, Duration::ZERO, None)?;
        let gate = self.submit_after(driver, WorkKind::Gate, Duration::ZERO, None)?;
        *last = Some(gate);
        self.defer(driver, op.clone(), ready, Some(gate));
        Ok(())
    }

    fn wait_event(
        self: &Arc<Self>,
        driver: &Driver,
        op: &Op,
        pending: Option<(Ticket, Option<Arc<Self>>)>,
    ) -> Outcome {
        let Some((mark, other)) = pending else { return Ok(()) };
        let mut last = lock(&self.last);
        let ticket = self.submit_after(driver, WorkKind::Mark, Duration::ZERO, Some(mark))?;
        *last = Some(ticket);
        if other.is_some_and(|other| other.has_deferred() && !Arc::ptr_eq(&other, self)) {
            self.defer(driver, op.clone(), ticket, None);
        }
        Ok(())
    }

    fn submit(
        &self,
        driver: &Driver,
        kind: WorkKind,
        duration: Duration,
        after: Option<Ticket>,
    ) -> Outcome<Ticket> {
        let mut last = lock(&self.last);
        let ticket = self.submit_after(driver, kind, duration, after)?;
        *last = Some(ticket);
        Ok(ticket)
    }

    /// Submits; the caller holds `last`.
    fn submit_after(
        &self,
        driver: &Driver,
        kind: WorkKind,
        duration: Duration,
        after: Option<Ticket>,
    ) -> Outcome<Ticket> {
        let work = Work { lane: self.lane, kind, duration, after };
        driver.process.submit(self.engine(), work).map_err(status)
    }

    fn defer(self: &Arc<Self>, driver: &Driver, op: Op, ready: Ticket, gate: Option<Ticket>) {
        lock(&self.deferred).push_back(Deferred { op, ready, gate });
        driver.worker.look_after(self.clone());
    }

    /// Tests if something before the next operation has not acted yet, here or in a stream it waits for.
    fn is_behind(&self, driver: &Driver) -> bool {
        self.has_deferred()
            || driver.worker.busy_streams().iter().any(|other| {
                other.context == self.context
                    && match (self.lane, other.lane) {
                        (Lane::Legacy, Lane::Blocking(_)) | (Lane::Blocking(_), Lane::Legacy) => {
                            other.has_deferred()
                        }
                        _ => false,
                    }
            })
    }

    /// Tests if something is still to be done to memory or the program.
    pub(crate) fn has_deferred(&self) -> bool {
        !lock(&self.deferred).is_empty()
    }

    /// Acts on everything whose turn has come. Called by the worker alone.
    pub(crate) fn act(&self, driver: &Driver) {
        self.act_on(driver, |_| true);
    }

    /// Acts on what any thread may carry out of that.
    fn act_quietly(&self, driver: &Driver) {
        self.act_on(driver, Op::is_quiet);
    }

    fn act_on(&self, driver: &Driver, mine: impl Fn(&Op) -> bool) {
        loop {
            // A program called back may wait for its own stream: nothing is held while it runs.
            let acting = lock(&self.acting);
            let next = lock(&self.deferred).front().map(|next| (next.op.clone(), next.ready, next.gate));
            let Some((op, ready, gate)) = next.filter(|(op, ..)| mine(op)) else { return };
            if !driver.node().is_done(ready) {
                return;
            }
            let _acting = op.is_quiet().then_some(acting);
            if let Progress::NotYet = op.act() {
                return;
            }
            if let Some(gate) = gate {
                driver.node().open_gate(gate);
            }
            lock(&self.deferred).pop_front();
        }
    }

    /// Time of the worker's next check; `None` if there is nothing to check.
    pub(crate) fn look_again(&self, driver: &Driver) -> Option<Duration> {
        /// Interval of comparisons of a value in memory, of which no wakeup informs.
        const TICK: Duration = Duration::from_micros(50);
        /// Interval of checks of ends that are not foreseen, because they are far away or depend on others.
        const GLANCE: Duration = Duration::from_millis(1);
        let (ready, quiet) = lock(&self.deferred).front().map(|next| (next.ready, next.op.is_quiet()))?;
        let foreseen = driver.node().foreseen(ready).unwrap_or(GLANCE);
        Some(if quiet { foreseen } else { foreseen.max(TICK) })
    }

    /// Tests if everything that came before a mark that is done has acted too.
    pub(crate) fn has_acted_until(&self, driver: &Driver, _mark: Ticket) -> bool {
        self.act_quietly(driver);
        lock(&self.deferred)
            .front()
            .is_none_or(|next| !driver.node().is_done(next.ready) || next.gate.is_some())
    }

    /// Waits until everything that came before a mark that is done has acted too.
    pub(crate) fn wait_until_acted(&self, driver: &Driver, mark: Ticket) {
        while !self.has_acted_until(driver, mark) {
            driver.worker.wait_a_round();
        }
    }

    /// Tests if everything in it is done.
    pub(crate) fn is_idle(&self, driver: &Driver) -> bool {
        self.act_quietly(driver);
        let last = *lock(&self.last);
        last.is_none_or(|ticket| driver.node().is_done(ticket)) && !self.has_deferred()
    }

    /// Waits until everything that is in it now is done.
    pub(crate) fn synchronize(&self, driver: &Driver) -> Outcome {
        let last = *lock(&self.last);
        if let Some(ticket) = last {
            driver.node().wait(ticket).map_err(status)?;
            self.wait_until_acted(driver, ticket);
        }
        crate::fault::check(driver, self.engine().gpu())
    }
}

pub(crate) fn create(out: Out<u64>, flags: u32) -> Outcome {
    create_with_priority(out, flags, 0)
}

pub(crate) fn create_with_priority(out: Out<u64>, flags: u32, priority: i32) -> Outcome {
    out.check()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let mut table = driver.table();
    let (current, context) = table.current()?;
    let engine = context.engine;
    let handle = table.handle();
    let lane = if flags == NON_BLOCKING { Lane::Free(handle) } else { Lane::Blocking(handle) };
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    table.streams.insert(handle, Arc::new(Stream::new(handle, current, engine, lane, priority)));
    out.put(handle)
}

/// Ends the handle; work in the stream continues.
pub(crate) fn destroy(handle: u64) -> Outcome {
    driver()?.table().streams.remove(&handle).map(|_| ()).ok_or(Status::InvalidHandle)
}

pub(crate) fn query(default: DefaultStream, handle: u64) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, handle)?;
    stream.must_not_capture(driver)?;
    crate::fault::check(driver, stream.engine().gpu())?;
    if stream.is_idle(driver) { Ok(()) } else { Err(Status::NotReady) }
}

pub(crate) fn synchronize(default: DefaultStream, handle: u64) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, handle)?;
    stream.must_not_capture(driver)?;
    stream.synchronize(driver)?;
    crate::memory::reserve::trim_at_sync(driver);
    Ok(())
}

pub(crate) fn context(default: DefaultStream, handle: u64, out: Out<u64>) -> Outcome {
    out.put(select(driver()?, default, handle)?.context)
}

/// `cuStreamGetDevice`.
pub(crate) fn device(default: DefaultStream, handle: u64, out: Out<i32>) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, handle)?;
    let device = find(&driver.table().contexts, stream.context)?.device;
    out.put(device as i32)
}

pub(crate) fn flags(default: DefaultStream, handle: u64, out: Out<u32>) -> Outcome {
    out.put(select(driver()?, default, handle)?.flags)
}

pub(crate) fn priority(default: DefaultStream, handle: u64, out: Out<i32>) -> Outcome {
    out.put(select(driver()?, default, handle)?.priority)
}

pub(crate) fn id(default: DefaultStream, handle: u64, out: Out<u64>) -> Outcome {
    out.put(select(driver()?, default, handle)?.handle)
}

/// `cuLaunchHostFunc`.
pub(crate) fn host_function(
    default: DefaultStream,
    stream: u64,
    function: HostFunction,
    data: Host,
) -> Outcome {
    let driver = driver()?;
    let callee = Callee::Function(function.ok_or(Status::InvalidValue)?, data);
    select(driver, default, stream)?.enqueue(driver, Op::Host(callee))
}

/// `cuStreamAddCallback`.
pub(crate) fn add_callback(
    default: DefaultStream,
    handle: u64,
    function: StreamCallback,
    data: Host,
    flags: u32,
) -> Outcome {
    if flags != 0 {
        return Err(Status::InvalidValue);
    }
    let driver = driver()?;
    let stream = select(driver, default, handle)?;
    stream.must_not_capture(driver)?;
    let callee = Callee::Callback(function.ok_or(Status::InvalidValue)?, handle, data);
    stream.enqueue(driver, Op::Host(callee))
}
