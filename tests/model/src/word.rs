//! Words whose every access loom may delay or reorder, and is a step that may be its thread's last.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64 as Plain, Ordering};

use loom::sync::atomic::AtomicU64 as Modelled;

/// Role in which a thread takes steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// An observer of the others: never dies.
    Observer,
    /// The process that may have to die.
    Mortal,
    /// The daemon. Its code runs in the thread of the caller, as a call of a socket waits for its answer.
    Daemon,
}

static DEATHS: Plain = Plain::new(0);

/// Steps left to the process and to the daemon that may die; no limit below zero.
static STEPS_LEFT: [AtomicI64; 2] = [AtomicI64::new(-1), AtomicI64::new(-1)];

loom::thread_local! {
    static ACTING: Cell<Actor> = Cell::new(Actor::Observer);
    static DEAD: Cell<bool> = Cell::new(false);
}

/// Panic payload of a death, which unwinds to [`live`].
struct End;

/// Limits the further steps of the mortal process or of the daemon; `None` removes the limit.
pub fn let_live(actor: Actor, steps: Option<u32>) {
    if let Some(left) = left(actor) {
        left.store(steps.map_or(-1, i64::from), Ordering::Relaxed);
    }
}

/// Number of deaths since the last call, in all the orders explored.
pub fn deaths() -> u64 {
    DEATHS.swap(0, Ordering::Relaxed)
}

/// Takes steps as `actor`; `None` if it died. Code that runs while it unwinds touches no word: a killed process does
/// not clean up.
pub fn live<T>(actor: Actor, life: impl FnOnce() -> T) -> Option<T> {
    let before = ACTING.with(|acting| acting.replace(actor));
    let lived = catch_unwind(AssertUnwindSafe(life));
    ACTING.with(|acting| acting.set(before));
    DEAD.with(|dead| dead.set(false));
    match lived {
        Ok(done) => Some(done),
        Err(cause) if cause.is::<End>() => None,
        Err(cause) => resume_unwind(cause),
    }
}

/// Takes a step that is none on a word, such as a call of the driver.
pub fn step() {
    let _ = alive();
}

fn left(actor: Actor) -> Option<&'static AtomicI64> {
    match actor {
        Actor::Observer => None,
        Actor::Mortal => Some(&STEPS_LEFT[0]),
        Actor::Daemon => Some(&STEPS_LEFT[1]),
    }
}

/// True if the step happens; ends the thread if none is left.
fn alive() -> bool {
    if DEAD.with(Cell::get) {
        return false;
    }
    let Some(left) = left(ACTING.with(Cell::get)) else { return true };
    match left.load(Ordering::Relaxed) {
        0 => {
            left.store(-1, Ordering::Relaxed);
            DEATHS.fetch_add(1, Ordering::Relaxed);
            DEAD.with(|dead| dead.set(true));
            resume_unwind(Box::new(End))
        }
        some if some > 0 => {
            left.store(some - 1, Ordering::Relaxed);
            true
        }
        _ => true,
    }
}

/// A word of a region.
#[derive(Debug)]
pub struct AtomicU64(Store);

#[derive(Debug)]
enum Store {
    Plain(Plain),
    Modelled(Modelled),
}

impl AtomicU64 {
    /// A word that has no part in any race.
    pub fn plain() -> Self {
        Self(Store::Plain(Plain::new(0)))
    }

    /// A word that carries the protocol.
    pub fn modelled() -> Self {
        Self(Store::Modelled(Modelled::new(0)))
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        match &self.0 {
            Store::Plain(word) => word.load(order),
            Store::Modelled(word) if alive() => word.load(order),
            Store::Modelled(_) => 0,
        }
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        match &self.0 {
            Store::Plain(word) => word.store(value, order),
            Store::Modelled(word) if alive() => word.store(value, order),
            Store::Modelled(_) => {}
        }
    }

    pub(crate) fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        match &self.0 {
            Store::Plain(word) => word.compare_exchange(current, new, success, failure),
            Store::Modelled(word) if alive() => word.compare_exchange(current, new, success, failure),
            Store::Modelled(_) => Ok(current),
        }
    }

    pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        match &self.0 {
            Store::Plain(word) => word.fetch_add(value, order),
            Store::Modelled(word) if alive() => word.fetch_add(value, order),
            Store::Modelled(_) => 0,
        }
    }

    pub(crate) fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        match &self.0 {
            Store::Plain(word) => word.fetch_or(value, order),
            Store::Modelled(word) if alive() => word.fetch_or(value, order),
            Store::Modelled(_) => 0,
        }
    }

    pub(crate) fn fetch_update(
        &self,
        set: Ordering,
        fetch: Ordering,
        next: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        match &self.0 {
            Store::Plain(word) => word.fetch_update(set, fetch, next),
            Store::Modelled(word) if alive() => word.fetch_update(set, fetch, next),
            Store::Modelled(_) => Ok(0),
        }
    }

    pub(crate) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        match &self.0 {
            Store::Plain(word) => word.fetch_max(value, order),
            Store::Modelled(word) if alive() => word.fetch_max(value, order),
            Store::Modelled(_) => 0,
        }
    }
}
