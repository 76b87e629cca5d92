//! Helpers for the tests of several modules.

use std::path::Path;

use proptest::prelude::*;
use tranche_domain::id::GpuUuid;
use tranche_domain::units::{Bytes, Permille};

use crate::bundle::Bundle;
use crate::config::Config;
use crate::device::{DeviceId, MOST_ALIKE};
use crate::health::{GpuHeadroom, NodeHeadroom};
use crate::offer::Offer;
use crate::placement::GpuDevice;

/// Profiles of 50, 30 and 20 percent of each GPU.
pub(crate) const USUAL: &str = "
    [[profile]]
    name = 'gpu-50'
    fraction = 0.5
    [[profile]]
    name = 'gpu-30'
    fraction = 0.3
    [[profile]]
    name = 'gpu-20'
    fraction = 0.2
    [[layout]]
    profiles = ['gpu-50', 'gpu-30', 'gpu-20']
";

pub(crate) fn config(text: &str) -> Config {
    Config::parse(text, Path::new("t.toml")).expect("the test's configuration is good")
}

pub(crate) fn uuid(gpu: u8) -> GpuUuid {
    GpuUuid::from_bytes([gpu; 16])
}

/// This number of V100s.
pub(crate) fn gpu_devices(count: u8) -> Vec<GpuDevice> {
    let gpu_device = |index| GpuDevice {
        index: u32::from(index),
        uuid: uuid(index),
        model: "Tesla V100-SXM2-32GB".into(),
        capacity: Bytes::mib(32510),
        numa_node: None,
    };
    (0..count).map(gpu_device).collect()
}

pub(crate) fn device(gpu: u8, profile: &str, ordinal: u16) -> DeviceId {
    DeviceId { gpu: uuid(gpu), profile: profile.parse().expect("the test names a profile"), ordinal }
}

pub(crate) fn bundle(devices: impl IntoIterator<Item = DeviceId>) -> Bundle {
    Bundle::of(devices.into_iter().collect()).expect("the test's devices are one slice")
}

pub(crate) fn offer(text: &str, gpus: u8) -> Offer {
    Offer::of(&config(text), &gpu_devices(gpus)).expect("the test's layout fits")
}

/// The state of unused GPUs.
pub(crate) fn idle(gpus: u8) -> NodeHeadroom {
    let room = |gpu: u8| GpuHeadroom {
        index: gpu.into(),
        free: Bytes::mib(32510),
        free_compute: Permille::WHOLE,
        targets: Vec::new(),
        obstacle: None,
        cordon: None,
        strangers: 0,
        fault: None,
        recovers: false,
    };
    NodeHeadroom { gpus: (0..gpus).map(|gpu| (uuid(gpu), room(gpu))).collect(), ..NodeHeadroom::default() }
}

pub(crate) fn any_device() -> impl Strategy<Value = DeviceId> {
    let name = "[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?";
    (any::<[u8; 16]>(), name, 0..MOST_ALIKE).prop_map(|(gpu, profile, ordinal)| DeviceId {
        gpu: GpuUuid::from_bytes(gpu),
        profile: profile.parse().expect("the pattern is that of names"),
        ordinal,
    })
}
