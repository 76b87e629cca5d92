//! How the GPU says that it has come so far: it writes the number of a mark into the process's record, in the order of
//! the stream. Where it cannot, an event stands there, and we ask.
//!
//! The record's page is given to the driver once, in the first context that places a mark. Other contexts have to
//! do with events: the page is theirs no longer than the first one lives.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use tranche_policy::{Guard, Lock};
use tranche_shm::compute::{MARKS, Marks};

use crate::attach::Inside;
use crate::cuda::{SUCCESS, checked, driver};
use crate::launch::undisturbed;
use crate::root::Root;
use crate::sys;

const FIRST_EVENT: usize = 8;
const EVENT_WORDS: usize = 4;

const PAGE: usize = 4096;
/// `CU_MEMHOSTREGISTER_DEVICEMAP`
const DEVICE_MAP: u32 = 2;
/// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`
const ALREADY_REGISTERED: c_int = 712;
/// `CUDA_ERROR_NOT_READY`
const NOT_READY: c_int = 600;
/// `CU_EVENT_DISABLE_TIMING`
const NO_TIMING: u32 = 2;

/// Words by what they hold.
#[derive(Clone, Copy, Debug)]
enum Of {
    /// The lock over these.
    Turn,
    /// The context that the page was given to; 0 while none has it.
    Context,
    /// One more than the number of that context's device.
    Device,
    /// Where the record is for the GPU.
    Address,
    /// 1 once a driver has refused to write.
    Refused,
    /// 1 once an event was used.
    Events,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Its handle; 0 if there is none.
    Handle,
    /// Its context.
    Context,
    /// One more than the number of the mark that it stands for.
    Sequence,
}

fn word(root: Root, of: Of) -> &'static AtomicU64 {
    &root.marks()[of as usize]
}

fn event(root: Root, sequence: u32, event: Event) -> &'static AtomicU64 {
    &root.marks()[FIRST_EVENT + sequence as usize % MARKS * EVENT_WORDS + event as usize]
}

/// One thread at a time; none waits, as a mark that is not placed is no harm.
fn turn(root: Root) -> Option<Guard<'static>> {
    Lock::at(word(root, Of::Turn), sys::pause).try_acquire()
}

/// Has the GPU write a mark's number when it comes there, in a stream of the current context; says whether it, or an
/// event, will tell.
pub(crate) fn place(inside: &Inside, context: u64, stream: u64, sequence: u32) -> bool {
    let write = || {
        let address = address_in(inside, context)? + Marks::done_offset(sequence) as u64;
        // SAFETY: the address is the GPU's for a word of our record, whose page the driver keeps; stream and context
        // are those of the program's launch.
        let written = unsafe { driver::cuStreamWriteValue32_v2(stream, address, sequence, 0) };
        let refused = checked(written).inspect_err(|_| word(inside.root, Of::Refused).store(1, Relaxed));
        refused.ok()
    };
    write().is_some() || record(inside.root, stream, context, sequence)
}

/// Where the record is for the GPU, in a context that the page was given to.
fn address_in(inside: &Inside, context: u64) -> Option<u64> {
    if word(inside.root, Of::Refused).load(Relaxed) != 0 {
        return None;
    }
    match word(inside.root, Of::Context).load(Acquire) {
        0 => give_page(inside, context),
        known if known == context => Some(word(inside.root, Of::Address).load(Relaxed)),
        _ => None,
    }
}

#[cold]
fn give_page(inside: &Inside, context: u64) -> Option<u64> {
    let _turn = turn(inside.root)?;
    let record = inside.record.address() as usize;
    let page = record & !(PAGE - 1);
    let mut address = 0;
    // SAFETY: the page lies in a mapping that is never unmapped; the driver writes one value into a local.
    let given = undisturbed(|| unsafe {
        match driver::cuMemHostRegister_v2(page as *mut _, PAGE, DEVICE_MAP) {
            SUCCESS | ALREADY_REGISTERED => {}
            error => return Err(error),
        }
        checked(driver::cuMemHostGetDevicePointer_v2(&mut address, page as *mut _, 0))
    });
    if given.is_err() {
        word(inside.root, Of::Refused).store(1, Relaxed);
        return None;
    }
    let address = address + (record - page) as u64;
    let device = driver::device().map_or(0, |device| device as u64 + 1);
    word(inside.root, Of::Device).store(device, Relaxed);
    word(inside.root, Of::Address).store(address, Relaxed);
    word(inside.root, Of::Context).store(context, Release);
    Some(address)
}

/// The context on a device that the page was given to.
pub(crate) fn context_on(root: Root, device: c_int) -> Option<u64> {
    let there = word(root, Of::Device).load(Relaxed) == device as u64 + 1;
    Some(word(root, Of::Context).load(Acquire)).filter(|context| there && *context != 0)
}

/// A context has ended, and what it was given with it.
pub(crate) fn forget(root: Root, context: u64) {
    let _ = word(root, Of::Context).compare_exchange(context, 0, Relaxed, Relaxed);
}

/// Puts an event where the mark stands.
#[cold]
fn record(root: Root, stream: u64, context: u64, sequence: u32) -> bool {
    let Some(_turn) = turn(root) else { return false };
    let at = |of| event(root, sequence, of);
    at(Event::Sequence).store(0, Relaxed);
    let mut handle = at(Event::Handle).load(Relaxed);
    // SAFETY: events of ours that nobody else knows; the driver writes one value into a local, and the stream is
    // that of the program's launch.
    unsafe {
        if handle != 0 && at(Event::Context).load(Relaxed) != context {
            let _ = driver::cuEventDestroy_v2(handle);
            handle = 0;
        }
        if handle == 0 && driver::cuEventCreate(&mut handle, NO_TIMING) != SUCCESS {
            handle = 0;
        }
        at(Event::Handle).store(handle, Relaxed);
        at(Event::Context).store(context, Relaxed);
        if handle == 0 || driver::cuEventRecord(handle, stream) != SUCCESS {
            return false;
        }
    }
    at(Event::Sequence).store(u64::from(sequence) + 1, Release);
    word(root, Of::Events).store(1, Relaxed);
    true
}

/// Finishes the marks whose events have come.
pub(crate) fn refresh(inside: &Inside, pending: impl Iterator<Item = u32>) {
    if word(inside.root, Of::Events).load(Relaxed) == 0 {
        return;
    }
    undisturbed(|| {
        for sequence in pending {
            let stands = event(inside.root, sequence, Event::Sequence).load(Acquire);
            if stands == u64::from(sequence) + 1 && has_come(inside.root, sequence) {
                inside.record.marks().finish(sequence);
            }
        }
    });
}

/// Whether an event has come; one that cannot be asked any more never will, and nor will what it stood for.
fn has_come(root: Root, sequence: u32) -> bool {
    // SAFETY: an event of ours.
    let asked = unsafe { driver::cuEventQuery(event(root, sequence, Event::Handle).load(Relaxed)) };
    asked != NOT_READY
}
