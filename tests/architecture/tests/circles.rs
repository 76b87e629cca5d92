//! No import circle among the files of a crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use architecture::imports::{self, Imports};
use architecture::{Workspace, root};

#[test]
fn no_file_imports_itself_through_others() {
    let circles = circles().into_iter().filter(|(_, circles)| !circles.is_empty());
    let found: Vec<_> = circles.map(|(name, circles)| format!("{name}:\n{}", circles.concat())).collect();
    assert!(found.is_empty(), "files that import each other in circles:\n{}", found.join("\n"));
}

/// The circles of each crate: the imports among their files.
fn circles() -> BTreeMap<String, Vec<String>> {
    let workspace = Workspace::survey();
    let of = |target: &cargo_metadata::Target| {
        let imports = imports::of_target(target.src_path.as_std_path());
        let circles = imports::circles(&imports);
        circles.iter().map(|circle| ties(&imports, circle)).collect::<Vec<_>>()
    };
    let is_built = |target: &&cargo_metadata::Target| !target.is_test() && !target.is_custom_build();
    let crates = workspace.crates().into_iter();
    crates
        .map(|(name, package)| {
            (name.to_owned(), package.targets.iter().filter(is_built).flat_map(of).collect())
        })
        .collect()
}

/// The imports among the files of a circle, with the names taken.
fn ties(imports: &Imports, circle: &[PathBuf]) -> String {
    let short = |path: &Path| path.strip_prefix(root()).unwrap_or(path).display().to_string();
    let mut text = format!("  {} files\n", circle.len());
    for (from, to) in circle.iter().flat_map(|from| circle.iter().map(move |to| (from, to))) {
        if let Some(names) = imports.get(from).and_then(|targets| targets.get(to)) {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            text += &format!("    {} -> {}: {}\n", short(from), short(to), names.join(", "));
        }
    }
    text
}

#[test]
fn imports_lead_to_the_file_that_defines_the_item() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let write = |name: &str, source: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("folders can be made");
        std::fs::write(path, source).expect("a source can be written");
    };
    write(
        "lib.rs",
        "mod a; mod b; mod c; pub use a::One; pub use b::deep::Two; pub const C: u8 = 0; #[cfg(test)] mod t;",
    );
    write("a.rs", "use crate::Two; pub struct One(Two);");
    write("b.rs", "pub mod deep; mod inline { fn f() { println!(\"{}\", crate::C); } }");
    write("b/deep.rs", "use super::super::a; pub struct Two; fn g() { let _ = a::One; }");
    write("c.rs", "#[error(\"{n}\", n = crate::b::deep::Two)] pub struct Three;");
    let imports = imports::of_target(&folder.path().join("lib.rs"));
    let named = |from: &str| {
        let targets = imports.get(&folder.path().join(from)).into_iter().flatten();
        targets
            .map(|(to, _)| to.strip_prefix(folder.path()).expect("it lies there").display().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (named("a.rs"), named("b.rs"), named("b/deep.rs")),
        (vec!["b/deep.rs".into(), "lib.rs".into()], vec!["lib.rs".into()], vec!["a.rs".into()])
    );
    assert_eq!(named("c.rs"), ["b/deep.rs"], "an attribute has paths too");
    assert!(named("lib.rs").is_empty(), "it hands on, and uses nothing itself");
    let circle = ["a.rs", "b/deep.rs"].map(|name| folder.path().join(name));
    assert_eq!(imports::circles(&imports), [circle.to_vec()]);
}
