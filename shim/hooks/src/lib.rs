//! Hooks between a program and the NVIDIA driver, so that the program is held to its slice.
//!
//! Laws:
//! - *Do no harm.* No constructor, no signal handler, no output, no allocator, no thread; nothing happens before
//!   the first call of a governed function, and a function that the table in `hooks` does not name is never
//!   touched.
//! - It needs libc.so.6 and nothing newer in it than GLIBC 2.17; system calls go through `syscall(2)`, which is
//!   no cancellation point and has one old version.
//! - It fails closed: a process that the daemon does not attach has no device.
//! - Decisions are made in `tranche_policy`. This crate holds the unsafe part: foreign pointers, symbol tables,
//!   mappings, calls into the driver.
//!
//! Memory that a program can still take beyond its charge, until these are governed too: memory of graphs (allocation
//! nodes, and stream-ordered allocations under capture), overhead of code loading and context limits beyond the
//! calibrated reserve, handles imported from another process, and for the length of one call a pool's growth beyond
//! the request. It still reads the load of its neighbours where NVML reports it for the device as a whole
//! (`nvmlDeviceGetSamples`, performance counters).
//!
//! A preloaded library cannot prevent one conflict: a shared library of the program that exports *data* under a
//! driver function's name would find the shim's function in its place.
//!
//! The artefacts are built with the `shim` profile, such as `cargo build --profile shim -p tranche-preload`. Every
//! other build exports none of these names, or they would shadow the driver's in our own tests.
#![cfg_attr(panic = "abort", no_std)]
#![cfg_attr(
    not(all(panic = "abort", feature = "preload")),
    allow(dead_code, reason = "only the artefacts export, and so use, the hooks")
)]

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "the doors are written for x86_64 and aarch64; another machine needs a file of its own in machine/"
);

#[macro_use]
mod machine;

#[cfg(not(feature = "preload"))]
mod alias;
mod attach;
mod bell;
mod connection;
mod cuda;
mod direct;
mod driver_call;
mod elf;
mod environment;
mod forms;
mod hooks;
mod launch;
mod libraries;
mod link_map;
mod lookup;
mod nvml;
mod progress;
mod root;
mod sys;
mod thread;

/// Items that a library without `std` has to define.
#[cfg(panic = "abort")]
mod alone {
    // The precompiled core names an unwinder's personality in its tables. Nothing unwinds here, so it is never
    // called, but the name must be found inside this library and must not be exported.
    core::arch::global_asm!(
        ".hidden rust_eh_personality",
        ".globl rust_eh_personality",
        "rust_eh_personality:",
        ends!()
    );

    #[link(name = "c")]
    unsafe extern "C" {}

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        // SAFETY: abort has no preconditions. Reached only if an invariant of the shim is broken; to continue would
        // mean memory without a charge.
        unsafe { libc::abort() }
    }
}
