//! Scripted inputs: modes and faults that an operator, or a test, puts upon a GPU.
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use serde::Serialize;

use crate::layout::{XIDS, gpu, node, xid};
use crate::node::Node;
use crate::sys;
use crate::units::{Blocks, Gpu, Time};

/// Admission of contexts to a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    /// Contexts of any number of processes.
    #[default]
    Default,
    /// One process at a time.
    ExclusiveProcess,
    /// No contexts at all.
    Prohibited,
}

/// Virtualisation that the GPU pretends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Virtualization {
    /// Bare metal, outside a virtual machine.
    #[default]
    None,
    /// A vGPU in a guest.
    Vgpu,
}

/// Presence of the GPU on the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// The GPU is on the bus.
    #[default]
    Present,
    /// The GPU fell off the bus.
    Lost,
}

/// Recovery that the GPU needs, as the driver reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// No recovery is needed.
    #[default]
    Nothing,
    /// A reset of the GPU.
    Reset,
    /// A reboot of the node.
    Reboot,
}

/// Partition of the GPU into instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigMode {
    /// The GPU is whole.
    #[default]
    Disabled,
    /// It is, or would be, cut.
    Enabled,
}

/// All settings of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Admission of contexts to the GPU.
    pub compute_mode: ComputeMode,
    /// Bare metal or not.
    pub virtualization: Virtualization,
    /// Presence on the bus.
    pub presence: Presence,
    /// Recovery that it needs.
    pub needs: Needs,
    /// Whole or cut into instances.
    pub mig: MigMode,
    /// Memory cost of a context.
    #[serde(rename = "context_mib", serialize_with = "as_mib")]
    pub context: Blocks,
    /// For how long dead processes keep what they hold and are listed, in milliseconds.
    pub linger_ms: u64,
    /// True if NVML calls about the GPU do not return.
    pub hangs: bool,
    /// True if checkpoints take as much of the host's memory as they hold of the GPU's.
    pub full_images: bool,
    /// True if the end of a restored process takes the node's GPUs down.
    pub restored_hangs: bool,
}

fn as_mib<S: serde::Serializer>(blocks: &Blocks, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(blocks.mib())
}

/// A setting with its new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Admission of contexts to the GPU.
    ComputeMode(ComputeMode),
    /// Bare metal or not.
    Virtualization(Virtualization),
    /// Presence on the bus.
    Presence(Presence),
    /// Recovery that it needs, as the driver reports; it works as before.
    Needs(Needs),
    /// Whole or cut into instances. Never refused, even where the model has no MIG: see [`crate::Model::mig`]
    /// first.
    Mig(MigMode),
    /// Memory cost of contexts made from now on.
    Context(Blocks),
    /// Time for which dead processes keep what they hold and are listed. Another process that still has their
    /// files open has the same effect.
    Linger(Duration),
    /// If true, NVML calls about the GPU do not return until this is set to false.
    Hangs(bool),
    /// If true, a checkpoint takes as much of the host's memory as it holds of the GPU's.
    ///
    /// Else only bytes that were written are there.
    FullImages(bool),
    /// If true, the end of a process with restored contexts takes all GPUs of the node down.
    ///
    /// They are lost and NVML hangs, where a real host was seen to hang
    /// (<https://github.com/NVIDIA/cuda-checkpoint/issues/53>). A process that was checkpointed again may end.
    RestoredHangs(bool),
}

/// A fault that the driver reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Xid {
    /// Its number among this GPU's faults, from 1.
    pub count: u64,
    /// NVIDIA's code, such as 79 for a GPU that fell off the bus.
    pub code: u64,
    /// Time of the report.
    pub at: Time,
}

