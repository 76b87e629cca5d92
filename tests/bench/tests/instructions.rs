//! Instructions that a slice adds to an allocation and its release: a figure that no load disturbs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Most instructions added, which are about 505 as this is written.
///
/// A copy of the ledger, another map look-up or a system call on the way exceeds it.
const MOST: &str = "570";

#[test]
fn a_slice_adds_few_instructions_to_an_allocation_and_to_a_launch() {
    let stage = std::env::var_os("TRANCHE_STAGE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/stage"), PathBuf::from);
    let valgrind = Command::new("valgrind").arg("--version").output();
    if !valgrind.is_ok_and(|output| output.status.success()) {
        return skip("valgrind is not installed here");
    }
    if !stage.join("bench/client").exists() {
        return skip("nothing is staged: run make build first");
    }
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench-memory"));
    let output = bench.arg("--stage").arg(stage).args(["--instructions", MOST]).output().expect("it starts");
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}

/// Prints a reason to skip; fails if `TRANCHE_REQUIRE` is `all`.
fn skip(reason: &str) {
    assert!(std::env::var_os("TRANCHE_REQUIRE").is_none_or(|what| what != "all"), "{reason}");
    println!("SKIP: {reason}");
}
