//! Parts of a control region that all versions of the layout share: version and identities.
//!
//! Their places never change, so that a daemon of another version recognises regions that programs still use, though
//! it cannot read the rest, and does not delete them.

use crate::control::{FIRST_SLOT, MAGIC, ProcessIdentity, SLOT_WORDS, slot};
use crate::region::header;

/// Version in the header of a control region; `None` if the words are no control region.
pub fn of(words: &[u64]) -> Option<u64> {
    let is_control = words.get(header::MAGIC) == Some(&MAGIC);
    words.get(header::ABI).copied().filter(|_| is_control)
}

/// Processes in the slots of a control region of any version. They may have ended.
pub fn identities(words: &[u64]) -> impl Iterator<Item = ProcessIdentity> {
    let seats = words.get(FIRST_SLOT..).unwrap_or_default().chunks_exact(SLOT_WORDS);
    let narrow = |word: u64| u32::try_from(word).unwrap_or(0);
    let identity = move |seat: &[u64]| ProcessIdentity {
        pid: narrow(seat[slot::PID]),
        start_time: seat[slot::START_TIME],
        inner_pid: narrow(seat[slot::INNER_PID]),
    };
    seats.map(identity).filter(|identity| identity.pid != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{ControlWriter, WORDS};
    use crate::word::AtomicU64;
    use crate::{ABI, Slot};
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn identities_in_another_version_are_found() {
        let region: Vec<_> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let writer = ControlWriter::init(&region, 1, 1).unwrap();
        let identity = ProcessIdentity { pid: 7, start_time: 9, inner_pid: 1 };
        writer.occupy(Slot::new(4095).unwrap(), identity);
        let mut words: Vec<u64> = region.into_iter().map(AtomicU64::into_inner).collect();
        assert_eq!(of(&words), Some(ABI));
        words[header::ABI] = ABI + 1;
        assert_eq!(of(&words), Some(ABI + 1));
        assert_eq!(identities(&words).collect::<Vec<_>>(), [identity]);
    }

    proptest! {
        #[test]
        fn hostile_words_are_read_without_a_panic(words: Vec<u64>) {
            prop_assert_eq!(of(&words).is_some(), words.len() > 1 && words[0] == MAGIC);
            prop_assert!(identities(&words).count() <= words.len() / SLOT_WORDS);
        }
    }
}
