//! This build keeps the promises.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs;
use std::path::Path;

use compat::{ALWAYS, Frozen, descriptors, shm, wire};
use tranche_shm::ABI;

#[test]
fn clients_of_any_release_can_talk_to_this_daemon() {
    let verdict = Frozen::wire().check(&wire(&descriptors().unwrap()));
    assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
}

#[test]
fn shared_memory_layout_is_that_of_its_version() {
    let verdict = Frozen::shm(ABI).check(&shm());
    assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
}

#[test]
fn attached_processes_are_known_in_every_version() {
    let today = shm();
    assert!(Frozen::shm_versions().contains(&ABI), "no version is promised: make freeze");
    for version in Frozen::shm_versions() {
        let then = Frozen::shm(version).read().unwrap();
        for part in ALWAYS {
            let (then, today) = (then.beginning(part), today.beginning(part));
            assert!(!then.is_empty());
            assert_eq!(then.breaches(&today), [], "version {version} differs where all must agree");
        }
    }
}

/// Names that only read what another writes, or are made of others.
const COVERED_ELSEWHERE: &[&str] = &[
    // Views, and functions that lead to them.
    "attach",
    "known",
    "reader",
    "at",
    "over",
    "address",
    "index",
    "new",
    "clear",
    "descriptors",
    // Reads of something that another function writes.
    "generation",
    "heartbeat_ns",
    "epoch",
    "lease_word",
    "lease",
    "departing_until_ns",
    "transfers_word",
    "is_away",
    "of_word",
    "device_count",
    "slots_high",
    "cap_bytes",
    "over_cap",
    "identity",
    "load",
    "unused",
    "get",
    "changed",
    "turn",
    "decode",
    "next_lease",
    "has_room",
    "pending",
    "outstanding",
    "are_reported",
    "iter",
    "has_unknown",
    // Numbers that follow from others, and their arithmetic.
    "ZERO",
    "MAX",
    "covering",
    "within",
    "bytes",
    "saturating_add",
    "saturating_sub",
    "checked_add",
    "WORDS",
    "REGION_WORDS",
    "bytes_for",
    "MAGIC",
    "UNGOVERNED",
    // Reads the described words of any version.
    "identities",
    // For tests, and the hello of this build, which is one of the described ones.
    "point",
    "hook",
    "hello",
];

#[test]
fn each_operation_between_daemon_and_shim_is_described() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let described = sources(&here.join("src")).concat();
    let described: Vec<&str> = described.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let mut seen = 0;
    for source in sources(&here.join("../../proto/shm/src")) {
        let source = source.split("#[cfg(test)]\nmod tests").next().unwrap().to_string();
        for name in public(&source).into_iter().chain(variants(&source)) {
            seen += 1;
            assert!(
                described.contains(&name) || COVERED_ELSEWHERE.contains(&name),
                "proto/shm has {name}, and tests/compat/src/shm does not describe its effect on the words"
            );
        }
    }
    assert!(seen > 100, "only {seen} things were found in proto/shm");
}

fn sources(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => texts.extend(sources(&path)),
            false => texts.push(fs::read_to_string(path).unwrap()),
        }
    }
    texts
}

/// Names of public functions and constants.
fn public(source: &str) -> Vec<&str> {
    let beginnings = ["pub const fn ", "pub fn ", "pub const "];
    let named = source.lines().filter_map(|line| {
        let rest = beginnings.iter().find_map(|beginning| line.trim_start().strip_prefix(beginning))?;
        rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    });
    named.collect()
}

/// Names of the variants of enums whose order or number is layout.
fn variants(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for name in ["Counter", "Tally", "Request", "Reply", "Refusal"] {
        let Some((_, body)) = source.split_once(&format!("pub enum {name} {{\n")) else { continue };
        let body = body.split("\n}").next().unwrap_or_default();
        let lines = body.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
        let names = lines.filter_map(|line| line.trim().split([' ', '(', ',']).next());
        found.extend(names.filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase())));
    }
    found
}
