//! The direct path to the driver, past the gate, and the words by which it is open.
//!
//! A governed launch (`jump!`) jumps to the driver's function, with the program's arguments in place, as long as the
//! thread has launches left under the present lease. All others go to a function of the shim with the same arguments.
//! A copy or fill (`pass!`) takes the direct path likewise unless it counts.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

/// A lease whose turn no thread holds.
static SHUT: AtomicU64 = AtomicU64::new(u64::MAX);

/// The word that each launch compares: the slice's lease, or a turn that no thread holds.
pub(crate) static LEASE: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const SHUT).cast_mut());

/// Initial value of [`TRANSFERS`]: counts until the control region is known.
static UNKNOWN: AtomicU64 = AtomicU64::new(1);

/// The word by which each copy and fill decides: the control region's, once the first has attached.
pub(crate) static TRANSFERS: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const UNKNOWN).cast_mut());

/// Closes the direct path to launches.
pub(crate) fn shut() {
    LEASE.store((&raw const SHUT).cast_mut(), Relaxed);
}

/// Opens the direct path to launches under this lease, or closes it without one.
pub(crate) fn open(lease: Option<&'static AtomicU64>) {
    let open = ptr::from_ref(lease.unwrap_or(&SHUT)).cast_mut();
    if LEASE.load(Relaxed) != open {
        LEASE.store(open, Relaxed);
    }
}

/// Lets copies and fills decide by this word of the control region.
pub(crate) fn decide_by(transfers: &'static AtomicU64) {
    if !ptr::eq(TRANSFERS.load(Relaxed), transfers) {
        TRANSFERS.store(ptr::from_ref(transfers).cast_mut(), Relaxed);
    }
}
