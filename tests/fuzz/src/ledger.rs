//! The memory ledger under processes that request, free, claim too much and die, and under restarts.

use std::collections::BTreeMap;

use tranche_domain::ledger::{CapRelation, CreditReply, GrantLedger};
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;

use crate::input::Input;

/// Credit words by seat: bytes granted to a process, and bytes that it uses.
type Words = BTreeMap<Seat, (Bytes, Bytes)>;

fn unused(words: &Words, seat: Seat) -> Bytes {
    words.get(&seat).map_or(Bytes::ZERO, |(granted, used)| granted.saturating_sub(*used))
}

/// Any order of charges, frees, deaths, resizes, restarts, and words that claim more than was granted.
pub fn ledger(data: &[u8]) {
    let mut input = Input(data);
    drive(&mut input);
}

fn drive(input: &mut Input<'_>) -> Option<()> {
    let (mut ledger, mut words) = (GrantLedger::new(Bytes::mib(input.byte()?.into())), Words::new());
    loop {
        let (step, seat) = (input.below(7)?, Seat(input.below(5)?.into()));
        match step {
            0 | 1 => charge(&mut ledger, &mut words, seat, Bytes::mib(input.byte()?.into())),
            2 => {
                let freed = Bytes::mib(input.byte()?.into());
                if let Some(word) = words.get_mut(&seat) {
                    word.1 = word.1.saturating_sub(freed);
                }
            }
            3 => {
                let (total, had) = (ledger.total(), ledger.granted(seat));
                words.remove(&seat);
                assert_eq!(ledger.release(seat), had);
                assert_eq!(ledger.total(), total.saturating_sub(had), "what a process had is free");
            }
            4 => {
                ledger.set_cap(Bytes::mib(input.byte()?.into()));
                let plan = ledger.trim(|seat| unused(&words, seat));
                recall(&mut ledger, &mut words, plan);
                assert_eq!(ledger.trim(|seat| unused(&words, seat)), [], "one trim takes all there is");
            }
            5 => {
                let (claims, had) = (Bytes::new(input.number()?), ledger.granted(seat));
                let beyond = ledger.observe(seat, claims);
                assert_eq!(ledger.granted(seat), had.min(claims), "a claim lowers the grant only");
                assert_eq!(beyond, claims.saturating_sub(had));
                if let Some(word) = words.get_mut(&seat) {
                    *word = (word.0.min(claims), word.1.min(claims));
                }
            }
            _ => restart(&mut ledger, &words),
        }
        check(&ledger, &words);
    }
}

fn charge(ledger: &mut GrantLedger, words: &mut Words, seat: Seat, want: Bytes) {
    let was_over = ledger.standing() != CapRelation::Within;
    let held: Bytes = words.values().map(|(_, used)| *used).sum();
    let before = ledger.clone();
    // A recall of all that was planned is followed by an answer: more turns than that are a livelock.
    for turn in 0.. {
        assert!(turn < 3, "the recalls do not end");
        match ledger.ask(seat, want, |seat| unused(words, seat)) {
            CreditReply::Enough => break,
            CreditReply::Grant(more) => {
                assert!(!was_over && more > Bytes::ZERO);
                let word = words.entry(seat).or_default();
                word.0 = word.0.saturating_add(more);
                break;
            }
            CreditReply::Recall(plan) => recall(ledger, words, plan),
            CreditReply::Exhausted => {
                let fits = held.saturating_add(want) <= ledger.cap();
                assert!(was_over || !fits, "refused although it would have fitted");
                assert!(turn > 0 || *ledger == before, "a refusal changes nothing");
                return;
            }
        }
    }
    let word = words.entry(seat).or_default();
    word.1 = word.1.saturating_add(want);
    assert!(word.1 <= word.0, "the answer covers the request");
}

fn recall(ledger: &mut GrantLedger, words: &mut Words, plan: Vec<(Seat, Bytes)>) {
    for (seat, most) in plan {
        assert!(most > Bytes::ZERO && most <= unused(words, seat), "a recall takes unused credit only");
        let word = words.entry(seat).or_default();
        word.0 = word.0.saturating_sub(most);
        ledger.give_back(seat, most);
    }
}

/// Restores a successor's ledger from the words, in either order with the same result.
fn restart(ledger: &mut GrantLedger, words: &Words) {
    let within = ledger.standing() == CapRelation::Within;
    let take_over = |seats: &mut dyn Iterator<Item = (&Seat, &(Bytes, Bytes))>| {
        let mut fresh = GrantLedger::new(ledger.cap());
        for (seat, (granted, used)) in seats {
            let kept = fresh.restore(*seat, *granted, *used);
            assert!(kept >= *used && (kept <= *granted || kept == *used));
        }
        fresh
    };
    let (one, other) = (take_over(&mut words.iter()), take_over(&mut words.iter().rev()));
    if within {
        assert_eq!(one, other, "the order does not matter where all fits");
        assert_eq!(one.total(), words.values().map(|(granted, _)| *granted).sum());
    }
    if within {
        *ledger = one;
    }
}

fn check(ledger: &GrantLedger, words: &Words) {
    let granted: Bytes = words.values().map(|(granted, _)| *granted).sum();
    assert!(words.values().all(|(granted, used)| used <= granted));
    assert!(granted <= ledger.total(), "a word holds what the ledger does not know of");
    match ledger.standing() {
        CapRelation::Within => assert_eq!(ledger.total().saturating_add(ledger.uncommitted()), ledger.cap()),
        CapRelation::Over(excess) => {
            assert_eq!(ledger.total(), ledger.cap().saturating_add(excess));
            assert_eq!(ledger.uncommitted(), Bytes::ZERO);
        }
    }
}
