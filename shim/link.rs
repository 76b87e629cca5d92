//! Link options of the libraries in this folder, which keep the cost of loading one low.

/// Prints the options for cargo in the profile `shim`. Other builds link `std`, which needs start files.
pub(crate) fn lean() {
    println!("cargo::rerun-if-changed=../link.rs");
    // Cargo exposes a custom profile's name only in its folders: TARGET/PROFILE/build/PACKAGE/out.
    let folder = std::env::var("OUT_DIR").unwrap_or_default();
    let profile = std::path::Path::new(&folder).ancestors().nth(3).and_then(std::path::Path::file_name);
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
