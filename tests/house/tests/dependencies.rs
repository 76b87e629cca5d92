//! Allowed dependencies between the crates of the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use house::House;

/// Each room, and the rooms it may know. What is not written here is not allowed.
const EDGES: &[(&str, &[&str])] = &[
    // What two processes agree on.
    ("tranche-rpc", &["tranche-domain"]),
    ("tranche-kubelet", &[]),
    ("tranche-shm", &[]),
    // The mind, the senses, the hands, the voice.
    ("tranche-domain", &[]),
    ("tranche-inventory", &["tranche-domain"]),
    ("tranche-cdi", &["tranche-domain"]),
    ("tranche-config", &[]),
    ("tranche-exposition", &[]),
    ("tranche-jobs", &["tranche-domain", "tranche-shm"]), // the last for its crash points alone
    ("tranche-privileged", &["tranche-cdi", "tranche-domain"]),
    (
        "tranche-agent",
        &[
            "tranche-cdi",
            "tranche-config",
            "tranche-domain",
            "tranche-exposition",
            "tranche-inventory",
            "tranche-jobs",
            "tranche-privileged",
            "tranche-rpc",
            "tranche-shm",
        ],
    ),
    ("tranche-ctl", &["tranche-domain", "tranche-rpc", "tranche-symbols"]),
    // The kubelet's adapter.
    (
        "tranche-deviceplugin",
        &["tranche-config", "tranche-domain", "tranche-exposition", "tranche-kubelet", "tranche-rpc"],
    ),
    // The shim, inside a tenant's process.
    ("tranche-policy", &["tranche-shm"]),
    ("tranche-symbols", &[]),
    ("tranche-hooks", &["tranche-policy", "tranche-shm", "tranche-symbols"]), // the last for its tests alone
    ("tranche-preload", &["tranche-hooks"]),
    ("tranche-libcuda", &["tranche-hooks"]),
    ("tranche-libnvml", &["tranche-hooks"]),
    // The proof. It runs the shim's library and never links to it.
    ("simgpu", &[]),
    ("fakecuda", &["simgpu"]),
    ("fakenvml", &["simgpu"]),
    ("facts", &[]),
    ("workload", &["tranche-domain"]),
    ("e2e", &["simgpu", "tranche-domain", "tranche-exposition", "tranche-rpc", "tranche-shm"]),
    ("fakekubelet", &["e2e", "tranche-deviceplugin", "tranche-domain", "tranche-kubelet", "tranche-rpc"]),
    ("bench", &["arena", "simgpu", "tranche-domain", "tranche-jobs", "tranche-rpc", "tranche-shm"]),
    (
        "stress",
        &[
            "simgpu",
            "tranche-agent",
            "tranche-domain",
            "tranche-inventory",
            "tranche-policy",
            "tranche-rpc",
            "tranche-shm",
        ],
    ),
    (
        "chaos",
        &[
            "e2e",
            "stress",
            "tranche-agent",
            "tranche-domain",
            "tranche-exposition",
            "tranche-inventory",
            "tranche-privileged",
            "tranche-rpc",
            "tranche-shm",
        ],
    ),
    ("teams", &["chaos", "e2e", "stress", "tranche-domain"]),
    ("house", &[]),
    // What earlier and later releases rely on.
    ("compat", &["e2e", "tranche-domain", "tranche-shm"]),
    // Compiles the protocol's files again, over words of its own.
    ("model", &["tranche-domain"]),
    // Both sides of compute in virtual time.
    ("arena", &["simgpu", "tranche-agent", "tranche-domain", "tranche-policy", "tranche-shm"]),
    // Feeds hostile input to every parser.
    (
        "fuzz",
        &[
            "tranche-agent",
            "tranche-cdi",
            "tranche-deviceplugin",
            "tranche-domain",
            "tranche-inventory",
            "tranche-policy",
            "tranche-rpc",
            "tranche-shm",
        ],
    ),
];

/// All that may be part of the guest.
const GUESTS: &[&str] = &["libc", "tranche-hooks", "tranche-policy", "tranche-shm"];

