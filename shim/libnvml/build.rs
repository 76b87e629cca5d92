//! Gives the library the driver's name, and has it need the driver under its other name.

#[path = "../link.rs"]
mod link;

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// What programs look for.
const NAME: &str = "libnvidia-ml.so.1";
/// Where the driver's own file can be found once this library stands in its place.
const ALIAS: &str = "libnvidia-ml-real.so.1";
/// Where the loader looks for it, after LD_LIBRARY_PATH: neither the loader's cache, which knows libraries by
/// the names that they give themselves, nor a program's own paths lead there.
const HOME: &str = "/run/tranche/driver";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    link::lean();
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder for what is generated"));
    let (source, stand_in) = (folder.join("nothing.c"), folder.join(ALIAS));
    fs::write(&source, "").expect("what is generated can be written");
    // The linker wants to see what is needed. Nothing is taken from it, so a library of that name is enough.
    // Cargo names the linker only where one is set, as it is for another machine.
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
