//! The library as an unmodified client, nvml-wrapper, sees it.
#![allow(clippy::unwrap_used, reason = "in a test, a failure is the answer")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{ComputeMode, TemperatureSensor, TopologyLevel};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use simgpu::{Blocks, Lane, Node, NodeSpec, Presence, Process, Setting, Work, WorkKind};

struct Bench {
    node: Node,
}

impl Bench {
    fn nvml(&self) -> Nvml {
        Nvml::builder().lib_path(library().as_os_str()).init().unwrap()
    }
}

/// Makes a test of a body that needs a preset's node. The library finds its node by the environment, which a running
/// process should not change; so each test starts itself again, with a node of its own.
macro_rules! on_a_node {
    ($($preset:literal: fn $name:ident($bench:ident) $body:block)*) => {$(
        #[test]
        fn $name() {
            if std::env::var_os(AGAIN).is_none() {
                return again(stringify!($name), $preset);
            }
            let $bench = Bench { node: Node::from_env().unwrap() };
            $body
        }
    )*};
}

/// Variable that is set where a test runs with its own node.
const AGAIN: &str = "FAKENVML_TEST_AGAIN";

fn again(test: &str, preset: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node");
    Node::create(&path, &NodeSpec::preset(preset).unwrap()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(AGAIN, "1").env(simgpu::NODE_VARIABLE, &path);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("1 passed"), "the test did not run");
}

/// Cargo puts the library beside the folder of this test's own binary.
fn library() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    me.ancestors().nth(2).unwrap().join("libfakenvml.so")
}

fn kernel(millis: u64) -> Work {
    Work {
        lane: Lane::Blocking(1),
        kind: WorkKind::Kernel,
        duration: Duration::from_millis(millis),
        after: None,
    }
}

fn holding(node: &Node, gpu: usize, mib: u64) -> Process {
    let (process, gpu) = (node.register().unwrap(), node.gpu(gpu).unwrap());
    process.create_context(gpu).unwrap();
    process.take_blocks(gpu, Blocks::holding_mib(mib)).unwrap();
    process
}

