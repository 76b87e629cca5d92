use super::*;
use proptest::prelude::*;

const A: Seat = Seat(0);
const B: Seat = Seat(1);

fn none(_: Seat) -> Bytes {
    Bytes::ZERO
}

/// The words that processes hold, as a model: granted and used per seat.
#[derive(Default)]
struct Words(BTreeMap<Seat, (Bytes, Bytes)>);

impl Words {
    fn unused(&self, seat: Seat) -> Bytes {
        self.0.get(&seat).map_or(Bytes::ZERO, |(granted, used)| granted.saturating_sub(*used))
    }

    fn used(&self) -> Bytes {
        self.0.values().map(|(_, used)| *used).sum()
    }

    fn recall(&mut self, ledger: &mut GrantLedger, plan: Vec<(Seat, Bytes)>) {
        for (seat, most) in plan {
            let got = self.unused(seat).min(most);
            let word = self.0.entry(seat).or_default();
            word.0 = word.0.saturating_sub(got);
            ledger.give_back(seat, got);
        }
    }

    /// Charges a process, with requests for credit as the shim sends them.
    fn charge(&mut self, ledger: &mut GrantLedger, seat: Seat, want: Bytes) -> bool {
        loop {
            let unused = |other| self.unused(other);
            match ledger.ask(seat, want, unused) {
                CreditReply::Enough => break,
                CreditReply::Grant(more) => {
                    let word = self.0.entry(seat).or_default();
                    word.0 = word.0.saturating_add(more);
                }
                CreditReply::Recall(plan) => self.recall(ledger, plan),
                CreditReply::Exhausted => return false,
            }
        }
        let word = self.0.entry(seat).or_default();
        word.1 = word.1.saturating_add(want);
        true
    }
}

#[test]
fn the_first_to_ask_gets_all_that_is_uncommitted() {
    let mut ledger = GrantLedger::new(Bytes::mib(100));
    assert_eq!(ledger.ask(A, Bytes::mib(2), none), CreditReply::Grant(Bytes::mib(100)));
    assert_eq!(ledger.uncommitted(), Bytes::ZERO);
}

#[test]
fn unused_credit_moves_to_a_sibling_before_it_is_refused() {
    let (mut ledger, mut words) = (GrantLedger::new(Bytes::mib(100)), Words::default());
    assert!(words.charge(&mut ledger, A, Bytes::mib(30)));
    assert!(words.charge(&mut ledger, B, Bytes::mib(70)));
    assert!(!words.charge(&mut ledger, B, Bytes::mib(1)));
    assert_eq!((ledger.granted(A), ledger.granted(B)), (Bytes::mib(30), Bytes::mib(70)));
}

#[test]
fn more_than_the_cap_is_refused_without_taking_anything_from_anybody() {
    let (mut ledger, mut words) = (GrantLedger::new(Bytes::mib(100)), Words::default());
    assert!(words.charge(&mut ledger, A, Bytes::mib(1)));
    let before = ledger.clone();
    assert!(!words.charge(&mut ledger, B, Bytes::mib(100)));
    assert_eq!(ledger, before);
}

#[test]
fn after_a_shrink_below_use_nothing_is_granted_until_use_has_fallen() {
    let (mut ledger, mut words) = (GrantLedger::new(Bytes::mib(100)), Words::default());
    assert!(words.charge(&mut ledger, A, Bytes::mib(80)));
    ledger.set_cap(Bytes::mib(50));
    let plan = ledger.trim(|seat| words.unused(seat));
    words.recall(&mut ledger, plan);
    assert_eq!(ledger.standing(), CapRelation::Over(Bytes::mib(30)));
    assert!(!words.charge(&mut ledger, A, Bytes::mib(1)));
    // The process frees 60 MiB and, being over the cap, gives the credit back with them.
    words.0.insert(A, (Bytes::mib(20), Bytes::mib(20)));
    assert_eq!(ledger.observe(A, Bytes::mib(20)), Bytes::ZERO);
    assert_eq!(ledger.standing(), CapRelation::Within);
    assert!(words.charge(&mut ledger, A, Bytes::mib(30)));
    assert!(!words.charge(&mut ledger, A, Bytes::mib(1)));
}

