//! The library is loaded in the place of NVIDIA's, so it has the soname of that library.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
