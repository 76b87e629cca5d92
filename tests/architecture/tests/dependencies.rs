//! Allowed dependencies between the crates of the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use architecture::Workspace;

/// Crates, and the crates of this workspace that each may use. Others are not allowed.
const EDGES: &[(&str, &[&str])] = &[
    // Interfaces between two processes.
    ("tranche-rpc", &["tranche-domain"]),
    ("tranche-nri", &[]),
    ("tranche-kubelet", &["tranche-authority"]),
    ("tranche-authority", &[]),
    ("tranche-shm", &[]),
    // The daemon and its command line.
    ("tranche-domain", &[]),
    ("tranche-inventory", &["tranche-domain"]),
    ("tranche-cdi", &["tranche-domain"]),
    ("tranche-config", &[]),
    ("tranche-exposition", &[]),
    ("tranche-nodes", &["tranche-domain"]),
    ("tranche-jobs", &["tranche-cdi", "tranche-domain", "tranche-shm"]), // the last for its crash points alone
    ("tranche-privileged", &["tranche-cdi", "tranche-domain"]),
    ("tranche-parkworker", &["tranche-privileged"]),
    ("tranche-linux", &["tranche-domain", "tranche-privileged", "tranche-shm"]),
    ("tranche-telemetry", &["tranche-domain", "tranche-linux", "tranche-shm"]), // the last for its crash points alone
    (
        "tranche-slices",
        &[
            "tranche-domain",
            "tranche-inventory",
            "tranche-linux",
            "tranche-privileged",
            "tranche-shm",
            "tranche-telemetry",
        ],
    ),
    (
        "tranche-timeshare",
        &["tranche-domain", "tranche-linux", "tranche-shm", "tranche-slices", "tranche-telemetry"],
    ),
    (
        "tranche-agent",
        &[
            "tranche-authority",
            "tranche-cdi",
            "tranche-config",
            "tranche-domain",
            "tranche-exposition",
            "tranche-inventory",
            "tranche-jobs",
            "tranche-linux",
            "tranche-parkworker",
            "tranche-privileged",
            "tranche-rpc",
            "tranche-shm",
            "tranche-slices",
            "tranche-telemetry",
            "tranche-timeshare",
        ],
    ),
    ("tranche-ctl", &["tranche-domain", "tranche-nodes", "tranche-rpc", "tranche-symbols"]),
    // A client that may only look; of the metrics' server it has the limits on connections.
    ("tranche-page", &["tranche-domain", "tranche-exposition", "tranche-nodes", "tranche-rpc"]),
    // The adapters of the kubelet.
    (
        "tranche-deviceplugin",
        &[
            "tranche-adapter",
            "tranche-config",
            "tranche-domain",
            "tranche-exposition",
            "tranche-kubelet",
            "tranche-rpc",
        ],
    ),
    (
        "tranche-dradriver",
        &[
            "tranche-adapter",
            "tranche-config",
            "tranche-domain",
            "tranche-exposition",
            "tranche-kubelet",
            "tranche-rpc",
        ],
    ),
    // The adapter of the container runtime.
    (
        "tranche-nriplugin",
        &[
            "tranche-adapter",
            "tranche-cdi",
            "tranche-config",
            "tranche-domain",
            "tranche-exposition",
            "tranche-nri",
            "tranche-rpc",
        ],
    ),
    ("tranche-adapter", &["tranche-exposition"]),
    // The shim, inside a tenant's process.
    ("tranche-policy", &["tranche-shm"]),
    ("tranche-symbols", &[]),
    ("tranche-hooks", &["tranche-policy", "tranche-shm", "tranche-symbols"]), // the last for its tests alone
    ("tranche-preload", &["tranche-hooks", "tranche-shm"]), // the last for its version in the library's own name
    ("tranche-libcuda", &["tranche-hooks"]),
    ("tranche-libnvml", &["tranche-hooks"]),
    // Tests. They run the shim's library and never link to it.
    ("simgpu", &[]),
    ("fakecuda", &["simgpu"]),
    ("fakecudart", &[]),
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
            "tranche-privileged",
            "tranche-rpc",
            "tranche-shm",
        ],
    ),
    // A client like any other, with the command line's connection.
    ("tranche-demo", &["tranche-ctl", "tranche-domain"]),
    ("pytorch", &["e2e", "simgpu", "stress"]),
    ("teams", &["chaos", "e2e", "stress", "tranche-domain"]),
    ("parkdemo", &["e2e", "stress", "tranche-domain"]),
    ("architecture", &[]),
    ("site", &[]),
    // Promises to earlier and later releases.
    ("compat", &["e2e", "tranche-domain", "tranche-shm"]),
    // Compiles the protocol's files again, over words of its own.
    ("model", &["tranche-domain"]),
    // Both sides of compute in virtual time.
    ("arena", &["simgpu", "tranche-domain", "tranche-policy", "tranche-shm", "tranche-timeshare"]),
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

