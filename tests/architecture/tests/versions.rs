//! Versions of the release and of the compiler: entered once, and copied where they cannot be read.

use std::path::Path;

use architecture::{Workspace, text};

/// The rest of each line of a file after a prefix, without quotation marks.
fn entries(path: &str, prefix: &str) -> Vec<String> {
    let text = text(Path::new(path)).unwrap_or_else(|| panic!("{path} cannot be read"));
    let entry = |line: &str| Some(line.split_once(prefix)?.1.replace('"', "").trim().to_owned());
    text.lines().filter_map(entry).collect()
}

#[track_caller]
fn entry(path: &str, prefix: &str) -> String {
    entries(path, prefix).into_iter().next().unwrap_or_else(|| panic!("{path} has no {prefix:?}"))
}

#[test]
fn chart_image_and_changelog_have_the_version_of_the_workspace() {
    let workspace = Workspace::survey();
    let version = workspace.crates()["tranche-agent"].version.to_string();
    for package in workspace.crates().values() {
        assert_eq!(package.version.to_string(), version, "{}", package.name);
    }
    for (path, prefix) in [
        ("deviceplugin/chart/Chart.yaml", "appVersion: "),
        ("deviceplugin/chart/Chart.yaml", "version: "),
        ("deviceplugin/Containerfile", " -t tranche:"),
        ("docs/kubernetes.md", " -t REGISTRY/tranche:"),
        ("docs/tour-kubernetes.md", "image: tranche:"),
    ] {
        let words = entry(path, prefix);
        assert_eq!(words.split(' ').next(), Some(&*version), "{path}: {prefix}");
    }
    let releases = entries("CHANGELOG.md", "## ");
    let release = releases.iter().find(|heading| heading.starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(release.and_then(|heading| heading.split(' ').next()), Some(&*version), "{releases:?}");
}

#[test]
fn image_and_manifest_name_the_pinned_compiler() {
    let pinned = entry("rust-toolchain.toml", "channel = ");
    let oldest = entry("Cargo.toml", "rust-version = ");
    assert!(pinned.starts_with(&format!("{oldest}.")), "{pinned} is pinned, and {oldest} accepted");
    assert!(entry("deviceplugin/Containerfile", "ARG RUST=rust:").starts_with(&format!("{pinned}-")));
}
