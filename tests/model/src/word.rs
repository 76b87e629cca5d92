//! Words whose every access loom may delay or reorder, and which notice when somebody's last step is taken.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64 as Plain, Ordering};

use loom::sync::atomic::AtomicU64 as Modelled;

/// Who takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// Whoever looks on: never dies.
    Observer,
    /// The process that may have to die.
    Mortal,
    /// The daemon, whose code runs in the thread of whoever asked it, as a call of a socket waits for its answer.
    Daemon,
}

static DEATHS: Plain = Plain::new(0);

/// Steps left to each thread that may die; below zero, all there are.
static STEPS_LEFT: [AtomicI64; 2] = [AtomicI64::new(-1), AtomicI64::new(-1)];

loom::thread_local! {
    static ACTING: Cell<Actor> = Cell::new(Actor::Observer);
    static DEAD: Cell<bool> = Cell::new(false);
}

/// Somebody's end, which unwinds to where somebody was born.
struct End;

/// Lets the mortal process, or the daemon, take so many steps on words and no more.
pub fn let_live(actor: Actor, steps: Option<u32>) {
    if let Some(left) = left(actor) {
        left.store(steps.map_or(-1, i64::from), Ordering::Relaxed);
    }
}

/// Number of deaths since the last call, in all the orders explored.
pub fn deaths() -> u64 {
    DEATHS.swap(0, Ordering::Relaxed)
}

/// Takes steps as `actor`; nothing if it died of it. What would run while it unwinds touches no word any more:
/// the dead do not clean up.
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

/// Tests if the step happens; the last one is a thread's end.
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
    /// A word over which nobody races.
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
