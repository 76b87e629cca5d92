//! See `../link.rs`. The library's own name ends with the version of shared memory.
//!
//! The libraries of two releases that differ in it are two libraries to the loader and to the daemon.

#[path = "../link.rs"]
mod link;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtranche_preload.so.{}", tranche_shm::ABI);
    link::lean();
}
