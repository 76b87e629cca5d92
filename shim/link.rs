//! Link options of the libraries in this folder, which keep the cost of loading one low.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Prints the options for cargo in the profile `shim`. Other builds link `std`, which needs start files.
pub(crate) fn lean() {
    println!("cargo::rerun-if-changed=../link.rs");
    // Cargo exposes a custom profile's name only in its folders: TARGET/PROFILE/build/PACKAGE/out.
    let folder = env::var("OUT_DIR").unwrap_or_default();
    let profile = Path::new(&folder).ancestors().nth(3).and_then(Path::file_name);
    if profile.is_none_or(|profile| profile != "shim") {
        return;
    }
    // Binds references to the library's own functions at link time: the loader resolves a hundred names less in every
    // program, and a function of the same name in another library does not interpose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // The library has no constructors or destructors, so it needs no start files.
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
    // Segments that begin at a page's start: what is written at load lies in two pages, and needs no mapping of its own
    // for zeroes. Linkers without the option warn, and lay out as before.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments");
}

/// Links the library under the driver's name, with a dependency on the driver's own file.
///
/// That file has the name `alias` once this library is mounted in its place.
#[allow(dead_code, reason = "not in a library that is preloaded")]
pub(crate) fn in_place_of(driver: &str, alias: &str) {
    /// Folder in which the loader finds it, after those of LD_LIBRARY_PATH.
    ///
    /// The loader's cache does not list it: the cache holds libraries by their own SONAME.
    const HOME: &str = "/run/tranche/driver";
    println!("cargo::rerun-if-changed=build.rs");
    lean();
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder for what is generated"));
    let (source, stand_in) = (folder.join("nothing.c"), folder.join(alias));
    fs::write(&source, "").expect("what is generated can be written");
    // The linker opens each library that is needed. No symbol is resolved from it, so an empty one of that name is
    // enough. Cargo sets RUSTC_LINKER only where a linker is configured, as for another machine.
    let mut compiler = Command::new(env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into()));
    compiler
        .args(["-shared", "-nostdlib", &format!("-Wl,-soname,{alias}"), "-o"])
        .arg(&stand_in)
        .arg(&source);
    let linked = compiler.status();
    assert!(linked.as_ref().is_ok_and(std::process::ExitStatus::success), "{compiler:?}: {linked:?}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{driver},--enable-new-dtags,-rpath,{HOME}");
    for argument in ["-Wl,--no-as-needed", &stand_in.to_string_lossy(), "-Wl,--as-needed"] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
