//! Order of calls under way and ends of contexts: neither happens while the other does.
//!
//! An allocation belongs to a context. If the context ended between the charge and the entry in the ledger, the
//! charge would be released while the driver still allocates, or stay when the driver holds nothing any more.
//! Therefore a call announces its context before it looks up the owner of its allocation, and an end of a context
//! announces itself, waits for the calls announced before it, and only then lets the driver end the context. A call
//! that comes meanwhile waits until the end is over. Frees, queries and synchronisation announce nothing and wait for
//! nothing.
//!
//! Laws:
//! - Both announce first and read second, with a full barrier between. On the side of the calls, of which there are
//!   many, that is a plain store to a line of the thread's own; the end, which is rare, makes all threads of the
//!   process pass a barrier (`membarrier`). Where the kernel has none, calls pay for a barrier of their own.
//! - Both wait a bounded time. A call is then refused. An end proceeds, and leaves charged what a call could still
//!   be using: too much, never too little.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU64, fence};

use tranche_shm::DeviceSlot;

use crate::charge::{ChargeRefused, Charged, DaemonLink};
use crate::ledger::Ledger;
use crate::mark::Hush;
use crate::order::{ANNOUNCED, Announced};
use crate::table::EntryKind;

/// Longest wait of a call for the end of a context, and of an end for calls, in nanoseconds.
///
/// Longer than a call may wait for the daemon.
pub const ORDER_PATIENCE_NS: u64 = 10_000_000_000;

/// A call under way: contexts that it concerns do not end while it lives.
#[must_use = "the call is over when it is dropped"]
#[derive(Debug)]
pub struct Call<'a> {
    word: &'a AtomicU64,
    /// True if the word counts calls rather than belonging to the thread.
    counted: bool,
}

impl Drop for Call<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.counted {
            self.word.fetch_sub(1, Release);
        } else {
            self.word.store(0, Release);
        }
    }
}

/// The end of a context, while the driver ends it and the ledger follows.
#[must_use = "calls in the context go on when it is dropped"]
#[derive(Debug)]
pub struct ContextEnd<'a> {
    place: Option<&'a AtomicU64>,
    /// True if no call under way concerns the context.
    pub(crate) is_alone: bool,
    _hush: Hush<'a>,
}

impl Drop for ContextEnd<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            place.store(0, SeqCst);
        }
    }
}

impl<'a> Ledger<'a> {
    /// Begins a call of `thread` in `context`. To be kept until what the call made is entered.
    #[inline(always)]
    pub fn begin_call(&self, thread: u64, context: u64, daemon: &impl DaemonLink) -> Charged<Call<'a>> {
        self.announce(thread, Announced::context(context), daemon)
    }

    /// Begins a call that concerns a device's primary context, whether or not there is one.
    pub fn begin_device_call(
        &self,
        thread: u64,
        device: DeviceSlot,
        daemon: &impl DaemonLink,
    ) -> Charged<Call<'a>> {
        self.announce(thread, Announced::device(device), daemon)
    }

    #[inline(always)]
    fn announce(&self, thread: u64, what: Announced, daemon: &impl DaemonLink) -> Charged<Call<'a>> {
        let order = self.order();
        let call = match order.line(thread) {
            Some(word) if word.load(Relaxed) == 0 => {
                word.store(what.0, Relaxed);
                Call { word, counted: false }
            }
            // A callback of the driver has called again, or there are too many threads.
            _ => count(order.others()),
        };
        order.call_barrier();
        // While no context ends, that is all.
        if self.hushes().load(Acquire) == 0 { Ok(call) } else { self.wait_for_ends(call, what, daemon) }
    }

    #[cold]
    #[inline(never)]
    fn wait_for_ends(&self, call: Call<'a>, what: Announced, daemon: &impl DaemonLink) -> Charged<Call<'a>> {
        let mut call = call;
        let began_ns = daemon.now_ns();
        while self.is_ending(what) {
            let (word, counted) = (call.word, call.counted);
            drop(call);
            let mut pauses = 0u32;
            while self.is_ending(what) {
                if daemon.now_ns().saturating_sub(began_ns) > ORDER_PATIENCE_NS {
                    return Err(ChargeRefused);
                }
                self.pause(pauses);
                pauses = pauses.saturating_add(1);
            }
            call = if counted {
                count(word)
            } else {
                word.store(what.0, SeqCst);
                Call { word, counted }
            };
            fence(SeqCst);
        }
        Ok(call)
    }

    fn is_ending(&self, what: Announced) -> bool {
        let concerns = |end: &AtomicU64| {
            let end = end.load(SeqCst);
            end != 0 && self.concerns(Announced(end), what)
        };
        self.order().ends().iter().any(concerns)
    }

    /// True if the end of one concerns calls in the other.
    fn concerns(&self, end: Announced, call: Announced) -> bool {
        if end == call {
            return true;
        }
        let known = |what: Announced| self.few.find(EntryKind::Context, what.0);
        match (end.as_device(), call.as_device()) {
            (Some(_), Some(_)) => false,
            (Some(device), None) => known(call).is_some_and(|call| self.is_primary_of(device, &call)),
            (None, Some(device)) => known(end).is_some_and(|end| self.is_primary_of(device, &end)),
            // Two names of one context.
            (None, None) => {
                known(end).is_some_and(|end| known(call).is_some_and(|call| call.serial == end.serial))
            }
        }
    }

    /// Begins the end of a context, or what may be the end of a device's primary one.
    ///
    /// Afterwards no call is under way in it, and none begins.
    pub(crate) fn begin_end(&self, thread: u64, what: Announced, daemon: &impl DaemonLink) -> ContextEnd<'a> {
        let hush = self.hush();
        let deadline_ns = daemon.now_ns().saturating_add(ORDER_PATIENCE_NS);
        let mut pauses = 0u32;
        let mut in_time = || {
            self.pause(pauses);
            pauses = pauses.saturating_add(1);
            daemon.now_ns() < deadline_ns
        };
        let order = self.order();
        // The destruction of no context is the driver's to refuse.
        let free = || {
            let claim = |place: &&AtomicU64| place.compare_exchange(0, what.0, SeqCst, SeqCst).is_ok();
            order.ends().iter().find(claim)
        };
        let mut place = free();
        while place.is_none() && in_time() {
            place = free();
        }
        order.end_barrier();
        let mut is_alone = place.is_some();
        let mine = order.line(thread).map(core::ptr::from_ref);
        for line in order.lines().iter().filter(|line| Some(core::ptr::from_ref(&line[ANNOUNCED])) != mine) {
            let is_under_way = || {
                let call = line[ANNOUNCED].load(Acquire);
                call != 0 && self.concerns(what, Announced(call))
            };
            while is_alone && is_under_way() {
                is_alone = in_time();
            }
        }
        // The contexts of these calls are not known.
        while is_alone && order.others().load(Acquire) > 0 {
            is_alone = in_time();
        }
        ContextEnd { place, is_alone, _hush: hush }
    }
}

fn count(word: &AtomicU64) -> Call<'_> {
    word.fetch_add(1, SeqCst);
    Call { word, counted: true }
}
