//! Licences of the packages that are shipped, and a bill of materials in CycloneDX's format.
//!
//! Law: equal sources give equal bytes. There is no time, no random number and no path of the building machine in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use cargo_metadata::Package;
use serde_json::{Value, json};

use crate::{Workspace, text};

/// Crates whose programs and libraries are installed.
pub const SHIPPED: [&str; 15] = [
    "fakecuda",
    "fakenvml",
    "simgpu",
    "tranche-agent",
    "tranche-ctl",
    "tranche-demo",
    "tranche-deviceplugin",
    "tranche-dradriver",
    "tranche-nriplugin",
    "tranche-jobs",
    "tranche-libcuda",
    "tranche-libnvml",
    "tranche-page",
    "tranche-preload",
    "workload",
];
/// Beginnings of the names of files with a licence, in capitals.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Packages that become part of something shipped, or build it, in the order of their names.
pub fn packages(workspace: &Workspace) -> Vec<&Package> {
    let crates = workspace.crates();
    let of = |name: &&str| workspace.reached(crates.get(name).expect("the shipped crates are there"));
    let mut found: Vec<_> = SHIPPED.iter().flat_map(of).filter(|package| package.source.is_some()).collect();
    found.sort_by_key(|package| (&package.name, &package.version));
    found.dedup_by_key(|package| &package.id);
    found
}

/// The packages with their licences, and the texts of these, each once.
pub fn licences(packages: &[&Package]) -> String {
    let mut out = String::from(
        "Tranche contains the packages below or is built by them, and contains Rust's standard library\n\
         (MIT OR Apache-2.0, https://github.com/rust-lang/rust). The texts of their licences follow.\n\n",
    );
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages {
        let repository = package.repository.as_deref().map(|url| format!("  {url}")).unwrap_or_default();
        let _ = writeln!(out, "{}  {}{repository}", title(package), expression(package));
        for text in texts_of(package) {
            texts.entry(text).or_default().insert(title(package));
        }
    }
    for (text, of) in texts {
        let of: Vec<_> = of.into_iter().collect();
        let _ = write!(out, "\n{}\n{}\n\n{text}", "-".repeat(80), of.join(", "));
    }
    out
}

/// Bill of materials, CycloneDX 1.5. Hashes are those of the packages in the registry.
pub fn bill(workspace: &Workspace, packages: &[&Package]) -> String {
    let hashes = hashes();
    let component = |package: &&Package| {
        let hash = hashes.get(&title(package)).map(|hash| json!([{ "alg": "SHA-256", "content": hash }]));
        json!({
            "type": "library",
            "bom-ref": purl(package),
            "name": package.name.as_str(),
            "version": package.version.to_string(),
            "purl": purl(package),
            "licenses": [{ "expression": expression(package) }],
            "hashes": hash.unwrap_or(json!([])),
        })
    };
    let depends = |package: &&Package| {
        let on: BTreeSet<_> = workspace.needs(package).map(purl).collect();
        json!({ "ref": purl(package), "dependsOn": on })
    };
    let version = workspace.crates()[SHIPPED[0]].version.to_string();
    let all: Value = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application", "bom-ref": "tranche", "name": "tranche", "version": version,
        }},
        "components": packages.iter().map(component).collect::<Vec<_>>(),
        "dependencies": packages.iter().map(depends).collect::<Vec<_>>(),
    });
    format!("{all:#}\n")
}

fn title(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

/// Licence as an SPDX expression; a slash is an old form of OR.
fn expression(package: &Package) -> String {
    let licence = package.license.as_deref().unwrap_or("NOASSERTION");
    licence.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")
}

/// Texts of the files with a licence in the package's folder.
fn texts_of(package: &Package) -> Vec<String> {
    let folder = package.manifest_path.parent().expect("a manifest lies in a folder");
    let entries = fs::read_dir(folder).expect("the sources of a resolved package are there");
    let mut files: Vec<_> =
        entries.flatten().filter(|entry| is_licence(&entry.file_name().to_string_lossy())).collect();
    files.sort_by_key(fs::DirEntry::file_name);
    let texts = files.into_iter().filter_map(|entry| fs::read(entry.path()).ok());
    texts
        .map(|text| String::from_utf8_lossy(&text).replace("\r\n", "\n").trim_end().to_owned() + "\n")
        .collect()
}

fn is_licence(name: &str) -> bool {
    let name = name.to_uppercase();
    NAMES.iter().any(|beginning| name.starts_with(beginning))
}

/// Hashes in `Cargo.lock`, by name and version.
fn hashes() -> BTreeMap<String, String> {
    let lock = text(Path::new("Cargo.lock")).expect("the lock is tracked");
    let value = |entry: &str, key: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let hash = |entry: &str| {
        let name = format!("{} {}", value(entry, "name")?, value(entry, "version")?);
        Some((name, value(entry, "checksum")?))
    };
    lock.split("[[package]]").filter_map(hash).collect()
}
