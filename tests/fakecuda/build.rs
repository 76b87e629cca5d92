//! Gives the library the name that programs look for, and binds its own calls to itself.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // A preloaded library that exports the same names must not change what the driver answers for them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Host functions may be pending in its thread when a program unloads it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
