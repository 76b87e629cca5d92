//! State of a demonstration in progress, and its measurements.

use std::time::Duration;

use tranche_ctl::client::Daemon;
use tranche_domain::units::{Bytes, Permille};
use tranche_domain::view::{GpuView, NodeView};

use crate::claims::Claim;
use crate::error::DemoError;
use crate::lab::Lab;
use crate::narrator::Narrator;
use crate::observer::Observer;
use crate::owned::Owned;

/// Delay of NVML's data about real GPUs.
pub(super) const NVML_DELAY: Duration = Duration::from_millis(200);

/// Tolerance for memory that drivers of real GPUs keep or release by themselves.
const REAL_SLACK: Bytes = Bytes::mib(16);

/// State of the demonstration. Fields drop in order: the folder last, when it is unused.
pub(super) struct Story {
    pub(super) narrator: Narrator,
    pub(super) claims: Vec<Claim>,
    pub(super) observer: Observer,
    pub(super) client: Daemon,
    pub(super) daemon: Owned,
    /// Memory in use on the GPU at the start.
    pub(super) baseline: Bytes,
    /// Memory in use on the GPU by frac03 alone.
    pub(super) neighbour: Bytes,
    /// Maximum observed use of frac05 above its cap.
    pub(super) overshoot: Bytes,
    pub(super) lab: Lab,
}

impl Story {
    pub(super) fn begin(narrator: Narrator, lab: Lab) -> Result<Self, DemoError> {
        introduce(&narrator, &lab);
        narrator.step("A daemon starts, in a private folder");
        let mut observer = Observer::start(&lab.parts, &lab.ground.environment, lab.folder())?;
        let baseline = observer.used(lab.ground.gpu.index)?;
        let (daemon, client, view) = lab.start_daemon()?;
        narrator.line(&format!("tranched {} serves {} GPU(s)", view.daemon_version, view.gpus.len()));
        let (claims, neighbour, overshoot) = (Vec::new(), Bytes::ZERO, Bytes::ZERO);
        Ok(Self { narrator, claims, observer, client, daemon, baseline, neighbour, overshoot, lab })
    }

    /// Memory of the demonstration's programs on the GPU, observed from outside.
    pub(super) fn in_use(&mut self) -> Result<Bytes, DemoError> {
        Ok(self.observer.used(self.lab.ground.gpu.index)?.saturating_sub(self.baseline))
    }

    /// Memory of frac05; records an excess over its cap.
    pub(super) fn watch(&mut self, cap: Bytes) -> Result<Bytes, DemoError> {
        let held = self.in_use()?.saturating_sub(self.neighbour);
        self.overshoot = self.overshoot.max(held.saturating_sub(cap));
        Ok(held)
    }

    pub(super) fn part(&self, permille: u32) -> Bytes {
        let share = Permille::try_from(permille).expect("the demonstration's shares are parts of one GPU");
        self.lab.ground.gpu.capacity().part(share)
    }

    pub(super) fn slack(&self) -> Bytes {
        if self.lab.ground.simulated { Bytes::ZERO } else { REAL_SLACK }
    }

    pub(super) fn gpu_view(&mut self) -> Result<GpuView, DemoError> {
        let NodeView { gpus, .. } = self.client.snapshot()?;
        let uuid = &self.lab.ground.gpu.uuid;
        gpus.into_iter().find(|gpu| &gpu.uuid.to_string() == uuid).ok_or_else(|| DemoError::Strange {
            who: "tranched".into(),
            question: "the GPUs".into(),
            answer: format!("a list without {uuid}"),
        })
    }
}

fn introduce(narrator: &Narrator, lab: &Lab) {
    let ground = &lab.ground;
    let kind = if ground.simulated {
        "SIMULATED: kernels take time and compute nothing"
    } else {
        "a real GPU that nobody else uses"
    };
    narrator.step("Two programs share one GPU");
    narrator.line(&format!("GPU {} of {}: {} ({kind})", ground.gpu.index, ground.gpus, ground.gpu.name));
    narrator.line(&format!("it can hand out {}", ground.gpu.capacity()));
}
