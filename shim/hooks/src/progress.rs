//! Completion of marks: the GPU writes a mark's number into the record, in the order of the stream.
//!
//! Where it cannot, an event stands in its place, which the shim queries from the driver. The record's page is mapped
//! once more for each context that places a mark, and that mapping is registered with the driver in that context
//! alone. So no context writes through a mapping of another, whichever ends first.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use tranche_policy::{Guard, Lock};
use tranche_shm::compute::{MARKS, MarkRing};

use crate::attach::Inside;
use crate::cuda::abi::{SUCCESS, checked};
use crate::cuda::captures::undisturbed;
use crate::cuda::driver;
use crate::root::Root;
use crate::sys;

const FIRST_EVENT: usize = 8;
const EVENT_WORDS: usize = 4;
const FIRST_CONTEXT: usize = FIRST_EVENT + MARKS * EVENT_WORDS;
const CONTEXT_WORDS: usize = 4;
/// Contexts of a process that can have mappings at a time. Further ones use events.
const CONTEXTS: usize = 28;
const _: () = assert!(FIRST_CONTEXT + CONTEXTS * CONTEXT_WORDS <= crate::root::MARK_WORDS);

const PAGE: usize = 4096;
/// `CU_MEMHOSTREGISTER_DEVICEMAP`
const DEVICE_MAP: u32 = 2;
/// `CUDA_ERROR_NOT_READY`
const NOT_READY: c_int = 600;
/// `CU_EVENT_DISABLE_TIMING`
const NO_TIMING: u32 = 2;

/// Words of the module's state in the root.
#[derive(Clone, Copy, Debug)]
enum ProgressWord {
    /// Lock over all words of this module.
    Turn,
    /// 1 once an event was used.
    Events,
}

/// Words about a context. Their order is the layout.
#[derive(Clone, Copy, Debug)]
enum ContextWord {
    /// Handle of the context; 0 in a free place.
    Handle,
    /// The record's address for the GPU, or [`REFUSED`].
    Address,
    /// Address of the page that was mapped for it; 0 if the driver refused that.
    Page,
    /// One more than the number of its device.
    Device,
}

/// Address that marks a context in which the driver does not let the GPU write.
const REFUSED: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
enum ProgressEvent {
    /// Handle of the event; 0 if there is none.
    Handle,
    /// Handle of its context.
    Context,
    /// Sequence number of the mark that it stands for, plus one.
    Sequence,
}

fn word(root: Root, of: ProgressWord) -> &'static AtomicU64 {
    &root.marks()[of as usize]
}

fn event(root: Root, sequence: u32, event: ProgressEvent) -> &'static AtomicU64 {
    &root.marks()[FIRST_EVENT + sequence as usize % MARKS * EVENT_WORDS + event as usize]
}

/// Takes the lock without waiting: a mark that is not placed does no harm.
fn turn(root: Root) -> Option<Guard<'static>> {
    Lock::at(word(root, ProgressWord::Turn), sys::pause).try_acquire()
}

/// Lets the GPU write a mark's number in a stream of the current context.
///
/// Returns true if that write, or an event, will complete the mark.
pub(crate) fn place(inside: &Inside, context: u64, stream: u64, sequence: u32) -> bool {
    let write = || {
        let address = address_in(inside, context)? + MarkRing::done_offset(sequence) as u64;
        // SAFETY: the address is the GPU's for a word of this process's record, whose page stays registered until its
        // context ends; stream and context are those of the program's launch.
        let written = unsafe { driver::cuStreamWriteValue32_v2(stream, address, sequence, 0) };
        checked(written).inspect_err(|_| refuse(inside.root, context)).ok()
    };
    write().is_some() || record(inside.root, stream, context, sequence)
}

/// Switches the context to events.
#[cold]
fn refuse(root: Root, context: u64) {
    if let Some(known) = known(root, context) {
        known(ContextWord::Address).store(REFUSED, Relaxed);
    }
}

/// Address of the record for the GPU in a context; `None` where it cannot write.
fn address_in(inside: &Inside, context: u64) -> Option<u64> {
    match known(inside.root, context) {
        Some(known) => Some(known(ContextWord::Address).load(Relaxed)).filter(|address| *address != REFUSED),
        None => give_page(inside, context),
    }
}

fn all_known(root: Root) -> impl Iterator<Item = impl Fn(ContextWord) -> &'static AtomicU64> {
    (0..CONTEXTS)
        .map(move |at| move |known| &root.marks()[FIRST_CONTEXT + at * CONTEXT_WORDS + known as usize])
}

fn known(root: Root, context: u64) -> Option<impl Fn(ContextWord) -> &'static AtomicU64> {
    all_known(root).find(|known| known(ContextWord::Handle).load(Acquire) == context)
}

