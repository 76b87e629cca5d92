//! The core's state at the instant of a scrape.

use std::sync::Arc;
use std::time::Instant;

use tranche_domain::id::GpuUuid;
use tranche_domain::node::Gpu;
use tranche_domain::slice::Slice;
use tranche_domain::units::{Bytes, Permille};

use crate::agent::{Agent, Core};
use tranche_slices::slice_runtime::SliceRuntime;

/// Copy of the core's state at one instant.
pub(super) struct Copied {
    pub(super) slices: Vec<(Slice, Arc<SliceRuntime>)>,
    pub(super) gpus: Vec<Promised>,
    pub(super) stranded: usize,
    pub(super) waiting: usize,
    /// Start of the longest wait.
    pub(super) waiting_since: Option<Instant>,
}

impl Copied {
    pub(super) fn of(agent: &Agent) -> Self {
        let core = agent.core();
        let slices = core.node.slices().iter();
        let slices =
            slices.filter_map(|(name, slice)| Some((slice.clone(), Arc::clone(core.live.get(name)?))));
        Self {
            slices: slices.collect(),
            gpus: core.node.gpus().iter().map(|gpu| Promised::of(&core, gpu)).collect(),
            stranded: core.stranded.len(),
            waiting: core.waiting.len(),
            waiting_since: core.waiting.oldest(),
        }
    }
}

/// Commitments of a GPU.
pub(super) struct Promised {
    pub(super) gpu: GpuUuid,
    pub(super) memory: Bytes,
    pub(super) compute: Permille,
    pub(super) sliceable: bool,
    pub(super) cordoned: bool,
}

impl Promised {
    fn of(core: &Core, gpu: &Gpu) -> Self {
        let (memory, compute) = core.node.committed(gpu.uuid);
        Self {
            gpu: gpu.uuid,
            memory,
            compute,
            sliceable: gpu.obstacle.is_none(),
            cordoned: core.node.cordons().contains_key(&gpu.uuid),
        }
    }
}
