//! Events: a mark in a stream, its time, and waits for it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use simgpu::{Ticket, Time};

use crate::driver::{Driver, driver};
use crate::lookup::{DefaultStream, find, select};
use crate::memory::ipc::Handle;
use crate::state::event::SharedMark;
use crate::state::stream::{Event, Op, State};
use crate::status::{Outcome, Status};
use crate::wall::Out;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`, which goes with no timing only.
const INTERPROCESS: u32 = 4;
/// Mark of a handle of an event: `SIMGPUEV`.
const MAGIC: u64 = u64::from_ne_bytes(*b"SIMGPUEV");
/// `CU_EVENT_WAIT_EXTERNAL` and `CU_EVENT_RECORD_EXTERNAL`.
const EXTERNAL: u32 = 1;

impl Event {
    /// Time at which it was reached: `None` if it was never recorded, not ready if it is not yet.
    fn reached(&self, driver: &Driver) -> Outcome<Option<Time>> {
        match self.state(driver.node()) {
            State::Fresh => Ok(None),
            State::Done(time) => Ok(Some(time)),
            State::Captured(..) => Err(Status::CapturedEvent),
            State::Recorded(mark, stream) => {
                if !driver.node().is_done(mark) || !stream.has_acted_until(driver, mark) {
                    return Err(Status::NotReady);
                }
                self.done(driver, mark)
            }
            State::Elsewhere(mark) => driver.node().finished_at(mark).map(Some).ok_or(Status::NotReady),
        }
    }

    fn done(&self, driver: &Driver, mark: Ticket) -> Outcome<Option<Time>> {
        let time = driver.node().finished_at(mark).ok_or(Status::NotReady)?;
        self.set(State::Done(time));
        Ok(Some(time))
    }

    fn wait(&self, driver: &Driver) -> Outcome {
        let (mark, stream) = match self.state(driver.node()) {
            State::Recorded(mark, stream) => (mark, stream),
            State::Elsewhere(mark) => return driver.node().wait(mark).map_err(crate::driver::status),
            _ => return self.reached(driver).map(|_| ()),
        };
        driver.node().wait(mark).map_err(crate::driver::status)?;
        stream.wait_until_acted(driver, mark);
        // Not tested again: work behind it may be due by now and not have acted yet.
        self.done(driver, mark).map(|_| ())
    }
}

fn event(handle: u64) -> Outcome<(&'static Driver, Arc<Event>)> {
    let driver = driver()?;
    let event = find(&driver.table().events, handle)?.clone();
    Ok((driver, event))
}

pub(crate) fn create(out: Out<u64>, flags: u32) -> Outcome {
    out.check()?;
    if flags & !7 != 0 || flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0 {
        return Err(Status::InvalidValue);
    }
    let shared = if flags & INTERPROCESS != 0 { Some(SharedMark::new()?) } else { None };
    out.put(add(flags, shared)?)
}

fn add(flags: u32, shared: Option<SharedMark>) -> Outcome<u64> {
    let driver = driver()?;
    let mut table = driver.table();
    let (context, _) = table.current()?;
    let handle = table.handle();
    table.events.insert(handle, Arc::new(Event { flags, context, state: Mutex::default(), shared }));
    Ok(handle)
}

/// `cuIpcGetEventHandle`.
pub(crate) fn export(out: Out<Handle>, handle: u64) -> Outcome {
    out.check()?;
    let (_, event) = event(handle)?;
    let shared = event.shared.as_ref().ok_or(Status::InvalidValue)?;
    out.put(Handle::new(MAGIC, shared.descriptor()))
}

/// `cuIpcOpenEventHandle`; a process has its own event already.
pub(crate) fn open(out: Out<u64>, handle: Handle) -> Outcome {
    out.check()?;
    if !handle.is(MAGIC) || handle.process() == u64::from(std::process::id()) {
        return Err(Status::InvalidValue);
    }
    let shared = SharedMark::open(handle.process(), handle.file())?;
    out.put(add(INTERPROCESS | DISABLE_TIMING, Some(shared))?)
}

pub(crate) fn destroy(handle: u64) -> Outcome {
    driver()?.table().events.remove(&handle).map(|_| ()).ok_or(Status::InvalidHandle)
}

pub(crate) fn record(default: DefaultStream, handle: u64, stream: u64) -> Outcome {
    let (driver, event) = event(handle)?;
    let stream = select(driver, default, stream)?;
    if stream.context != event.context {
        return Err(Status::InvalidHandle);
    }
    stream.enqueue(driver, Op::Record(event)).map(|_| ())
}

pub(crate) fn record_with_flags(default: DefaultStream, handle: u64, stream: u64, flags: u32) -> Outcome {
    if flags & !EXTERNAL != 0 {
        return Err(Status::InvalidValue);
    }
    record(default, handle, stream)
}

/// `cuStreamWaitEvent`.
pub(crate) fn stream_wait(default: DefaultStream, stream: u64, handle: u64, flags: u32) -> Outcome {
    if flags & !EXTERNAL != 0 {
        return Err(Status::InvalidValue);
    }
    let (driver, event) = event(handle)?;
    select(driver, default, stream)?.enqueue(driver, Op::WaitEvent(event)).map(|_| ())
}

pub(crate) fn query(handle: u64) -> Outcome {
    let (driver, event) = event(handle)?;
    event.reached(driver).map(|_| ())
}

pub(crate) fn synchronize(handle: u64) -> Outcome {
    let (driver, event) = event(handle)?;
    event.wait(driver)?;
    crate::memory::reserve::trim_at_sync(driver);
    Ok(())
}

pub(crate) fn elapsed(out: Out<f32>, start: u64, end: u64) -> Outcome {
    out.check()?;
    let (driver, start) = event(start)?;
    let (_, end) = event(end)?;
    if (start.flags | end.flags) & DISABLE_TIMING != 0 {
        return Err(Status::InvalidHandle);
    }
    let start = start.reached(driver)?.ok_or(Status::InvalidHandle)?;
    let end = end.reached(driver)?.ok_or(Status::InvalidHandle)?;
    let backwards = start.since(end);
    let length =
        if backwards > Duration::ZERO { -backwards.as_secs_f32() } else { end.since(start).as_secs_f32() };
    out.put(length * 1000.0)
}
