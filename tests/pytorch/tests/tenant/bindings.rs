//! NVIDIA's `cuda.bindings` 12.8, which call the driver themselves: nothing stands in for anything.

use serde_json::{Value, json};
use simgpu::Node as Device;

use crate::HALF;
use pytorch::machine::{Machine, last};

/// Runs a program of the bindings in a slice of half the GPU, and checks what both have in common.
#[track_caller]
fn bound(machine: &Machine, words: &[&str], refusal: &str) -> Value {
    let device = Device::attach(&machine.node.gpus()).expect("the node's file is there");
    let gpu = device.gpu(0).expect("it has a GPU");
    device.take_used_high(gpu);
    let report = last(machine.start_client("bindings_client.py", &["-g", "0.5"], "", words));
    assert_eq!((&report["total"], &report["same"]), (&json!(HALF), &json!(true)), "{report:#}");
    assert_eq!(report["refusals"], json!([refusal]), "{report:#}");
    let (free, held) = (report["free"].as_u64().unwrap_or(0), report["held"].as_u64().unwrap_or(0));
    assert!(held <= free && held + (2 << 20) >= free, "to the last MiB: {report:#}");
    let most = device.take_used_high(gpu).bytes();
    assert!(most <= HALF && most >= held, "{most} of {HALF}: {report:#}");
    report
}

#[test]
fn the_driver_of_cuda_bindings_copies_orders_and_meets_the_cap() {
    let Some(machine) = Machine::with_jax() else { return };
    let report = bound(&machine, &["driver"], "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!((&report["filled"], &report["again"]), (&json!(true), &report["free"]), "{report:#}");
    assert_eq!(report["waits"], "CUDA_ERROR_NOT_READY", "{report:#}");
    assert_eq!(report["missing"], "CUDA_ERROR_NOT_FOUND", "{report:#}");
    let took = report["took_ms"].as_f64().unwrap_or(0.0);
    assert!(took >= 20.0, "a kernel of 20 ms: {report:#}");
}

#[test]
fn the_runtime_of_cuda_bindings_copies_and_meets_the_cap() {
    let Some(machine) = Machine::with_jax() else { return };
    let report = bound(&machine, &["runtime"], "cudaErrorMemoryAllocation");
    assert_eq!(report["properties"], json!(HALF), "{report:#}");
}
