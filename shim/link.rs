//! How the libraries of this folder are linked, so that a process pays as little as can be for loading one.

/// Tells cargo. Only for the artefacts: in other builds these libraries are ordinary Rust, which needs more.
pub(crate) fn lean() {
    println!("cargo::rerun-if-changed=../link.rs");
    // Cargo names the profile nowhere but in its folders: TARGET/PROFILE/build/PACKAGE/out.
    let folder = std::env::var("OUT_DIR").unwrap_or_default();
    let profile = std::path::Path::new(&folder).ancestors().nth(3).and_then(std::path::Path::file_name);
    if profile.is_none_or(|profile| profile != "shim") {
        return;
    }
    // What we define and refer to is found when we are linked: the loader does not look for a hundred names in every
    // library of the program, and nobody else's function of the same name comes between ours.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // There is nothing to do when the library comes or goes, so the compiler's code for that stays out.
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
}
