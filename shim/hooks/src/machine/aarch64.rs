//! For 64-bit Arm, little-endian, with the procedure call standard of Linux.
//!
//! An entry stub changes registers 9 to 17 alone, which carry no argument. It leaves through register 16, from which
//! a branch may land on a function's first instruction where branch targets are checked.

/// The code of the [direct](crate::direct) path of launches.
///
/// A launch from a signal handler between the load and the store of the launches left is not counted: the thread has
/// one launch more under that lease.
macro_rules! jump {
    ($slow:path, $symbols:path, $offset:expr) => {
        core::arch::naked_asm!(
            "hint #34", // bti c
            "adrp x9, {lease}",
            "ldr x9, [x9, :lo12:{lease}]",
            "adrp x10, :gottprel:tranche_thread",
            "ldr x10, [x10, :gottprel_lo12:tranche_thread]",
            "mrs x11, tpidr_el0",
            "add x10, x10, x11",
            "ldr w9, [x9]",
            "ldr w11, [x10]",
            "cmp w9, w11",
            "b.ne 2f",
            "ldr w11, [x10, #4]",
            "subs w11, w11, #1",
            "str w11, [x10, #4]",
            "b.mi 2f",
            "adrp x16, {symbols} + {offset}",
            "ldr x16, [x16, :lo12:{symbols} + {offset}]",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "b {slow}",
            lease = sym $crate::direct::LEASE,
            symbols = sym $symbols,
            offset = const $offset,
            slow = sym $slow,
        )
    };
}

/// The code of the [direct](crate::direct) path of copies and fills.
macro_rules! pass {
    ($slow:path, $symbols:path, $offset:expr) => {
        core::arch::naked_asm!(
            "hint #34", // bti c
            "adrp x9, {transfers}",
            "ldr x9, [x9, :lo12:{transfers}]",
            "ldr w9, [x9]",
            "cbnz w9, 2f",
            "adrp x16, {symbols} + {offset}",
            "ldr x16, [x16, :lo12:{symbols} + {offset}]",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "b {slow}",
            transfers = sym $crate::direct::TRANSFERS,
            symbols = sym $symbols,
            offset = const $offset,
            slow = sym $slow,
        )
    };
}

/// An entry stub for functions of at most three arguments.
macro_rules! door {
    ($filter:path) => {
        core::arch::naked_asm!(
            "hint #34", // bti c
            "stp x29, x30, [sp, #-48]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "bl {filter}",
            "cbnz x1, 2f",
            "ldp x29, x30, [sp], #48",
            "ret",
            "2:",
            "mov x16, x0",
            "ldr x2, [sp, #32]",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #48",
            "br x16",
            filter = sym $filter,
        )
    };
}

#[cfg(not(feature = "preload"))]
macro_rules! loader {
    () => {
        core::arch::global_asm!(
            ".symver tranche_dlopen, dlopen@GLIBC_2.17",
            ".symver tranche_dlinfo, dlinfo@GLIBC_2.17",
        );
    };
}

#[cfg(panic = "abort")]
macro_rules! ends {
    () => {
        "brk #1"
    };
}

/// Address of the thread's words.
pub(crate) fn storage() -> *const u8 {
    let address: *const u8;
    // SAFETY: the register holds the start of this thread's storage, and the offset is that of the words in it.
    // Neither memory nor flags are changed.
    unsafe {
        core::arch::asm!(
            "mrs {address}, tpidr_el0",
            "adrp {offset}, :gottprel:tranche_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:tranche_thread]",
            "add {address}, {address}, {offset}",
            address = out(reg) address,
            offset = out(reg) _,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    address
}
