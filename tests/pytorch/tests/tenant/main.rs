//! Unmodified PyTorch, JAX and `cuda.bindings` as tenants.
//!
//! The first two run on the project's own CUDA runtime (`tests/fakecudart`).
//! Kernels compute nothing, so claims rest on what the device does for real: memory, copies, order, time.
//! `make torch` runs it: it fetches them.

mod allocators;
mod bindings;
mod jax;
mod preempted;
mod processes;
mod training;

use pytorch::machine::{ALLOCATORS, Machine};
use serde_json::Value;

/// The slice of half an H200, which is rounded to whole MiB.
const HALF: u64 = 71583 << 20;

#[test]
fn the_check_for_gpu_machines_holds() {
    let Some(machine) = Machine::with_pytorch() else { return };
    for allocator in ["caching", "expandable"] {
        let check = machine.stage_file("tests/torch_check.py");
        let claims = machine.run(&["-g", "0.5"], "", &[&check, "--allocator", allocator]).success();
        assert!(claims.lines().count() >= 9, "{claims}");
        assert!(claims.lines().all(|line| line.ends_with("\tyes")), "{claims}");
    }
}

#[test]
fn tensors_streams_and_operators_work_up_to_the_cap_and_after_it() {
    let Some(machine) = Machine::with_pytorch() else { return };
    for allocator in ALLOCATORS {
        let report = machine.report(&["-g", "0.5"], allocator, &["tensors"]);
        let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report:#}"));
        assert_eq!((number("devices"), number("total")), (1, HALF), "{report:#}");
        assert_eq!((number("properties"), number("seen")), (HALF, HALF), "{report:#}");
        assert!(number("held") <= HALF && number("held") * 1000 >= HALF * 980, "{report:#}");
        assert!(number("free") * 1000 >= HALF * 980, "what was freed came back: {report:#}");
        assert_eq!(report["capability"], serde_json::json!([9, 0]), "{report:#}");
        assert_eq!(report["name"], "NVIDIA H200", "{report:#}");
        assert!((1..=100).contains(&number("utilization")), "{report:#}");
    }
}

#[test]
fn compiled_modules_train_and_meet_the_cap() {
    let Some(machine) = Machine::with_pytorch() else { return };
    if !machine.has_headers() {
        return;
    }
    let report = machine.report(&["-g", "0.5"], "", &["compiled"]);
    for way in ["aot_eager", "cudagraphs", "inductor", "reduce-overhead"] {
        assert_eq!(report["steps"][way], 4, "{way}: {report:#}");
    }
    assert!(number(&report, "binaries") >= 2.0, "Triton compiled kernels: {report:#}");
    let (total, held) = (report["total"].as_u64(), report["held"].as_u64().unwrap_or(0));
    assert!(total == Some(HALF) && held <= HALF && held * 100 >= HALF * 95, "{report:#}");
}

/// The number of this name in a report.
#[track_caller]
fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("no number {name} in {report:#}"))
}

#[test]
fn graphs_that_allocate_are_replayed_once_there_is_room_again() {
    let Some(machine) = Machine::with_pytorch() else { return };
    for allocator in ALLOCATORS {
        let report = machine.report(&["-g", "0.5"], allocator, &["replays"]);
        // The driver's pools give memory back between two replays, the caching allocator keeps it for the graph.
        let without_room =
            if allocator.contains("cudaMallocAsync") { "CUDA error: out of memory" } else { "ran" };
        let wanted = ["ran", without_room, without_room, without_room, "ran", "ran"];
        assert_eq!(report["outcomes"], serde_json::json!(wanted), "{allocator}: {report:#}");
    }
}