/// Everything a pure room may take from outside, dependencies of dependencies included.
const PURE: &[&str] =
    &["serde", "serde_core", "serde_derive", "proc-macro2", "quote", "syn", "unicode-ident"];

#[test]
fn every_room_knows_only_the_rooms_it_may() {
    let house = House::survey();
    let rooms = house.rooms();
    let allowed: BTreeMap<_, _> = EDGES.iter().copied().collect();
    for (name, package) in &rooms {
        let may = allowed.get(name).unwrap_or_else(|| panic!("{name} is not in the table of this test"));
        for (other, _) in house.direct(package) {
            let ours = rooms.contains_key(other.as_str());
            assert!(!ours || may.contains(&other.as_str()), "{name} must not depend on {other}");
        }
    }
}

#[test]
fn the_table_names_only_rooms_that_exist() {
    let house = House::survey();
    let rooms = house.rooms();
    for (name, may) in EDGES {
        assert!(rooms.contains_key(name), "{name} is gone");
        assert!(
            may.iter().all(|other| rooms.contains_key(other)),
            "{name} may depend on a room that is gone"
        );
    }
}

#[test]
fn nothing_that_is_shipped_depends_on_the_tests() {
    let house = House::survey();
    let (tests, shipped): (Vec<_>, Vec<_>) =
        house.rooms().into_iter().partition(|(_, package)| house.folder(package).starts_with("tests"));
    let tests: BTreeSet<_> = tests.into_iter().map(|(name, _)| name).collect();
    for (name, package) in shipped {
        for (other, _) in house.direct(package) {
            assert!(
                !tests.contains(other.as_str()),
                "{name} must not depend on {other}, which is test equipment"
            );
        }
    }
}

#[test]
fn the_guest_brings_nobody_along() {
    let house = House::survey();
    for guest in ["tranche-policy", "tranche-preload", "tranche-libcuda", "tranche-libnvml"] {
        let closure = house.closure(house.rooms()[guest]);
        let strangers: Vec<_> = closure.iter().filter(|name| !GUESTS.contains(&name.as_str())).collect();
        assert!(strangers.is_empty(), "{guest} would take {strangers:?} into other people's processes");
    }
}

#[test]
fn the_domain_is_pure() {
    let house = House::survey();
    let closure = house.closure(house.rooms()["tranche-domain"]);
    let strangers: Vec<_> = closure.iter().filter(|name| !PURE.contains(&name.as_str())).collect();
    assert!(strangers.is_empty(), "tranche-domain must stay pure, and now has {strangers:?}");
}

#[test]
fn each_direct_dependency_has_one_version() {
    let house = House::survey();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, version) in house.rooms().values().flat_map(|package| house.direct(package)) {
        versions.entry(name).or_default().insert(version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "asked for in several versions: {versions:?}");
}

#[test]
fn every_room_takes_versions_and_lints_from_the_workspace() {
    let house = House::survey();
    for package in house.rooms().values() {
        let path = house.folder(package).join("Cargo.toml");
        let manifest = house::text(&path).expect("a manifest is text");
        assert!(manifest.contains("[lints]\nworkspace = true"), "{} has lints of its own", path.display());
        for line in section_lines(&manifest, "dependencies]") {
            assert!(line.contains("workspace = true"), "{}: {line}", path.display());
        }
    }
}

#[test]
fn rooms_lie_where_the_map_shows_them() {
    let house = House::survey();
    for (name, package) in house.rooms() {
        let folder = house.folder(package);
        let wing = folder.components().next().expect("no package lies at the root");
        let known = ["daemon", "deviceplugin", "proto", "shim", "tests"];
        assert!(
            known.iter().any(|wing_name| wing.as_os_str() == Path::new(wing_name)),
            "{name} in {folder:?}"
        );
    }
}

/// The lines of the sections whose header ends so, without blank lines and comments.
fn section_lines<'a>(manifest: &'a str, header_end: &'a str) -> impl Iterator<Item = &'a str> {
    let mut inside = false;
    manifest.lines().filter(move |line| {
        if line.starts_with('[') {
            inside = line.ends_with(header_end);
            return false;
        }
        inside && !line.trim().is_empty() && !line.starts_with('#')
    })
}
