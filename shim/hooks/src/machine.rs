//! What has to be written in instructions, once for each kind of processor: doors that leave a program's arguments where
//! they are, and a thread's own words.
//!
//! Each machine has the same:
//! - `jump!` and `pass!`, the bodies of doors for launches and for copies, described where they are made: [`crate::launch`];
//! - `door!`, the body of `dlsym` and `dlvsym`: asks a filter, with the caller's return address in place, and returns what
//!   it gives or jumps there with the caller's arguments;
//! - `storage`, where in this thread's storage the label `tranche_thread` lies;
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
