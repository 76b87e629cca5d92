//! The changes of what is shared, as they are written down, and what is when they are read back.

use serde::{Deserialize, Serialize};
use tranche_domain::sharing::{DeviceIndex, Sharing};
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    /// Written down before the charge is taken over. `turn` is how the exporter's word stands afterwards; nothing where
    /// it is known that it was taken over.
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

/// What the driver took beyond reserves, last as it was known.
pub(crate) type Beyond = Vec<(Seat, DeviceIndex, Bytes)>;

/// An export that may never have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubtful {
    pub(crate) seat: Seat,
    pub(crate) key: u64,
    pub(crate) device: DeviceIndex,
    /// How the exporter's word stands if it did.
    pub(crate) turn: bool,
}

/// What is read back beside what is shared.
#[derive(Debug, Default)]
pub(crate) struct Legacy {
    pub(crate) beyond: Beyond,
    /// The last change, if it leaves anything in doubt. Whoever wrote another after it had either taken the charge
    /// over or wrote just that it had not.
    pub(crate) doubtful: Option<Doubtful>,
}

/// What becomes of it when a change is read back.
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

/// What there is, as changes from nothing. A name that stands for two things is opened, by those who hold the
/// first, before it stands for the second.
pub(crate) fn whole(sharing: &Sharing, beyond: &Beyond) -> Vec<Change> {
    let mut changes = Vec::new();
    for (key, shared) in sharing.iter() {
        let mut holders = shared.holders();
        let Some(Seat(first)) = holders.next() else { continue };
        let (device, bytes) = (shared.device, shared.bytes);
        changes.push(Change::Export { seat: first, key, device, bytes, turn: None });
        changes.extend(holders.map(|Seat(seat)| Change::Import { seat, key }));
    }
    changes.extend(beyond.iter().map(|(Seat(seat), device, bytes)| Change::Beyond {
        seat: *seat,
        device: *device,
        bytes: *bytes,
    }));
    changes
}
