//! Checkpoints that a program makes of itself or of another process.
//!
//! What is checkpointed stays charged, so it comes back within the cap. Only a restore on other GPUs than before
//! would be beside the books: the charges name the former ones.

use core::ffi::c_int;

use super::abi::NOT_SUPPORTED;

/// `CUcheckpointRestoreArgs` of CUDA 13, as far as it is read here. Before, all of it is reserved and zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RestoreArguments {
    pairs: *const GpuPair,
    count: u32,
}

/// `CUcheckpointGpuPair`: the UUIDs of a GPU and of the one in its place.
#[derive(Clone, Copy)]
#[repr(C)]
struct GpuPair {
    old: [u8; 16],
    new: [u8; 16],
}

/// Restores a process on the GPUs that it had. A map to others is not supported.
pub(crate) unsafe fn restore(real: impl FnOnce() -> c_int, arguments: *const RestoreArguments) -> c_int {
    // SAFETY: the arguments are valid by the hook's contract.
    if unsafe { moves(arguments) } { NOT_SUPPORTED } else { real() }
}

/// Tests if some GPU gets another one's place.
///
/// # Safety
/// `arguments` is null or as the driver documents it: with `count` readable pairs, unless their address is null.
unsafe fn moves(arguments: *const RestoreArguments) -> bool {
    if arguments.is_null() {
        return false;
    }
    // SAFETY: not null, so readable by the caller's promise; a program may have put it at any address.
    let RestoreArguments { pairs, count } = unsafe { arguments.read_unaligned() };
    // SAFETY: not null (tested first), so there are `count` pairs by the caller's promise, which bounds the index.
    let pair = |index: u32| unsafe { pairs.add(index as usize).read_unaligned() };
    !pairs.is_null() && (0..count).map(pair).any(|GpuPair { old, new }| old != new)
}

#[cfg(test)]
mod tests {
    use core::ptr::{null, null_mut};
    use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

    use super::*;

    /// Pid of the last restore that reached the driver.
    static RESTORED: AtomicI32 = AtomicI32::new(0);

    unsafe extern "C" fn driver(pid: c_int, _: *mut RestoreArguments) -> c_int {
        RESTORED.store(pid, SeqCst);
        0
    }

    #[test]
    fn a_restore_on_other_gpus_never_reaches_the_driver() {
        let same = GpuPair { old: [1; 16], new: [1; 16] };
        let moved = GpuPair { old: [1; 16], new: [2; 16] };
        let both = [same, moved];
        let restored = |pid, arguments: *mut RestoreArguments| {
            // SAFETY: null, or arguments on the stack of this test with as many pairs as they name.
            let result = unsafe { restore(|| driver(pid, arguments), arguments) };
            (result, RESTORED.load(SeqCst) == pid)
        };
        let with = |pid, pairs: *const GpuPair, count| restored(pid, &mut RestoreArguments { pairs, count });
        assert_eq!(restored(1, null_mut()), (0, true));
        assert_eq!(with(2, null(), 0), (0, true));
        assert_eq!(with(3, null(), 1), (0, true), "the driver's refusal");
        assert_eq!(with(4, &raw const both[0], 1), (0, true), "all stay");
        assert_eq!(with(5, &raw const both[0], 2), (NOT_SUPPORTED, false));
        assert_eq!(with(6, &raw const both[1], 1), (NOT_SUPPORTED, false));
    }
}
