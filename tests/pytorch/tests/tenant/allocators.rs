//! No allocator of PyTorch gets beyond the cap, by the device's own account.

use std::thread::sleep;
use std::time::Duration;

use e2e::Process;
use serde_json::Value;
use simgpu::Node as Device;

use crate::{HALF, number};
use pytorch::machine::{ALLOCATORS, Machine, last, next};

/// Operations of each of the six processes, which make a hundred thousand.
const OPERATIONS: u32 = 16_700;

#[test]
fn six_processes_with_every_allocator_stay_within_one_cap_that_changes() {
    let Some(machine) = Machine::with_pytorch() else { return };
    machine.node.tranche(&["slice", "create", "shared", "-g", "0.5"]).success();
    let device = Device::attach(&machine.node.gpus()).expect("the node's file is there");
    let gpu = device.gpu(0).expect("it has a GPU");
    device.take_used_high(gpu);

    let start = |seed: usize| -> Process {
        let allocator = ALLOCATORS[seed % ALLOCATORS.len()];
        let words = ["storm", &OPERATIONS.to_string(), &seed.to_string()];
        machine.start(&["--slice", "shared"], allocator, &words)
    };
    let mut processes: Vec<Process> = (0..6).map(start).collect();
    for process in &mut processes {
        assert_eq!(next(process)["ready"], true);
    }
    for process in &mut processes {
        assert!(process.say("go"), "it listens");
    }
    let mut resizes = 0;
    while processes.iter_mut().any(Process::runs) {
        for size in ["0.45", "0.5"] {
            let outcome = machine.node.tranche(&["slice", "resize", "shared", "-g", size]);
            resizes += u32::from(outcome.code == Some(0));
            sleep(Duration::from_millis(100));
        }
    }
    assert!(resizes >= 10, "{resizes} resizes");
    let reports: Vec<Value> = processes.into_iter().map(last).collect();

    // The driver's own count of the most that was ever in use: nothing else uses this GPU.
    let most = device.take_used_high(gpu).bytes();
    assert!(most <= HALF, "{} bytes over the cap", most - HALF);
    assert!(most * 100 >= HALF * 95, "the cap was never met: {most} of {HALF}");
    let sum = |name: &str| reports.iter().map(|report| number(report, name)).sum::<f64>();
    assert!(sum("operations") >= 100_000.0 && sum("ooms") >= 1.0, "{reports:#?}");
    for report in &reports {
        assert_eq!(report["errors"], serde_json::json!([]), "{reports:#?}");
    }
}
