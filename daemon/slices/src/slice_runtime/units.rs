//! Bytes of limits in units of credit.

use tranche_domain::units::Bytes;
use tranche_shm::credit::Units;

/// Rounds a context reserve up.
pub(super) fn context_units(reserve: Bytes) -> Units {
    Units::covering(reserve.get()).unwrap_or(Units::MAX)
}

/// Rounds a cap down to 4 KiB, the unit of credit.
pub(super) fn ledger_cap(cap: Bytes) -> Bytes {
    Bytes::new(Units::within(cap.get()).bytes())
}
