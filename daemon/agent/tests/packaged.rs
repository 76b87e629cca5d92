//! The configuration file in packages.

#![allow(clippy::unwrap_used)] // a failed unwrap names its line

use std::path::Path;
use std::process::Command;

use tranche_agent::Config;

const PACKAGED: &str = include_str!("../../../systemd/tranched.toml");

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("tranched.toml")).map_err(|error| error.to_string())
}

/// Lines with settings, including commented-out ones.
fn settings() -> impl Iterator<Item = &'static str> {
    let uncommented = PACKAGED.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
    uncommented.filter(|line| {
        line.split_once(" = ").is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
    })
}

#[test]
fn only_the_group_is_set() {
    let group = Some("tranche".to_owned());
    assert_eq!(parse(PACKAGED).unwrap(), Config { socket_group: group, ..Config::default() });
}

#[test]
fn commented_out_values_are_the_defaults() {
    let all = parse(&settings().collect::<Vec<_>>().join("\n")).unwrap();
    // These depend on the user that runs the daemon, and on what it discovers.
    let default = Config {
        runtime_dir: all.runtime_dir.clone(),
        state_dir: all.state_dir.clone(),
        nvml_library: all.nvml_library.clone(),
        shim: all.shim.clone(),
        socket_group: all.socket_group.clone(),
        park_memory_mib: all.park_memory_mib,
        user: all.user.clone(),
        cdi_dir: all.cdi_dir.clone(),
        cdi_node: all.cdi_node.clone(),
        metrics: all.metrics.clone(),
        ..Config::default()
    };
    assert_eq!(all, default);
}

#[test]
fn every_key_is_there() {
    let refused = parse("not_a_key_at_all = 1").unwrap_err();
    let known = refused.split_once("known are ").and_then(|(_, rest)| rest.split_once(')'));
    let (known, _) = known.unwrap_or_else(|| panic!("{refused}"));
    for key in known.split(", ") {
        let is_it = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(" = "));
        assert!(settings().any(is_it), "{key} is missing from systemd/tranched.toml");
    }
}

#[test]
fn the_file_is_that_of_the_daemon() {
    let printed = Command::new(env!("CARGO_BIN_EXE_tranched")).arg("--template").output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed == PACKAGED, "run `tranched --template > systemd/tranched.toml`; it prints:\n{printed}");
}
