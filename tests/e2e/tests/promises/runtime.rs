//! Programs of the CUDA runtime, on the project's own.
//!
//! It stands on the public driver API, so the slice is kept.

use e2e::{CudaError, Node, compile};
use serde_json::Value;

/// Half an H200 as whole MiB.
const HALF: u64 = 71583 << 20;

/// Report of the program with a runtime of this major version, in half an H200 with this driver.
#[track_caller]
fn report_of(driver: &str, runtime: &str) -> Value {
    let node = Node::with_driver("h200x1", driver);
    // The stage has them beside the drivers' folders.
    let folder = node.stage().shim().ancestors().nth(3).expect("the stage has lib/tranche").join("sim/cuda");
    let library = folder.join(format!("libcudart.so.{runtime}")).to_string_lossy().into_owned();
    let program = compile("tests/e2e/clients/runtime.c", &[&library]).expect("it links with the runtime");
    let mut command = node.run_in_slice(&["-g", "0.5"], &[program]);
    let folders = [folder, node.stage().libraries()];
    command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).expect("paths without colons"));
    let output = node.run(&mut command).success();
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}\n{output}"))
}

#[test]
fn a_runtime_program_sees_the_slice_and_its_cap() {
    for (driver, runtime, version) in [("550", "12", 12000), ("610", "12", 12000), ("610", "13", 13000)] {
        let report = report_of(driver, runtime);
        let is = |name: &str, value: u64| assert_eq!(report[name], value, "{name} in {report:#}");
        let fields =
            [("version", version), ("devices", 1), ("property", HALF), ("total", HALF), ("filled", 7)];
        fields.into_iter().for_each(|(name, value)| is(name, value));
        for name in ["first", "shown", "took", "symbol", "kept", "launched", "pool", "after"] {
            is(name, 0);
        }
        assert_eq!((&report["name"], &report["back"]), (&"NVIDIA H200".into(), &"there and back".into()));
        let out_of_memory = CudaError::OUT_OF_MEMORY.0 as u64;
        ["beyond", "peeked", "last"].into_iter().for_each(|name| is(name, out_of_memory));
        assert_eq!(report["error"], "cudaErrorMemoryAllocation", "{report:#}");
        // cudaErrorInvalidValue, and a function of no device code.
        is("outside", 1);
        assert_ne!(report["unknown"], 0, "{report:#}");
        let took = report["ms"].as_f64().expect("a number");
        assert!((20.0..1000.0).contains(&took), "the kernel's 20 ms: {report:#}");
    }
}

#[test]
fn a_runtime_newer_than_the_driver_is_refused() {
    let report = report_of("550", "13");
    assert_eq!(report["first"], 35, "{report:#}");
    assert_eq!(report["text"], "CUDA driver version is insufficient for CUDA runtime version", "{report:#}");
}