#[test]
fn a_word_that_claims_more_than_was_granted_is_not_believed() {
    let mut ledger = GrantLedger::new(Bytes::mib(100));
    ledger.ask(A, Bytes::mib(1), none);
    assert_eq!(ledger.observe(A, Bytes::mib(500)), Bytes::mib(400));
    assert_eq!(ledger.granted(A), Bytes::mib(100));
}

#[test]
fn a_restart_takes_over_grants_but_not_beyond_the_cap() {
    let mut ledger = GrantLedger::new(Bytes::mib(100));
    assert_eq!(ledger.restore(A, Bytes::mib(80), Bytes::mib(10)), Bytes::mib(80));
    assert_eq!(ledger.restore(B, Bytes::mib(80), Bytes::mib(15)), Bytes::mib(20));
    assert_eq!(ledger.standing(), CapRelation::Within);
}

#[derive(Clone, Debug)]
enum Step {
    Charge(u16, u64),
    Free(u16, u64),
    Die(u16),
    Cap(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u16..4, 0u64..120).prop_map(|(seat, mib)| Step::Charge(seat, mib)),
        3 => (0u16..4, 0u64..120).prop_map(|(seat, mib)| Step::Free(seat, mib)),
        1 => (0u16..4).prop_map(Step::Die),
        1 => (1u64..300).prop_map(Step::Cap),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_grants_are_conserved_and_within_the_cap(
        steps in proptest::collection::vec(any_step(), 0..60)
    ) {
        let (mut ledger, mut words) = (GrantLedger::new(Bytes::mib(200)), Words::default());
        for step in steps {
            let over = ledger.standing() != CapRelation::Within;
            let before = ledger.total();
            match step {
                Step::Charge(seat, mib) => {
                    let done = words.charge(&mut ledger, Seat(seat), Bytes::mib(mib));
                    prop_assert!(!(over && done && mib > 0), "nothing new while over the cap");
                }
                Step::Free(seat, mib) => {
                    let word = words.0.entry(Seat(seat)).or_default();
                    word.1 = word.1.saturating_sub(Bytes::mib(mib));
                }
                Step::Die(seat) => {
                    let had = ledger.granted(Seat(seat));
                    words.0.remove(&Seat(seat));
                    prop_assert_eq!(ledger.release(Seat(seat)), had);
                    prop_assert_eq!(ledger.total(), before.saturating_sub(had));
                }
                Step::Cap(mib) => ledger.set_cap(Bytes::mib(mib)),
            }
            let plan = ledger.trim(|seat| words.unused(seat));
            words.recall(&mut ledger, plan);
            for (seat, (granted, used)) in &words.0 {
                prop_assert_eq!(ledger.granted(*seat), *granted, "the words are copies of the ledger");
                prop_assert!(used <= granted);
            }
            match ledger.standing() {
                CapRelation::Within => {
                    prop_assert_eq!(ledger.total().saturating_add(ledger.uncommitted()), ledger.cap());
                }
                CapRelation::Over(excess) => {
                    prop_assert_eq!(words.used(), ledger.cap().saturating_add(excess), "all of it in use");
                }
            }
        }
    }

    #[test]
    fn a_charge_is_refused_only_if_it_would_exceed_the_cap(
        charges in proptest::collection::vec((0u16..5, 1u64..90), 1..40)
    ) {
        let (mut ledger, mut words) = (GrantLedger::new(Bytes::mib(256)), Words::default());
        for (seat, mib) in charges {
            let fits = words.used().saturating_add(Bytes::mib(mib)) <= ledger.cap();
            prop_assert_eq!(words.charge(&mut ledger, Seat(seat), Bytes::mib(mib)), fits);
        }
    }
}