/// Enters the current context, with a mapping of the record's page if the driver registers one.
#[cold]
fn give_page(inside: &Inside, context: u64) -> Option<u64> {
    let _turn = turn(inside.root)?;
    let free = all_known(inside.root).find(|known| known(ContextWord::Handle).load(Relaxed) == 0)?;
    let record = inside.record.address() as usize;
    let page = sys::map_again(record & !(PAGE - 1), PAGE).ok();
    let address = page.and_then(|page| {
        let address = register(page).inspect_err(|_| sys::unmap_again(page, PAGE)).ok()?;
        Some((page, address + (record % PAGE) as u64))
    });
    let (page, address) = address.unwrap_or((0, REFUSED));
    free(ContextWord::Page).store(page as u64, Relaxed);
    free(ContextWord::Address).store(address, Relaxed);
    free(ContextWord::Device).store(driver::device().map_or(0, |device| device as u64 + 1), Relaxed);
    free(ContextWord::Handle).store(context, Release);
    Some(address).filter(|address| *address != REFUSED)
}

/// Registers a page with the driver in the current context; returns its address for the GPU.
fn register(page: usize) -> Result<u64, c_int> {
    let mut address = 0;
    // SAFETY: the page is mapped until its context has ended, see `forget`; the driver writes one value into a local.
    undisturbed(|| unsafe {
        checked(driver::cuMemHostRegister_v2(page as *mut _, PAGE, DEVICE_MAP))?;
        checked(driver::cuMemHostGetDevicePointer_v2(&mut address, page as *mut _, 0))
            .inspect_err(|_| _ = driver::cuMemHostUnregister(page as *mut _))
    })?;
    Ok(address)
}

/// Contexts on a device in which marks were placed.
pub(crate) fn contexts_on(root: Root, device: c_int) -> impl Iterator<Item = u64> {
    all_known(root)
        .filter(move |known| known(ContextWord::Device).load(Relaxed) == device as u64 + 1)
        .map(|known| known(ContextWord::Handle).load(Acquire))
        .filter(|context| *context != 0)
}

/// Removes an ended context, and unmaps its page.
pub(crate) fn forget(root: Root, context: u64) {
    let Some(known) = known(root, context) else { return };
    let page = known(ContextWord::Page).swap(0, Relaxed) as usize;
    if known(ContextWord::Handle).compare_exchange(context, 0, Release, Relaxed).is_ok() && page != 0 {
        sys::unmap_again(page, PAGE);
    }
}

/// Records an event in the place of the mark's write.
#[cold]
fn record(root: Root, stream: u64, context: u64, sequence: u32) -> bool {
    let Some(_turn) = turn(root) else { return false };
    let at = |of| event(root, sequence, of);
    at(ProgressEvent::Sequence).store(0, Relaxed);
    let mut handle = at(ProgressEvent::Handle).load(Relaxed);
    // SAFETY: the events are the shim's, and no other code has their handles; the driver writes one value into a
    // local, and the stream is that of the program's launch.
    unsafe {
        if handle != 0 && at(ProgressEvent::Context).load(Relaxed) != context {
            let _ = driver::cuEventDestroy_v2(handle);
            handle = 0;
        }
        if handle == 0 && driver::cuEventCreate(&mut handle, NO_TIMING) != SUCCESS {
            handle = 0;
        }
        at(ProgressEvent::Handle).store(handle, Relaxed);
        at(ProgressEvent::Context).store(context, Relaxed);
        if handle == 0 || driver::cuEventRecord(handle, stream) != SUCCESS {
            return false;
        }
    }
    at(ProgressEvent::Sequence).store(u64::from(sequence) + 1, Release);
    word(root, ProgressWord::Events).store(1, Relaxed);
    true
}

/// Finishes the marks whose events are done; true if others remain.
pub(crate) fn refresh(inside: &Inside, pending: impl Iterator<Item = u32>) -> bool {
    if word(inside.root, ProgressWord::Events).load(Relaxed) == 0 {
        return false;
    }
    undisturbed(|| {
        let mut others = false;
        for sequence in pending {
            let stands = event(inside.root, sequence, ProgressEvent::Sequence).load(Acquire);
            if stands != u64::from(sequence) + 1 {
                continue;
            }
            if has_come(inside.root, sequence) {
                inside.record.marks().finish(sequence);
            } else {
                others = true;
            }
        }
        others
    })
}

/// True if an event is done, or can no longer be queried: then its work will not run either.
fn has_come(root: Root, sequence: u32) -> bool {
    // SAFETY: the handle is an event that this module made and has not destroyed.
    let asked = unsafe { driver::cuEventQuery(event(root, sequence, ProgressEvent::Handle).load(Relaxed)) };
    asked != NOT_READY
}
