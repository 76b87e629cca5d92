//! The library that stands between a program and the NVIDIA driver, so that the program sees its slice.
//!
//! Laws:
//! - *Do no harm.* No constructor, no signal handler, no output, no allocator, no thread; nothing happens before
//!   the first call of a governed function, and a function that the table in `hooks` does not name is never
//!   touched.
//! - It needs libc.so.6 and nothing newer in it than GLIBC 2.17; system calls go through `syscall(2)`, which is
//!   no cancellation point and has one old version.
//! - It fails closed: without a daemon that lets it in, there is no device.
//! - Decisions are made in `tranche_policy`. Here is what cannot be safe: foreign pointers, symbol tables,
//!   mappings, calls into the driver.
//!
//! What a program can still take beyond its charge, until these are governed too: memory of graphs (allocation
//! nodes, and stream-ordered allocations under capture), what code loading and context limits take beyond the
//! calibrated reserve, handles imported from another process, and for the length of one call what a pool grows
//! beyond the request. What it still sees of its neighbours: how busy they make the device where NVML says it of the
//! device as a whole (`nvmlDeviceGetSamples`, performance counters).
//!
//! What can go wrong with a preloaded library and can't be prevented here: a shared library of the program that
//! exports *data* under a driver function's name would find our function in its place.
//!
//! The artefacts are built with the `shim` profile, such as `cargo build --profile shim -p tranche-preload`. In every
//! other build this exports none of its names, or they would shadow the driver's in our own tests.
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
mod elf;
mod environment;
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

/// What a program without the standard library has to bring along.
#[cfg(panic = "abort")]
mod alone {
    // The precompiled core names an unwinder's personality in its tables; nothing unwinds here, so nobody calls
    // it, but the name must be found inside this library and must not be seen outside.
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
        // SAFETY: abort has no requirements. Reached only if an invariant of ours is broken: going on would
        // mean memory that nobody counts.
        unsafe { libc::abort() }
    }
}
