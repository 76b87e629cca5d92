//! JAX: what it takes in advance, kernels that XLA makes, and its error at the cap.

use e2e::Process;
use serde_json::{Value, json};
use simgpu::Node as Device;

use crate::{HALF, number};
use pytorch::machine::{Machine, last, next};

/// Grain to which XLA rounds the memory that it sees.
const GRAIN: u64 = 32 << 20;

/// Bytes of memory that a process's pool may have, three quarters of a slice.
#[track_caller]
fn assert_three_quarters(report: &Value, slice: u64) {
    let limit = report["limit"].as_u64().unwrap_or_else(|| panic!("no limit: {report:#}"));
    let wanted = slice / 4 * 3;
    assert!((wanted..=wanted + GRAIN).contains(&limit), "{limit} of {slice}: {report:#}");
    assert_eq!(report["pool"], report["limit"], "taken at once: {report:#}");
}

#[test]
fn preallocation_takes_three_quarters_of_each_slice() {
    let Some(machine) = Machine::with_jax() else { return };
    let slices = [("half", "0.5"), ("third", "0.3")];
    for (name, share) in slices {
        machine.node.tranche(&["slice", "create", name, "-g", share]).success();
    }
    let mut processes = slices.map(|(name, _)| machine.start(&["--slice", name], "", &["arrays"]));
    let reports = processes.each_mut().map(next);
    for (report, (name, _)) in reports.iter().zip(slices) {
        let view = machine.node.slice(name);
        let (slice, used) = (view.cap().get(), view.used().get());
        assert_three_quarters(report, slice);
        assert_eq!((number(report, "devices"), &report["capability"]), (1.0, &json!("9.0")), "{report:#}");
        assert!(used >= slice / 4 * 3 && used <= slice, "{used} of {slice}: {report:#}");
    }
    for process in processes {
        process.end_within(std::time::Duration::from_secs(60)).success();
    }
}

#[test]
fn compiled_gradients_and_loops_run() {
    let Some(machine) = Machine::with_jax() else { return };
    let report = machine.report(&["-g", "0.5"], "", &["compile"]);
    assert_eq!(report["layers"], json!([[256, 256], [256, 256], [256, 256]]), "{report:#}");
    assert_eq!((&report["carry"], &report["seen"]), (&json!([256]), &json!([32])), "{report:#}");
    let busy = machine.node.timeline(0).end();
    assert!(busy > 0, "its kernels took time: {report:#}");
}

/// A way to have memory: variables, further refusals, least and most of the slice in thousandths.
///
/// XLA's own pool waits ten seconds before each refusal.
const WAYS: [(&str, &str, u64, u64); 3] = [
    ("", "1", 740, 751),
    ("XLA_PYTHON_CLIENT_PREALLOCATE=false XLA_PYTHON_CLIENT_MEM_FRACTION=1.0", "1", 970, 1000),
    ("XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async", "20", 970, 1000),
];

#[test]
fn exhaustion_at_the_cap_is_its_own_error_and_it_goes_on() {
    let Some(first) = Machine::with_jax() else { return };
    let machines = [Some(first), Machine::with_jax(), Machine::with_jax()];
    let machines: Vec<Machine> = machines.into_iter().flatten().collect();
    let devices: Vec<Device> = machines
        .iter()
        .map(|machine| Device::attach(&machine.node.gpus()).expect("the node's file is there"))
        .collect();
    let start = |(machine, (setting, times, ..)): (&Machine, (&str, &str, u64, u64))| -> Process {
        machine.start(&["-g", "0.5"], setting, &["full", times])
    };
    let processes: Vec<Process> = machines.iter().zip(WAYS).map(start).collect();
    for ((process, device), (setting, times, least, most)) in processes.into_iter().zip(devices).zip(WAYS) {
        let report = last(process);
        let error = report["error"].as_str().unwrap_or_default();
        assert!(error.starts_with("RESOURCE_EXHAUSTED: Out of memory"), "{setting}: {report:#}");
        assert_eq!(report["refused"].to_string(), times, "{setting}: {report:#}");
        let held = report["held"].as_u64().unwrap_or(0) * 1000 / HALF;
        assert!((least..=most).contains(&held), "{setting}: {held} thousandths, {report:#}");
        // The driver's own count of the most that was ever in use.
        let most = device.take_used_high(device.gpu(0).expect("it has a GPU")).bytes();
        assert!(most <= HALF, "{setting}: {} bytes over the cap", most - HALF);
    }
}
