//! Changes of shared memory in their persistent form, and their replay.

use serde::{Deserialize, Serialize};
use tranche_domain::sharing::{DeviceIndex, Sharing};
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;

/// One entry of the journal of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    /// Written before the charge is handed over. `turn` is the exporter's turn bit afterwards; `None` if the charge
    /// is known to have been handed over.
    Export {
        seat: u16,
        key: u64,
        device: DeviceIndex,
        bytes: Bytes,
        turn: Option<bool>,
    },
    Import {
        seat: u16,
        key: u64,
    },
    Drop {
        seat: u16,
        key: u64,
    },
    Leave {
        seat: u16,
    },
    Beyond {
        seat: u16,
        device: DeviceIndex,
        bytes: Bytes,
    },
}

impl Change {
    fn doubtful(self) -> Option<Doubtful> {
        match self {
            Self::Export { seat, key, device, turn: Some(turn), .. } => {
                Some(Doubtful { seat: Seat(seat), key, device, turn })
            }
            _ => None,
        }
    }
}

/// Driver overhead beyond the charge of each slot and device, as last recorded.
pub(crate) type Beyond = Vec<(Seat, DeviceIndex, Bytes)>;

/// An export that may not have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubtful {
    pub(crate) seat: Seat,
    pub(crate) key: u64,
    pub(crate) device: DeviceIndex,
    /// The exporter's turn bit if it did.
    pub(crate) turn: bool,
}

/// Result of a replay besides the shares.
#[derive(Debug, Default)]
pub(crate) struct Legacy {
    pub(crate) beyond: Beyond,
    /// The last change, if it is in doubt. A later change shows that the charge was handed over, or records that it
    /// was not.
    pub(crate) doubtful: Option<Doubtful>,
}

/// Applies one change during a replay.
pub(crate) fn replay(sharing: &mut Sharing, legacy: &mut Legacy, change: Change) {
    let Legacy { beyond, doubtful } = legacy;
    *doubtful = change.doubtful();
    match change {
        Change::Export { seat, key, device, bytes, .. } => sharing.export(Seat(seat), key, device, bytes),
        Change::Import { seat, key } => drop(sharing.import(Seat(seat), key)),
        Change::Drop { seat, key } => drop(sharing.drop_one(Seat(seat), key)),
        Change::Leave { seat } => {
            sharing.leave(Seat(seat));
            beyond.retain(|(holder, ..)| *holder != Seat(seat));
        }
        Change::Beyond { seat, device, bytes } => {
            beyond.retain(|(holder, at, _)| (*holder, *at) != (Seat(seat), device));
            beyond.push((Seat(seat), device, bytes));
        }
    }
}

/// Changes that produce the current state from nothing. Where a key was reused, the holders of its first share open
/// that before the key is exported again.
pub(crate) fn whole(sharing: &Sharing, beyond: &Beyond) -> Vec<Change> {
    let mut changes = Vec::new();
    for (key, shared) in sharing.iter() {
        let mut holders = shared.holders();
        let Some(Seat(first)) = holders.next() else { continue };
        let (device, bytes) = (shared.device, shared.bytes);
        changes.push(Change::Export { seat: first, key, device, bytes, turn: None });
        changes.extend(holders.map(|Seat(seat)| Change::Import { seat, key }));
    }
    changes.extend(beyond.iter().map(|&(Seat(seat), device, bytes)| Change::Beyond { seat, device, bytes }));
    changes
}
