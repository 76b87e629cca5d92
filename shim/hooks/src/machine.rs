//! Parts in assembly, once for each kind of processor: entry stubs that leave arguments in place.
//!
//! And the address of a thread's own words.
//!
//! Each machine has the same:
//! - `jump!` and `pass!`, the bodies of entry stubs for launches and for copies, described in [`crate::direct`];
//! - `door!`, the body of `dlsym` and `dlvsym`: calls a filter, with the caller's return address in place, and returns its
//!   address or jumps there with the caller's arguments;
//! - `storage`, the address of the label `tranche_thread` in this thread's storage;
//! - `loader!` and `ends!`, the oldest versions of two functions of libc, and an instruction that ends the process.

#[cfg(target_arch = "aarch64")]
#[macro_use]
mod aarch64;
#[cfg(target_arch = "x86_64")]
#[macro_use]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::storage;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::storage;
