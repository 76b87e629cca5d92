//! Agreement of the hooks with the table of enumerators (`shim/symbols/data/enumerators.tsv`).
//!
//! A number without a row counts as the worst of its type, or is refused.

use std::collections::BTreeSet;
use std::vec::Vec;

use tranche_policy::{ArrayShape, Location};
use tranche_symbols::Enumerator;

use super::graph::GraphNode;
use super::limit::LimitEffect;
use super::{array, external, shared};

/// End of the range of numbers that are tested, above those of every header.
const BEYOND: u32 = 300;

/// Checks `meaning` against the rows of a type, and against `without` for numbers without a row.
#[track_caller]
fn agree(kind: &str, without: &str, meaning: impl Fn(u32) -> &'static str) {
    let rows: Vec<Enumerator> = tranche_symbols::enumerators().filter(|row| row.kind == kind).collect();
    assert!(!rows.is_empty(), "the table has no {kind}");
    for row in &rows {
        assert_eq!(meaning(row.number), row.meaning, "{}", row.name);
    }
    let known: BTreeSet<u32> = rows.iter().map(|row| row.number).collect();
    for number in (0..BEYOND).chain([i32::MAX.unsigned_abs(), u32::MAX]).filter(|it| !known.contains(it)) {
        assert_eq!(meaning(number), without, "{kind} {number} has no row");
    }
}

const fn named(location: Location) -> &'static str {
    match location {
        Location::Host => "host",
        Location::Device(_) => "device",
        Location::AnyDevice => "worst",
    }
}

#[test]
fn locations_are_charged_as_the_table_has_them() {
    agree("CUmemLocationType", "worst", |number| named(Location::of(1, number, 0)));
    agree("CUmemAllocationType", "worst", |number| {
        let at = [1, 2].map(|location| Location::of(number, location, 0));
        match at {
            [Location::Device(0), Location::Host] => "located",
            [Location::AnyDevice, Location::AnyDevice] => "worst",
            _ => "neither",
        }
    });
}

#[test]
fn nodes_of_graphs_are_charged_as_the_table_has_them() {
    agree("CUgraphNodeType", "refused", |number| match GraphNode::of(number as i32) {
        GraphNode::Free => "free",
        GraphNode::Allocation => "charged",
        GraphNode::Child => "nested",
        GraphNode::Unknown => "refused",
    });
}

#[test]
fn limits_are_charged_as_the_table_has_them() {
    agree("CUlimit", "refused", |number| match LimitEffect::of(number as i32) {
        LimitEffect::Threads | LimitEffect::Each(_) => "charged",
        LimitEffect::Nothing => "free",
        LimitEffect::Unknown => "refused",
    });
}

#[test]
fn arrays_are_charged_as_the_table_has_them() {
    let shape = ArrayShape { width: 1, channels: 1, ..ArrayShape::default() };
    agree("CUarray_format", "worst", |format| match (ArrayShape { format, ..shape }).bytes(1) {
        Some(1) => "bytes1",
        Some(2) => "bytes2",
        Some(4) => "bytes4",
        Some(8) => "worst",
        _ => "neither",
    });
    let deep = ArrayShape { depth: 8, format: 1, ..shape };
    for row in tranche_symbols::enumerators().filter(|row| row.kind == "CUDA_ARRAY3D") {
        let meaning = match (ArrayShape { flags: row.number, ..deep }).bytes(2) {
            Some(0) => "mapped",
            Some(16) => "layers",
            Some(12) => "free",
            _ => "neither",
        };
        assert_eq!(meaning, row.meaning, "{}", row.name);
    }
    agree("CUmemOperationType", "refused", |number| match array::is_map(number as i32) {
        Some(true) => "charged",
        Some(false) => "free",
        None => "refused",
    });
}

#[test]
fn handles_are_charged_as_the_table_has_them() {
    let shared_if = |named: bool| if named { "shared" } else { "worst" };
    agree("CUmemAllocationHandleType", "worst", |number| shared_if(shared::is_descriptor(number as i32)));
    agree("CUexternalMemoryHandleType", "worst", |number| {
        shared_if(external::is_opaque_descriptor(number as i32))
    });
}