impl Node {
    /// Current settings of a GPU.
    pub fn settings(&self, gpu: Gpu) -> Settings {
        let header = self.gpu_words(gpu).header();
        Settings {
            compute_mode: match header.get(gpu::COMPUTE_MODE) {
                0 => ComputeMode::Default,
                1 => ComputeMode::ExclusiveProcess,
                _ => ComputeMode::Prohibited,
            },
            virtualization: match header.get(gpu::VIRTUALIZATION) {
                0 => Virtualization::None,
                _ => Virtualization::Vgpu,
            },
            presence: if header.get(gpu::LOST) == 0 { Presence::Present } else { Presence::Lost },
            needs: match header.get(gpu::NEEDS) {
                0 => Needs::Nothing,
                1 => Needs::Reset,
                _ => Needs::Reboot,
            },
            mig: if header.get(gpu::MIG) == 0 { MigMode::Disabled } else { MigMode::Enabled },
            context: Blocks(header.get(gpu::CONTEXT_BLOCKS)),
            linger_ms: header.get(gpu::LINGER) / 1_000_000,
            hangs: header.get(gpu::HANGS) != 0,
            full_images: header.get(gpu::FULL_IMAGES) != 0,
            restored_hangs: header.get(gpu::RESTORED_HANGS) != 0,
        }
    }

    /// True if a fault took the GPU off the bus: every call on it then fails.
    pub fn is_lost(&self, gpu: Gpu) -> bool {
        self.settings(gpu).presence == Presence::Lost
    }

    /// Applies one setting to a GPU.
    pub fn set(&self, gpu: Gpu, setting: Setting) {
        let (field, value) = match setting {
            Setting::ComputeMode(mode) => (gpu::COMPUTE_MODE, mode as u64),
            Setting::Virtualization(mode) => (gpu::VIRTUALIZATION, mode as u64),
            Setting::Presence(presence) => (gpu::LOST, presence as u64),
            Setting::Needs(needs) => (gpu::NEEDS, needs as u64),
            Setting::Mig(mode) => (gpu::MIG, mode as u64),
            Setting::Context(blocks) => (gpu::CONTEXT_BLOCKS, blocks.0),
            Setting::Linger(span) => (gpu::LINGER, u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
            Setting::Hangs(hangs) => (gpu::HANGS, u64::from(hangs)),
            Setting::FullImages(full) => (gpu::FULL_IMAGES, u64::from(full)),
            Setting::RestoredHangs(hangs) => (gpu::RESTORED_HANGS, u64::from(hangs)),
        };
        let (ground, _) = self.bring(gpu);
        self.gpu_words(gpu).header().set(field, value);
        ground.announce();
    }

    /// Reports a fault to every listener.
    pub fn raise_xid(&self, gpu: Gpu, code: u64) {
        let ground = self.ground(gpu);
        let words = self.gpu_words(gpu);
        let count = words.header().get(gpu::XID_COUNT) + 1;
        words.xid(count).set(xid::CODE, code);
        words.xid(count).set(xid::AT, self.now().0);
        words.header().set(gpu::XID_COUNT, count);
        drop(ground);
        let events = self.words().header().word(node::EVENTS);
        events.fetch_add(1, std::sync::atomic::Ordering::Release);
        sys::wake(events, i32::MAX);
    }

    /// Number of faults of a GPU since its node was made.
    pub fn xid_count(&self, gpu: Gpu) -> u64 {
        self.gpu_words(gpu).header().get(gpu::XID_COUNT)
    }

    /// The faults after the first `seen`, as far as they are remembered.
    pub fn xids_after(&self, gpu: Gpu, seen: u64) -> Vec<Xid> {
        let _ground = self.ground(gpu);
        let words = self.gpu_words(gpu);
        let count = words.header().get(gpu::XID_COUNT);
        let first = seen.max(count.saturating_sub(XIDS as u64)) + 1;
        let read = |count| Xid {
            count,
            code: words.xid(count).get(xid::CODE),
            at: Time(words.xid(count).get(xid::AT)),
        };
        (first..=count).map(read).collect()
    }

    /// A number that moves with every fault of any GPU; to be read before looking for faults.
    pub fn fault_epoch(&self) -> u32 {
        self.words().header().word(node::EVENTS).load(Acquire) as u32
    }

    /// Sleeps until a fault is reported after an epoch, at most so long.
    pub fn sleep_for_faults(&self, epoch: u32, at_most: Duration) {
        sys::sleep_on(self.words().header().word(node::EVENTS), epoch, at_most);
    }
}
