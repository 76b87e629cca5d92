//! Links the library under the driver's name, with a dependency on the driver under its other name.

#[path = "../link.rs"]
mod link;

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// Name under which programs open the driver.
const NAME: &str = "libcuda.so.1";
/// Name of the driver's own file once this library is mounted in its place.
const ALIAS: &str = "libcuda-real.so.1";
/// Folder in which the loader finds it, after those of LD_LIBRARY_PATH.
///
/// The loader's cache does not list it: the cache holds libraries by their own SONAME.
const HOME: &str = "/run/tranche/driver";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    link::lean();
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder for what is generated"));
    let (source, stand_in) = (folder.join("nothing.c"), folder.join(ALIAS));
    fs::write(&source, "").expect("what is generated can be written");
    // The linker opens each library that is needed. No symbol is resolved from it, so an empty one of that name is
    // enough. Cargo sets RUSTC_LINKER only where a linker is configured, as for another machine.
    let mut compiler = Command::new(env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into()));
    compiler
        .args(["-shared", "-nostdlib", &format!("-Wl,-soname,{ALIAS}"), "-o"])
        .arg(&stand_in)
        .arg(&source);
    let linked = compiler.status();
    assert!(linked.as_ref().is_ok_and(std::process::ExitStatus::success), "{compiler:?}: {linked:?}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{NAME},--enable-new-dtags,-rpath,{HOME}");
    for argument in ["-Wl,--no-as-needed", &stand_in.to_string_lossy(), "-Wl,--as-needed"] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
