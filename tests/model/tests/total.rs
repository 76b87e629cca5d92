//! The total of a slice, which is remembered while nothing changes.
//!
//! Two processes change what they use, while one of them, or both, read the total.

use std::sync::Arc;

use model::slice::Slice;

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(scenario);
}

#[test]
fn changes_are_in_each_total_that_is_read_after() {
    explore(|| {
        let slice = Arc::new(Slice::with_credit());
        let other = Arc::clone(&slice);
        let second = loom::thread::spawn(move || {
            other.charge(1, 2);
            let seen = other.used();
            assert!([2, 3].contains(&seen), "it holds 2, and the other 0 or 1: {seen}");
        });
        slice.charge(0, 1);
        let seen = slice.used();
        assert!([1, 3].contains(&seen), "it holds 1, and the other 0 or 2: {seen}");
        second.join().expect("it ends");
        assert_eq!(slice.used(), 3);
    });
}

#[test]
fn sum_overtaken_while_made_is_not_remembered() {
    explore(|| {
        let slice = Arc::new(Slice::with_credit());
        slice.charge(0, 1);
        let other = Arc::clone(&slice);
        let looker = loom::thread::spawn(move || {
            other.used();
            other.used()
        });
        slice.charge(0, 1);
        slice.release(0, 2);
        let seen = looker.join().expect("it ends");
        assert!(seen <= 2, "{seen}");
        assert_eq!(slice.used(), 0);
    });
}