on_a_node! {
    "v100x8": fn versions_show_the_simulation_and_the_driver_personality(bench) {
        let nvml = bench.nvml();
        assert!(nvml.sys_nvml_version().unwrap().ends_with("-simulated"));
        assert!(nvml.sys_driver_version().unwrap().starts_with("550."));
        assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 12_040);
        assert_eq!(nvml.device_count().unwrap(), 8);
    }

    "mixed": fn a_gpu_is_found_by_index_uuid_and_bus_and_is_the_same(bench) {
        let nvml = bench.nvml();
        for (index, spec) in bench.node.spec().gpus.iter().enumerate() {
            let device = nvml.device_by_index(index as u32).unwrap();
            assert_eq!(device.name().unwrap(), spec.model.name);
            assert_eq!(device.uuid().unwrap(), spec.uuid_text());
            assert_eq!(nvml.device_by_uuid(spec.uuid_text()).unwrap().index().unwrap(), index as u32);
            let bus = device.pci_info().unwrap().bus_id;
            assert_eq!(nvml.device_by_pci_bus_id(bus).unwrap().index().unwrap(), index as u32);
        }
        assert!(matches!(nvml.device_by_index(5), Err(NvmlError::InvalidArg)));
        assert!(matches!(nvml.device_by_uuid("GPU-0"), Err(NvmlError::NotFound)));
    }

    "v100x8": fn memory_is_what_processes_hold_and_what_the_driver_keeps(bench) {
        let nvml = bench.nvml();
        let _process = holding(&bench.node, 1, 1000);
        let memory = nvml.device_by_index(1).unwrap().memory_info().unwrap();
        let mib = |bytes: u64| bytes >> 20;
        assert_eq!((mib(memory.total), mib(memory.reserved)), (32768, 258));
        assert_eq!((mib(memory.used), mib(memory.free)), (1308, 32510 - 1308));
    }

    "v100x8": fn a_process_is_listed_with_its_memory_where_it_has_any_and_nowhere_else(bench) {
        let nvml = bench.nvml();
        let _process = holding(&bench.node, 2, 500);
        let listed = nvml.device_by_index(2).unwrap().running_compute_processes().unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].pid, std::process::id());
        assert!(matches!(listed[0].used_gpu_memory, UsedGpuMemory::Used(bytes) if bytes == 808 << 20));
        assert!(nvml.device_by_index(3).unwrap().running_compute_processes().unwrap().is_empty());
        assert!(nvml.device_by_index(2).unwrap().running_graphics_processes().unwrap().is_empty());
        assert!(nvml.sys_process_name(std::process::id(), 4096).unwrap().contains("clients"));
    }

    "v100x8": fn busy_gpu_is_warm_fast_and_lists_its_process(bench) {
        let nvml = bench.nvml();
        let process = holding(&bench.node, 0, 2);
        let context = process.create_context(bench.node.gpu(0).unwrap()).unwrap();
        process.submit(context, kernel(60_000)).unwrap();
        let device = nvml.device_by_index(0).unwrap();
        let start = Instant::now();
        while device.utilization_rates().unwrap().gpu < 90 {
            assert!(start.elapsed() < Duration::from_secs(10), "the GPU does not get busy");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(device.power_usage().unwrap() > 200_000);
        assert!(device.temperature(TemperatureSensor::Gpu).unwrap() > 55);
        let samples = device.process_utilization_stats(None).unwrap();
        assert_eq!((samples.len(), samples[0].pid), (1, std::process::id()));
        assert!(samples[0].sm_util >= 90, "{samples:?}");
        let idle = nvml.device_by_index(1).unwrap();
        assert_eq!(idle.utilization_rates().unwrap().gpu, 0);
        assert!(matches!(idle.process_utilization_stats(None), Err(NvmlError::NotFound)));
    }

    "mixed": fn modes_are_what_was_set(bench) {
        let nvml = bench.nvml();
        let [volta, ampere] = [0, 2].map(|index| nvml.device_by_index(index).unwrap());
        assert!(matches!(volta.mig_mode(), Err(NvmlError::NotSupported)));
        assert_eq!(ampere.mig_mode().unwrap().current, 0);
        bench.node.set(bench.node.gpu(2).unwrap(), Setting::Mig(simgpu::MigMode::Enabled));
        assert_eq!(ampere.mig_mode().unwrap().current, 1);
        assert_eq!(volta.compute_mode().unwrap(), ComputeMode::Default);
        let exclusive = Setting::ComputeMode(simgpu::ComputeMode::ExclusiveProcess);
        bench.node.set(bench.node.gpu(0).unwrap(), exclusive);
        assert_eq!(volta.compute_mode().unwrap(), ComputeMode::ExclusiveProcess);
    }

    "v100x16": fn islands_are_visible(bench) {
        let nvml = bench.nvml();
        let devices: Vec<_> = (0..16).map(|index| nvml.device_by_index(index).unwrap()).collect();
        let bus_ids: Vec<String> = devices.iter().map(|device| device.pci_info().unwrap().bus_id).collect();
        for (index, device) in devices.iter().enumerate() {
            for link in 0..6 {
                let remote = device.link_wrapper_for(link).remote_pci_info().unwrap().bus_id;
                let remote = bus_ids.iter().position(|bus| *bus == remote).unwrap();
                assert_eq!(remote / 8, index / 8, "GPU {index} is linked across islands");
                assert_ne!(remote, index);
            }
        }
        let ancestor = |other| devices[0].topology_common_ancestor(nvml.device_by_index(other).unwrap());
        assert!(matches!(ancestor(1), Ok(TopologyLevel::Single)));
        assert!(matches!(ancestor(15), Ok(TopologyLevel::System)));
    }

    "mixed": fn links_are_at_full_speed_and_lead_to_gpus(bench) {
        let nvml = bench.nvml();
        for index in 0..nvml.device_count().unwrap() {
            let device = nvml.device_by_index(index).unwrap();
            let generation = device.current_pcie_link_gen().unwrap();
            assert!([3, 4, 5].contains(&generation) && device.max_pcie_link_gen().unwrap() == generation);
            assert_eq!((device.current_pcie_link_width().unwrap(), device.max_pcie_link_width().unwrap()), (16, 16));
            let link = device.link_wrapper_for(0);
            if matches!(link.is_active(), Ok(true)) {
                assert!(link.remote_pci_info().is_ok());
            }
        }
    }

    "v100x8": fn event_set_receives_a_fault_and_lost_gpu_fails(bench) {
        let nvml = bench.nvml();
        let device = nvml.device_by_index(4).unwrap();
        let set = nvml.create_event_set().unwrap();
        let set = device.register_events(EventTypes::CRITICAL_XID_ERROR, set).unwrap();
        assert!(matches!(set.wait(10), Err(NvmlError::Timeout)));
        let (node, gpu) = (bench.node.clone(), bench.node.gpu(4).unwrap());
        let fault = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            node.raise_xid(gpu, 79);
            node.set(gpu, Setting::Presence(Presence::Lost));
        });
        let event = set.wait(10_000).unwrap();
        assert_eq!(event.device.uuid().unwrap(), device.uuid().unwrap());
        assert!(format!("{:?}", event.event_data).contains("79"), "{:?}", event.event_data);
        fault.join().unwrap();
        assert!(matches!(device.memory_info(), Err(NvmlError::GpuLost)));
        assert!(matches!(nvml.device_by_index(4), Err(NvmlError::GpuLost)));
        assert_eq!(nvml.device_count().unwrap(), 8);
    }
}

#[test]
fn the_library_bears_the_real_ones_name() {
    let bytes = std::fs::read(library()).unwrap();
    let name = b"\0libnvidia-ml.so.1\0";
    assert!(bytes.windows(name.len()).any(|window| window == name));
}

#[test]
fn a_program_that_looks_the_library_up_by_its_name_finds_it_and_without_a_node_no_driver() {
    let folder = tempfile::tempdir().unwrap();
    let node = folder.path().join("node");
    Node::create(&node, &NodeSpec::preset("h200x1").unwrap()).unwrap();
    std::fs::copy(library(), folder.path().join("libnvidia-ml.so.1")).unwrap();
    let program = "import ctypes; nvml = ctypes.CDLL('libnvidia-ml.so.1'); print(nvml.nvmlInit_v2()); \
                   count = ctypes.c_uint(); nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)); print(count.value)";
    let Some(with_node) = python(program, folder.path(), &node) else {
        return skip("python3 is not installed");
    };
    assert_eq!(with_node, "0\n1\n");
    let without_node = python(program, folder.path(), Path::new("")).unwrap();
    assert_eq!(without_node, "9\n0\n", "the driver is not loaded");
}

fn python(program: &str, libraries: &Path, node: &Path) -> Option<String> {
    let mut command = Command::new("python3");
    command.args(["-c", program]).env("LD_LIBRARY_PATH", libraries).env(simgpu::NODE_VARIABLE, node);
    Some(String::from_utf8_lossy(&command.output().ok()?.stdout).into_owned())
}

/// Reports a test that did not run; a failure where `TRANCHE_REQUIRE` requires all.
fn skip(reason: &str) {
    println!("SKIP: {reason}");
    assert_ne!(std::env::var("TRANCHE_REQUIRE").as_deref(), Ok("all"), "{reason}");
}
