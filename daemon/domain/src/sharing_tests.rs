use super::*;
use crate::ledger::{CapRelation, CreditReply, GrantLedger};
use proptest::prelude::*;

const A: Seat = Seat(0);
const B: Seat = Seat(1);

#[test]
fn the_last_holder_ends_the_charge_whoever_exported() {
    let mut sharing = Sharing::default();
    sharing.export(A, 7, 0, Bytes::mib(5));
    assert!(sharing.import(B, 7) && sharing.import(B, 7));
    assert!(sharing.leave(A).is_empty());
    assert_eq!(sharing.total(0), Bytes::mib(5));
    assert_eq!(sharing.drop_one(B, 7), Some(Released { device: 0, bytes: Bytes::mib(5) }));
    assert_eq!((sharing.drop_one(B, 7), sharing.total(0)), (None, Bytes::ZERO));
}

#[test]
fn what_nobody_exported_is_not_known_and_not_dropped() {
    let mut sharing = Sharing::default();
    assert!(!sharing.import(A, 7));
    sharing.export(A, 7, 0, Bytes::mib(5));
    assert_eq!(sharing.drop_one(B, 7), None, "it was never B's to drop");
    assert_eq!(sharing.total(0), Bytes::mib(5));
}

#[test]
fn a_name_used_again_leaves_the_first_charged_to_those_who_hold_it() {
    let mut sharing = Sharing::default();
    sharing.export(A, 7, 0, Bytes::mib(5));
    sharing.import(B, 7);
    sharing.drop_one(A, 7);
    assert_eq!(sharing.exported_by(A, 7), Exported::New);
    sharing.export(A, 7, 0, Bytes::mib(3));
    assert_eq!((sharing.total(0), sharing.exported_by(A, 7)), (Bytes::mib(8), Exported::Before));
    assert_eq!(sharing.drop_one(B, 7).map(|gone| gone.bytes), Some(Bytes::mib(5)));
    assert_eq!(sharing.drop_one(A, 7).map(|gone| gone.bytes), Some(Bytes::mib(3)));
}

#[derive(Clone, Debug)]
enum Step {
    Charge(u16, u64),
    Export(u16, u64, u64),
    Import(u16, u64),
    Drop(u16, u64),
    Leave(u16),
}

fn any_step() -> impl Strategy<Value = Step> {
    let (seat, key, mib) = (0u16..4, 0u64..3, 1u64..40);
    prop_oneof![
        (seat.clone(), mib.clone()).prop_map(|(seat, mib)| Step::Charge(seat, mib)),
        (seat.clone(), key.clone(), mib).prop_map(|(seat, key, mib)| Step::Export(seat, key, mib)),
        (seat.clone(), key.clone()).prop_map(|(seat, key)| Step::Import(seat, key)),
        (seat.clone(), key).prop_map(|(seat, key)| Step::Drop(seat, key)),
        seat.prop_map(Step::Leave),
    ]
}

proptest! {
    /// Everything granted is used here, so the ledger's total is what processes hold alone and together.
    #[test]
    fn moving_charges_to_the_slice_and_ending_them_conserves_the_total(
        steps in proptest::collection::vec(any_step(), 0..80)
    ) {
        let cap = Bytes::mib(200);
        let (mut ledger, mut sharing) = (GrantLedger::new(cap), Sharing::default());
        for step in steps {
            let before = ledger.total();
            match step {
                Step::Charge(seat, mib) => {
                    if let CreditReply::Grant(more) = ledger.ask(Seat(seat), Bytes::mib(mib), |_| Bytes::ZERO) {
                        ledger.give_back(Seat(seat), more.saturating_sub(Bytes::mib(mib)));
                    }
                }
                Step::Export(seat, key, mib) => {
                    let (seat, bytes) = (Seat(seat), Bytes::mib(mib));
                    if sharing.exported_by(seat, key) == Exported::New && ledger.hand_over(seat, bytes) {
                        sharing.export(seat, key, 0, bytes);
                    }
                    prop_assert_eq!(ledger.total(), before, "an export costs nothing");
                }
                Step::Import(seat, key) => {
                    sharing.import(Seat(seat), key);
                    prop_assert_eq!(ledger.total(), before, "an import costs nothing");
                }
                Step::Drop(seat, key) => {
                    let gone = sharing.drop_one(Seat(seat), key);
                    gone.into_iter().for_each(|gone| ledger.release_shared(gone.bytes));
                }
                Step::Leave(seat) => {
                    sharing.leave(Seat(seat)).into_iter().for_each(|gone| ledger.release_shared(gone.bytes));
                    ledger.release(Seat(seat));
                }
            }
            prop_assert_eq!(ledger.shared(), sharing.total(0));
            prop_assert!(ledger.total() <= cap);
            for (_, shared) in sharing.iter() {
                prop_assert!(shared.holders().count() > 0, "nothing is charged that nobody holds");
                prop_assert!(shared.holders().all(|seat| sharing.holds(seat)));
            }
        }
        for seat in 0..4 {
            sharing.leave(Seat(seat)).into_iter().for_each(|gone| ledger.release_shared(gone.bytes));
            ledger.release(Seat(seat));
        }
        prop_assert_eq!((ledger.total(), ledger.standing()), (Bytes::ZERO, CapRelation::Within));
    }
}
