//! Scripted inputs: modes and faults that an operator, or a test, puts upon a GPU.
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use serde::Serialize;

use crate::layout::{XIDS, gpu, node, xid};
use crate::node::Node;
use crate::sys;
use crate::units::{Blocks, Gpu, Time};

/// Who may make contexts on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    /// Anybody.
    #[default]
    Default,
    /// One process at a time.
    ExclusiveProcess,
    /// Nobody.
    Prohibited,
}

/// Whether the GPU pretends to be seen from inside a virtual machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Virtualization {
    /// Bare metal.
    #[default]
    None,
    /// A vGPU in a guest.
    Vgpu,
}

/// Whether the GPU is on the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// It is.
    #[default]
    Present,
    /// It fell off.
    Lost,
}

/// What the driver says the GPU needs to work again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// Nothing.
    #[default]
    Nothing,
    /// A reset.
    Reset,
    /// A reboot of the node.
    Reboot,
}

/// Whether the GPU is cut into instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigMode {
    /// It is whole.
    #[default]
    Disabled,
    /// It is, or would be, cut.
    Enabled,
}

/// All settings of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Who may make contexts.
    pub compute_mode: ComputeMode,
    /// Bare metal or not.
    pub virtualization: Virtualization,
    /// Here or lost.
    pub presence: Presence,
    /// What it needs to work again.
    pub needs: Needs,
    /// Whole or cut.
    pub mig: MigMode,
    /// What a context costs.
    #[serde(rename = "context_mib", serialize_with = "as_mib")]
    pub context: Blocks,
    /// For how long dead processes keep what they hold and are listed, in milliseconds.
    pub linger_ms: u64,
    /// Whether NVML does not come back from questions about it.
    pub hangs: bool,
}

fn as_mib<S: serde::Serializer>(blocks: &Blocks, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(blocks.mib())
}

/// One thing to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Who may make contexts.
    ComputeMode(ComputeMode),
    /// Bare metal or not.
    Virtualization(Virtualization),
    /// Here or lost.
    Presence(Presence),
    /// What it needs to work again, as the driver says; it works as before.
    Needs(Needs),
    /// Whole or cut. Refused by nobody, even where the model has no MIG: see [`crate::Model::mig`] first.
    Mig(MigMode),
    /// What contexts made from now on cost.
    Context(Blocks),
    /// For how long dead processes keep what they hold and are listed: as where something else still has their files
    /// open.
    Linger(Duration),
    /// Whether NVML does not come back from questions about it until this is no longer so.
    Hangs(bool),
}

/// A fault that the driver reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Xid {
    /// Its number among this GPU's faults, from 1.
    pub count: u64,
    /// NVIDIA's code, such as 79 for a GPU that fell off the bus.
    pub code: u64,
    /// When.
    pub at: Time,
}

impl Node {
    /// What is set on a GPU.
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
        }
    }

    /// Whether a fault took the GPU off the bus: every call on it then fails.
    pub fn is_lost(&self, gpu: Gpu) -> bool {
        self.settings(gpu).presence == Presence::Lost
    }

    /// Sets one thing.
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
        };
        let (ground, _) = self.bring(gpu);
        self.gpu_words(gpu).header().set(field, value);
        ground.announce();
    }

    /// Reports a fault to whoever listens.
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

    /// How many faults a GPU ever had.
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
