//! Attachment to the slice, on the first governed call.

use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use tranche_policy::{Ledger, PATIENCE_NS, Tenant};
use tranche_shm::Slot;
use tranche_shm::compute::{self, ComputeRecord, ComputeRecords, Tally};
use tranche_shm::control::{self, Control};
use tranche_shm::crash::point;
use tranche_shm::lease::Lease;
use tranche_shm::parking::Hindrance;
use tranche_shm::usage::Usage;

use crate::bell;
use crate::connection::{self, ConnectionError, Welcome};
use crate::root::{Root, RootWord};
use crate::sys;

/// Time between two looks of a thread that waits until its slice is back, in nanoseconds.
const AWAY_NS: u64 = 50_000_000;

/// Error of a process that is not in a slice and cannot attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outside;

/// The ledger of this process in its slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ours(&'static Ledger<'static>);

impl Deref for Ours {
    type Target = Ledger<'static>;

    #[inline(always)]
    fn deref(&self) -> &Ledger<'static> {
        self.0
    }
}

/// The ledger of this process, attached on first use; each call retries until it succeeds.
#[inline(always)]
pub(crate) fn ledger() -> Result<Ours, Outside> {
    let root = Root::get().ok_or(Outside)?;
    match root.ledger() {
        Some(ledger) => Ok(Ours(ledger)),
        None => attach(root),
    }
}

#[cold]
fn attach(root: Root) -> Result<Ours, Outside> {
    let deadline_ns = sys::now_ns() + PATIENCE_NS;
    let _turn = root.turn(deadline_ns).ok_or(Outside)?;
    point("attach: begin");
    loop {
        if root.word(RootWord::Ready).load(Acquire) != 0 {
            return keep(root).ok_or(Outside);
        }
        match connection::open(root, deadline_ns).and_then(|welcome| settle_in(root, welcome)) {
            Ok(()) => {}
            Err(ConnectionError::Away) if sys::now_ns() < deadline_ns => sys::sleep_ms(20),
            Err(_) => return Err(Outside),
        }
    }
}

/// Assembles the ledger once for all calls, unless another thread did so before this one took the lock.
fn keep(root: Root) -> Option<Ours> {
    if root.ledger().is_none() {
        Ledger::first_words(root.ledger_words()).into_iter().flatten().for_each(sys::back);
        let tenant = tenant(root)?;
        tenant.usage.hindrances(tenant.slot).begin();
        let ledger = Ledger::over(tenant, root.ledger_words(), sys::pause)?;
        let ledger = ledger
            .with_growth(Root::open)
            .with_barrier(sys::can_order_threads().then_some(sys::order_threads));
        // SAFETY: this thread holds the lock over the connection, as `keep` requires, and found no ledger under it.
        unsafe { root.keep(ledger) };
    }
    root.ledger().map(Ours)
}

/// Maps the regions and sets [`RootWord::Ready`].
fn settle_in(root: Root, welcome: Welcome) -> Result<(), ConnectionError> {
    let control = sys::map_shared(&welcome.control, control::WORDS, sys::MappingAccess::Read);
    let usage = sys::map_shared(&welcome.usage, compute::REGION_WORDS, sys::MappingAccess::ReadWrite);
    let (Ok(control), Ok(usage)) = (control, usage) else { return Err(ConnectionError::Refused) };
    if let Ok(control) = Control::attach(control) {
        root.word(RootWord::Daemon).store(control.daemon(), Relaxed);
    }
    let generations =
        (Control::attach(control).map(Control::generation), Usage::attach(usage).map(Usage::generation));
    if generations != (Ok(welcome.generation), Ok(welcome.generation)) {
        return Err(ConnectionError::Refused);
    }
    point("attach: mapped");
    // The next daemon receives the usage region from the processes that map it. A daemon that came before this
    // process mapped it may have found none, and made another.
    if connection::is_lost(root) {
        return Err(ConnectionError::Away);
    }
    root.word(RootWord::Control).store(control.as_ptr() as u64, Relaxed);
    root.word(RootWord::Usage).store(usage.as_ptr() as u64, Relaxed);
    root.word(RootWord::Slot).store(welcome.slot.index() as u64, Relaxed);
    root.word(RootWord::Generation).store(welcome.generation, Relaxed);
    root.word(RootWord::Ready).store(1, Release);
    point("attach: ready");
    Ok(())
}

/// Reports memory or an object that the driver cannot checkpoint, before the call that makes it.
pub(crate) fn hinder(hindrance: Hindrance) {
    if let Ok(ledger) = ledger() {
        ledger.tenant().hinder(hindrance);
    }
}

/// State of an attached process that launches need.
pub(crate) struct Inside {
    pub(crate) root: Root,
    pub(crate) control: Control<'static>,
    pub(crate) record: ComputeRecord<'static>,
}

/// State of this process if it is attached, which the creation of its context has done.
///
/// Waits while the slice is away from its GPUs.
pub(crate) fn inside() -> Option<Inside> {
    let inside = anywhere()?;
    if inside.control.is_away() {
        until_back(&inside);
    }
    Some(inside)
}

/// Waits while the slice is away from its GPUs: the driver would block the call without a sign of it.
#[inline(always)]
pub(crate) fn be_present(ledger: &Ours) {
    if ledger.tenant().control.is_away() {
        let _ = inside(); // which waits
    }
}

/// Shows this thread as waiting until the slice is back, whether a daemon runs or not.
#[cold]
fn until_back(inside: &Inside) {
    let waiting = inside.record.tally(Tally::Waiting);
    waiting.fetch_add(1, Relaxed);
    while inside.control.is_away() {
        bell::ring();
        let word = inside.control.lease_word();
        let turn = Lease::turn(word.load(Acquire));
        if inside.control.is_away() {
            sys::wait_while(word, turn, AWAY_NS);
        }
    }
    // Another process of the slice may have written there; below zero would be very many.
    let _ = waiting.fetch_update(Relaxed, Relaxed, |threads| Some(threads.saturating_sub(1)));
}

fn anywhere() -> Option<Inside> {
    let root = Root::get()?;
    if root.word(RootWord::Ready).load(Acquire) == 0 {
        return None;
    }
    let usage = region(root.word(RootWord::Usage), compute::REGION_WORDS);
    Some(Inside {
        root,
        control: Control::known(region(root.word(RootWord::Control), control::WORDS))?,
        record: ComputeRecords::known(usage)?
            .record(Slot::new(root.word(RootWord::Slot).load(Relaxed) as usize)?),
    })
}

fn tenant(root: Root) -> Option<Tenant<'static>> {
    let control = region(root.word(RootWord::Control), control::WORDS);
    let usage = region(root.word(RootWord::Usage), compute::REGION_WORDS);
    Some(Tenant {
        control: Control::known(control)?,
        usage: Usage::known(usage)?,
        slot: Slot::new(root.word(RootWord::Slot).load(Relaxed) as usize)?,
    })
}

fn region(address: &AtomicU64, words: usize) -> &'static [AtomicU64] {
    // SAFETY: called after `Ready` was seen, so `settle_in` has stored the address of a mapping of this many
    // words, which is never unmapped and lives on in a forked child (which does not see `Ready`).
    unsafe { core::slice::from_raw_parts(address.load(Relaxed) as *const AtomicU64, words) }
}
