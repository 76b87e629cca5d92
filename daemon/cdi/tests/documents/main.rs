//! Documents for nodes and slices.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod golden;
mod hostile;
mod laws;

use tranche_cdi::{CdiGpu, FoundLibrary, Injection, NodeFindings, NodeSpec, Preload, Shim};
use tranche_domain::id::GpuUuid;

/// Document of NVIDIA's tool for a node with two H200.
const H200: &str = include_str!("../fixtures/nvidia-h200.yaml");

fn gpu(index: u32) -> CdiGpu {
    CdiGpu { uuid: uuid(index), index }
}

fn uuid(index: u32) -> GpuUuid {
    format!("GPU-11111111-2222-3333-4444-55555555555{index}").parse().unwrap()
}

fn h200() -> NodeSpec {
    NodeSpec::parse("/etc/cdi/nvidia.yaml", H200.as_bytes()).unwrap()
}

/// A V100 of a node that no file describes.
fn v100() -> NodeFindings {
    let library = |name: &str, soname: &str| FoundLibrary {
        file: format!("/usr/lib/x86_64-linux-gnu/{name}.550.163.01"),
        names: vec![format!("{name}.550.163.01"), soname.to_owned()],
    };
    NodeFindings {
        device_nodes: ["/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"].map(str::to_owned).into(),
        libraries: vec![
            library("libcuda.so", "libcuda.so.1"),
            library("libnvidia-ml.so", "libnvidia-ml.so.1"),
            library("libnvidia-ptxjitcompiler.so", "libnvidia-ptxjitcompiler.so.1"),
        ],
        files: vec!["/usr/bin/nvidia-smi".into()],
        ..NodeFindings::default()
    }
}

/// A node of the simulator: libraries and the node's file, and no device nodes.
fn simulated() -> NodeFindings {
    let library = |name: &str| FoundLibrary { file: format!("/sim/{name}"), names: vec![name.to_owned()] };
    NodeFindings {
        libraries: vec![library("libcuda.so.1"), library("libnvidia-ml.so.1")],
        shared: vec!["/sim/node".into()],
        env: vec!["SIMGPU_NODE=/sim/node".into()],
        ..NodeFindings::default()
    }
}

/// A slice of a part of the first GPU.
fn part() -> Injection {
    let shim = Shim {
        libcuda: "/usr/lib/tranche/replace/libcuda.so.1".into(),
        libnvml: "/usr/lib/tranche/replace/libnvidia-ml.so.1".into(),
        socket_folder: "/run/tranche/slices/half".into(),
        preload: None,
    };
    Injection { slice: "half".parse().unwrap(), gpus: vec![uuid(0)], shim: Some(shim) }
}

/// The same in the second form.
fn preloaded() -> Injection {
    let preload = Preload {
        library: "/usr/lib/tranche/libtranche_preload.so".into(),
        list: "/usr/lib/tranche/ld.so.preload".into(),
    };
    let mut injection = part();
    injection.shim.as_mut().unwrap().preload = Some(preload);
    injection
}

/// A slice of whole GPUs.
fn whole(gpus: &[u32]) -> Injection {
    let gpus = gpus.iter().copied().map(uuid).collect();
    Injection { slice: "whole".parse().unwrap(), gpus, shim: None }
}
