//! Ledger against the words of processes that an earlier daemon attached.

use std::sync::atomic::AtomicU64;

use tranche_domain::ledger::GrantLedger;
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;
use tranche_shm::credit::{Credit, CreditWord, Units};
use tranche_shm::total::TotalWord;

use super::account::LedgerAccount;

const fn bytes(units: u32) -> Bytes {
    Bytes::new(Units::new(units).bytes())
}

#[test]
fn memory_of_an_ended_process_is_granted_once() {
    let (first, second, total) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let words =
        |seat: Seat| CreditWord::at(if seat == Seat(0) { &first } else { &second }, TotalWord::at(&total));
    let full = |units| Credit { granted: Units::new(units), used: Units::new(units), turn: true };
    words(Seat(0)).reset(full(60));
    words(Seat(1)).reset(full(50));
    // The slice is over its cap, and the driver lists only part of what the second process's word still claims.
    let mut ledger = GrantLedger::new(bytes(100));
    let mut account = LedgerAccount { ledger: &mut ledger, words };
    account.take_over(Seat(0), None);
    account.take_over_ended(Seat(1), Some(bytes(10)));
    words(Seat(0)).release(Units::new(20));
    assert!(account.credit(Seat(0), bytes(20)));
    account.credit(Seat(0), bytes(30));
    let granted = words(Seat(0)).load().granted.saturating_add(words(Seat(1)).load().granted);
    assert!(granted <= Units::new(100), "{granted:?}");
    assert!(words(Seat(1)).load().turn, "the bit tells of a hand-over");
}
