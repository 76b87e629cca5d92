//! Runs every target over its corpus, and over small changes of it.
//!
//! The inputs are the same each time, and bounded in number; `make fuzz` tries more.
#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

use std::fs;
use std::path::{Path, PathBuf};

use fuzz::TARGETS;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Bytes of the corpus, or random ones, with some of them replaced, inserted or cut off.
fn nearby(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..8), 0..12);
    let seed = prop_oneof![
        1 => prop::sample::select(seeds),
        1 => prop::collection::vec(any::<u8>(), 0..600),
    ];
    (seed, edits).prop_map(|(mut bytes, edits)| {
        for (at, byte, how) in edits {
            match how {
                0 => bytes.truncate(at.index(bytes.len() + 1)),
                1 | 2 => bytes.insert(at.index(bytes.len() + 1), byte),
                _ if bytes.is_empty() => bytes.push(byte),
                _ => {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
        }
        bytes
    })
}

#[test]
fn every_target_keeps_its_promises_over_its_corpus() {
    for (name, target) in TARGETS {
        for (path, bytes) in corpus(name) {
            println!("{}", path.display());
            target(&bytes);
        }
    }
}

#[test]
fn every_target_keeps_its_promises_near_its_corpus() {
    for (name, target) in TARGETS {
        let seeds: Vec<Vec<u8>> = corpus(name).into_iter().map(|(_, bytes)| bytes).collect();
        // A conversation takes a thousand times as long as any other target, for the daemon's answers.
        let cases = if *name == "conversation" { 256 } else { 4096 };
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let outcome = runner.run(&nearby(seeds), |bytes| {
            target(&bytes);
            Ok(())
        });
        assert!(outcome.is_ok(), "{name}: {}", outcome.unwrap_err());
    }
}

#[test]
fn every_target_has_a_fuzzer_and_a_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, _) in TARGETS {
        let fuzzer = folder.join("libfuzzer/targets").join(name).with_extension("rs");
        let text =
            fs::read_to_string(&fuzzer).unwrap_or_else(|error| panic!("{}: {error}", fuzzer.display()));
        assert!(text.contains(&format!("fuzz::{name}")), "{} runs another target", fuzzer.display());
        assert!(!corpus(name).is_empty(), "{name} has no corpus");
    }
}
