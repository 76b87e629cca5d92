//! Names of types in the crates that are shipped: a name means one thing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use architecture::imports::is_for_tests;
use architecture::{Workspace, sources, text};
use syn::{Attribute, Ident, Item};

/// Most names that types of different crates share.
const SHARED: usize = 29;

#[test]
fn no_two_types_of_a_crate_share_a_name() {
    let twice: Vec<_> = types()
        .into_iter()
        .flat_map(|(name, crates)| crates.into_values().map(move |files| (name.clone(), files)))
        .filter(|(_, files)| files.len() > 1)
        .collect();
    assert!(twice.is_empty(), "name the things that differ: {twice:#?}");
}

#[test]
fn few_types_of_different_crates_share_a_name() {
    let types = types();
    assert!(types.len() > 500, "the types are not found: {}", types.len());
    let shared: Vec<_> = types.into_iter().filter(|(_, crates)| crates.len() > 1).collect();
    assert!(shared.len() <= SHARED, "{} names, {SHARED} allowed: {shared:#?}", shared.len());
}

#[test]
fn types_of_tests_do_not_count() {
    let source = "struct A; mod b { pub enum C {} } #[cfg(test)] mod d { struct E; } fn f() { trait G {} } #[cfg(test)] union H { i: u8 }";
    assert_eq!(names(source), ["A", "C"]);
}

/// Files that define a type of each name, by crate.
fn types() -> BTreeMap<String, BTreeMap<PathBuf, Vec<PathBuf>>> {
    let workspace = Workspace::survey();
    let folders: BTreeSet<_> =
        workspace.crates().into_values().map(|package| workspace.folder(package)).collect();
    let mut types: BTreeMap<String, BTreeMap<PathBuf, Vec<PathBuf>>> = BTreeMap::new();
    for path in sources() {
        // What build scripts share lies in no crate.
        let Some(folder) = path.ancestors().find(|folder| folders.contains(*folder)) else { continue };
        for name in names(&text(&path).expect("sources are text")) {
            types.entry(name).or_default().entry(folder.to_path_buf()).or_default().push(path.clone());
        }
    }
    types
}

/// Names of the types in a source outside of functions and tests.
fn names(source: &str) -> Vec<String> {
    let file = syn::parse_file(source).expect("a source is Rust");
    let mut found = Vec::new();
    collect(&file.items, &mut found);
    found
}

fn collect(items: &[Item], found: &mut Vec<String>) {
    for item in items {
        let mut add = |attributes: &[Attribute], name: &Ident| {
            if !attributes.iter().any(is_for_tests) {
                found.push(name.to_string());
            }
        };
        match item {
            Item::Struct(item) => add(&item.attrs, &item.ident),
            Item::Enum(item) => add(&item.attrs, &item.ident),
            Item::Trait(item) => add(&item.attrs, &item.ident),
            Item::Union(item) => add(&item.attrs, &item.ident),
            Item::Mod(item) if !item.attrs.iter().any(is_for_tests) => {
                collect(item.content.as_ref().map_or(&[], |(_, items)| items), found);
            }
            _ => {}
        }
    }
}