/// Crates that may become part of the shim.
const IN_SHIM: &[&str] = &["libc", "tranche-hooks", "tranche-policy", "tranche-shm"];

/// Packages from outside that the domain may use, dependencies of dependencies included.
///
/// All are derives, which add no effects.
const PURE: &[&str] = &[
    "serde",
    "serde_core",
    "serde_derive",
    "thiserror",
    "thiserror-impl",
    "proc-macro2",
    "quote",
    "syn",
    "unicode-ident",
];

#[test]
fn crates_use_only_the_crates_of_their_row() {
    let workspace = Workspace::survey();
    let crates = workspace.crates();
    let allowed: BTreeMap<_, _> = EDGES.iter().copied().collect();
    for (name, package) in &crates {
        let may = allowed.get(name).unwrap_or_else(|| panic!("{name} is not in the table of this test"));
        for (other, _) in workspace.direct(package) {
            let ours = crates.contains_key(other.as_str());
            assert!(!ours || may.contains(&other.as_str()), "{name} must not depend on {other}");
        }
    }
}

#[test]
fn table_names_existing_crates() {
    let workspace = Workspace::survey();
    let crates = workspace.crates();
    for (name, may) in EDGES {
        assert!(crates.contains_key(name), "{name} is gone");
        assert!(
            may.iter().all(|other| crates.contains_key(other)),
            "{name} may depend on a crate that is gone"
        );
    }
}

#[test]
fn shipped_crates_do_not_depend_on_tests() {
    let workspace = Workspace::survey();
    let (tests, shipped): (Vec<_>, Vec<_>) = workspace
        .crates()
        .into_iter()
        .partition(|(_, package)| workspace.folder(package).starts_with("tests"));
    let tests: BTreeSet<_> = tests.into_iter().map(|(name, _)| name).collect();
    for (name, package) in shipped {
        for (other, _) in workspace.direct(package) {
            assert!(
                !tests.contains(other.as_str()),
                "{name} must not depend on {other}, which is test equipment"
            );
        }
    }
}

#[test]
fn shim_consists_of_the_allowed_packages() {
    let workspace = Workspace::survey();
    for library in ["tranche-policy", "tranche-preload", "tranche-libcuda", "tranche-libnvml"] {
        let closure = workspace.closure(workspace.crates()[library]);
        let strangers: Vec<_> = closure.iter().filter(|name| !IN_SHIM.contains(&name.as_str())).collect();
        assert!(strangers.is_empty(), "{library} would take {strangers:?} into programs of tenants");
    }
}

#[test]
fn the_domain_is_pure() {
    let workspace = Workspace::survey();
    let closure = workspace.closure(workspace.crates()["tranche-domain"]);
    let strangers: Vec<_> = closure.iter().filter(|name| !PURE.contains(&name.as_str())).collect();
    assert!(strangers.is_empty(), "tranche-domain must stay pure, and now has {strangers:?}");
}

#[test]
fn each_direct_dependency_has_one_version() {
    let workspace = Workspace::survey();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, version) in workspace.crates().values().flat_map(|package| workspace.direct(package)) {
        versions.entry(name).or_default().insert(version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "asked for in several versions: {versions:?}");
}

#[test]
fn crates_take_versions_and_lints_from_the_workspace() {
    let workspace = Workspace::survey();
    for package in workspace.crates().values() {
        let path = workspace.folder(package).join("Cargo.toml");
        let manifest = architecture::text(&path).expect("a manifest is text");
        assert!(manifest.contains("[lints]\nworkspace = true"), "{} has lints of its own", path.display());
        for line in section_lines(&manifest, "dependencies]") {
            assert!(line.contains("workspace = true"), "{}: {line}", path.display());
        }
    }
}

#[test]
fn crates_lie_in_the_known_folders() {
    let workspace = Workspace::survey();
    for (name, package) in workspace.crates() {
        let folder = workspace.folder(package);
        let top = folder.components().next().expect("no package lies at the root");
        let known = ["daemon", "deviceplugin", "proto", "shim", "tests"];
        assert!(known.iter().any(|known| top.as_os_str() == Path::new(known)), "{name} in {folder:?}");
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
