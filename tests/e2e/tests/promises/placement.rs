//! Memory is charged on the device where it lies, on drivers of several versions.
//!
//! The stream, pool, graph or handle determines the device, whatever is current and however the function was found. The
//! reference is the device itself, which records the most memory that it ever had in use.

use e2e::{Node, Process, compile};
use simgpu::Gpu;
use tranche_domain::units::Bytes;

/// Cap of a slice of these tests on each of its devices.
const CAP: Bytes = Bytes::mib(4096);

/// A program that allocates in one way in a slice of its own, on devices without other use.
struct Way {
    node: Node,
    devices: simgpu::Node,
    process: Process,
}

impl Way {
    #[track_caller]
    fn begin(driver: &str, name: &str, gpus: &str) -> Self {
        let node = Node::with_driver("v100x8", driver);
        let program = compile("tests/e2e/clients/placement.c", &[]).expect("it needs nothing but libc");
        let devices = simgpu::Node::attach(&node.gpus()).expect("the node's file exists");
        let options = ["--memory", "4096Mi", "--gpu", gpus, "--name", "placed"];
        let mut command = node.run_in_slice(&options, &[program.as_os_str(), name.as_ref()]);
        let process = Process::start(&mut command);
        Self { node, devices, process }
    }

    fn line(&mut self) -> String {
        self.process.line().unwrap_or_default()
    }

    fn gpus(&self) -> Vec<Gpu> {
        self.devices.gpus().collect()
    }

    /// Most memory that a device had in use since the last call.
    fn most(&self, gpu: usize) -> Bytes {
        Bytes::new(self.devices.take_used_high(self.gpus()[gpu]).bytes())
    }

    /// Charge of the slice on each of its devices.
    fn charged(&self) -> Vec<Bytes> {
        self.node.slice("placed").devices.iter().map(|device| device.used).collect()
    }
}

/// Fails unless a way stays within the cap on each device, and is charged in full on device `full`.
#[track_caller]
fn hold(driver: &str, name: &str, gpus: &str, full: usize) {
    let mut way = Way::begin(driver, name, gpus);
    let line = way.line();
    if line == "unsupported" {
        println!("SKIPPED: {name} on {driver}: the driver refuses such properties");
        return;
    }
    assert_eq!(line, "full", "{name} on {driver}");
    for gpu in 0..way.charged().len() {
        let most = way.most(gpu);
        assert!(most <= CAP, "{name} on {driver}: GPU {gpu} had {most} in use of {CAP}");
    }
    let charged = way.charged();
    // The step of a pool may not fit into the rest.
    let least = CAP.saturating_sub(Bytes::mib(64));
    assert!(charged[full] >= least, "{name} on {driver}: {charged:?}");
}

#[test]
fn stream_of_another_device_is_charged_there() {
    for driver in ["535", "550", "570", "610"] {
        hold(driver, "stream_of_the_other_device", "0,1", 1);
    }
}

#[test]
fn pool_of_another_device_is_charged_there() {
    for driver in ["535", "550", "610"] {
        hold(driver, "pool_of_the_other_device", "0,1", 1);
    }
}

#[test]
fn managed_and_unknown_locations_are_charged_in_full() {
    for driver in ["580", "610"] {
        let ways = ["managed_anywhere", "managed_on_the_device", "managed_on_the_host", "locality_domain"];
        for name in ways.into_iter().chain(["physical_in_a_locality_domain"]) {
            hold(driver, name, "0", 0);
        }
        // Each device may come to hold all of it.
        hold(driver, "managed_on_both", "0,1", 0);
        hold(driver, "managed_on_both", "0,1", 1);
    }
}

#[test]
fn default_pool_of_the_host_is_free() {
    for driver in ["580", "610"] {
        let mut way = Way::begin(driver, "default_pool_of_the_host", "0");
        let line = way.line();
        if line == "unsupported" {
            println!("SKIPPED: default_pool_of_the_host on {driver}: the driver has none");
            continue;
        }
        assert_eq!(line, "full", "{driver}: 6400 MiB of the host's were refused");
        assert!(way.charged()[0] < Bytes::mib(1024), "{driver}: {:?}", way.charged());
    }
}

#[test]
fn pool_that_grows_in_steps_stays_within_the_cap() {
    for driver in ["550", "570", "610"] {
        hold(driver, "pool_in_steps", "0", 0);
    }
}

#[test]
fn threads_without_a_context_are_answered_and_charged() {
    for driver in ["535", "550", "610"] {
        let mut way = Way::begin(driver, "no_context", "0");
        assert_eq!(way.line(), "answers 0 0 0 0 0 0 0 0 0 0", "{driver}");
        assert_eq!(way.line(), "full");
        // Context, reserve and memory that pools and graphs keep; the 512 MiB that were freed are not charged.
        let charged = way.charged()[0];
        assert!(charged < Bytes::mib(1000), "{driver}: {charged} are charged after all was freed");
        assert!(way.process.say("go on"));
        assert_eq!(way.line(), "full");
        assert!(way.most(0) <= CAP && way.charged()[0] >= Bytes::mib(4000), "{driver}: {:?}", way.charged());
    }
}

#[test]
fn look_up_at_any_version_never_leads_past_the_cap() {
    for driver in ["535", "550", "570", "610"] {
        let mut way = Way::begin(driver, "newer_look_up", "0");
        assert_eq!(way.line(), "full", "{driver}");
        assert!(way.most(0) <= CAP, "{driver}");
    }
}
