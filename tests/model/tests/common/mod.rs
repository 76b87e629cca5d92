//! Exploration of a scenario: each order of its steps, each death, and the search for a mistake.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use model::word::{Actor, deaths, let_live};
use model::world::Variant;

/// Serialises the models, as steps and deaths are counted in statics of the process.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Explores every order with at most that many preemptions; returns the number of orders.
pub(crate) fn explore(interruptions: usize, scenario: impl Fn() + Send + Sync + 'static) -> u64 {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.max_branches = 10_000;
    let orders = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&orders);
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        scenario();
    });
    orders.load(Relaxed)
}

/// Tests if the model finds a fault in the scenario.
pub(crate) fn finds_fault(scenario: impl FnOnce() -> u64) -> bool {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = catch_unwind(AssertUnwindSafe(scenario));
    std::panic::set_hook(quiet);
    outcome.is_err()
}

/// Explores a scenario with `actor` dying at its first step, its second, and so on until none dies.
pub(crate) fn explore_deaths(actor: Actor, interruptions: usize, scenario: fn(Variant)) {
    let (mut all, mut orders) = (0, 0);
    for steps in 0.. {
        orders += explore(interruptions, move || {
            let_live(actor, Some(steps));
            scenario(Variant::Right);
        });
        let_live(actor, None);
        let died = deaths();
        all += died;
        if died == 0 {
            println!("{actor:?}: {orders} orders, {all} deaths at {steps} different steps");
            assert!(steps >= 5, "{actor:?} took steps that could be its last");
            return;
        }
    }
}

pub(crate) fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Tests if the mistake is found when a thread dies at one of its first 60 steps.
pub(crate) fn with_death(actor: Actor, scenario: fn(Variant), variant: Variant) -> bool {
    (0..60).any(|steps| {
        let found = finds_fault(|| {
            explore(1, move || {
                let_live(actor, Some(steps));
                scenario(variant);
            })
        });
        let_live(actor, None);
        found
    })
}
