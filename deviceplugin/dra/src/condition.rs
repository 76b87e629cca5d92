//! Condition of GPUs: reasons for which no further claim is placed on one.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::resource::v1::DeviceTaint;
use tranche_domain::fault::Xid;
use tranche_domain::id::GpuUuid;
use tranche_domain::view::{GpuView, NodeView};

/// Reason for which a GPU takes no further claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ailment {
    /// The daemon no longer lists the GPU.
    Gone,
    /// The daemon puts no slice there.
    Unusable(String),
    /// The driver reported a fault that no program causes.
    Fault(Xid),
    /// The last of these is too recent.
    Recovers,
    /// An operator keeps slices off.
    Cordoned(String),
    /// Processes in no slice use it.
    Strangers(usize),
}

impl Ailment {
    /// Word of the taint's key.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Unusable(_) => "unusable",
            Self::Fault(_) => "fault",
            Self::Recovers => "recovers",
            Self::Cordoned(_) => "cordoned",
            Self::Strangers(_) => "strangers",
        }
    }

    /// Words of those with which the GPU's programs cannot continue, or should not.
    pub(crate) const OF_LOSS: [&'static str; 3] = ["gone", "unusable", "fault"];

    /// Tests if the GPU works for the claims that it has.
    pub(crate) const fn leaves_claims_alone(&self) -> bool {
        matches!(self, Self::Recovers | Self::Cordoned(_) | Self::Strangers(_))
    }

    /// The reason as a sentence for the pod's status.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::Gone => "tranched no longer lists the GPU".into(),
            Self::Unusable(why) => why.clone(),
            Self::Fault(xid) => format!("the driver reports {xid}"),
            Self::Recovers => "the GPU has not been well for long enough".into(),
            Self::Cordoned(told) => told.clone(),
            Self::Strangers(count) => format!("{count} processes in no slice use the GPU"),
        }
    }

    /// Taint that the scheduler reads. Pods that are there stay, unless `evicts` is configured for it: a view of the
    /// daemon is no reason to end a training.
    pub(crate) fn taint(&self, domain: &str, evicts: bool) -> DeviceTaint {
        let value = match self {
            Self::Fault(xid) => Some(xid.get().to_string()),
            _ => None,
        };
        DeviceTaint {
            effect: if evicts { "NoExecute" } else { "NoSchedule" }.into(),
            key: format!("{domain}/{}", self.word()),
            value,
            time_added: None,
        }
    }
}

/// All GPUs that were ever listed, with their conditions. Times are on a monotonic clock with any origin.
#[derive(Debug, Default)]
pub(crate) struct GpuConditions {
    gpus: BTreeMap<GpuUuid, KnownGpu>,
    ignored_xids: Vec<u64>,
    recovery: Duration,
}

#[derive(Debug)]
struct KnownGpu {
    view: GpuView,
    ailment: Option<Ailment>,
    /// True after a view in which it did not work, until it has recovered.
    failed: bool,
    /// Time of the first view since then in which it works.
    well_since: Option<Duration>,
}

impl GpuConditions {
    /// No GPUs; after a failure a GPU has to work for `recovery`.
    pub(crate) fn new(ignored_xids: Vec<u64>, recovery: Duration) -> Self {
        Self { gpus: BTreeMap::new(), ignored_xids, recovery }
    }

    /// Takes the daemon's view, as far as its GPUs are the driver's.
    ///
    /// A view without any GPU is of a daemon that has no driver: what was known stays.
    pub(crate) fn observe(&mut self, node: &NodeView, is_ours: impl Fn(&GpuView) -> bool, now: Duration) {
        if node.gpus.is_empty() {
            return;
        }
        for view in node.gpus.iter().filter(|gpu| is_ours(gpu)) {
            let before = self.gpus.get(&view.uuid).map(|known| (known.failed, known.well_since));
            let (failed, well_since) = before.unwrap_or_default();
            self.gpus.insert(view.uuid, KnownGpu { view: view.clone(), ailment: None, failed, well_since });
        }
        for (uuid, known) in &mut self.gpus {
            let is_there = node.gpus.iter().any(|gpu| gpu.uuid == *uuid);
            let found = if is_there { current(&known.view, &self.ignored_xids) } else { Some(Ailment::Gone) };
            if found.as_ref().is_some_and(|ailment| !ailment.leaves_claims_alone()) {
                (known.failed, known.well_since) = (true, None);
            } else if known.failed {
                let since = *known.well_since.get_or_insert(now);
                known.failed = now < since + self.recovery;
            }
            known.ailment = found.or_else(|| known.failed.then_some(Ailment::Recovers));
        }
    }

    /// GPUs by UUID, each with its last view and its ailment.
    pub(crate) fn gpus(&self) -> impl Iterator<Item = (&GpuView, Option<&Ailment>)> {
        self.gpus.values().map(|known| (&known.view, known.ailment.as_ref()))
    }
}

fn current(gpu: &GpuView, ignored: &[u64]) -> Option<Ailment> {
    let fault = gpu.faults.iter().map(|fault| fault.xid);
    let fault = fault.into_iter().find(|xid| !xid.is_of_programs() && !ignored.contains(&xid.get()));
    let strangers = || (!gpu.foreign.is_empty()).then_some(Ailment::Strangers(gpu.foreign.len()));
    // After strangers: the daemon may refuse slices for their sake.
    let obstacle = || gpu.obstacle().map(|why| Ailment::Unusable(why.to_owned()));
    let cordon = || gpu.cordon.as_ref().map(|cordon| Ailment::Cordoned(cordon.told.clone()));
    fault.map(Ailment::Fault).or_else(strangers).or_else(obstacle).or_else(cordon)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::node;
    use tranche_domain::fault::Fault;

    fn ailment(conditions: &GpuConditions) -> Option<&'static str> {
        conditions.gpus().next().expect("a GPU").1.map(Ailment::word)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn failed_gpu_has_to_work_for_a_while() {
        let mut conditions = GpuConditions::new(Vec::new(), SECOND * 60);
        let (well, mut lost) = (node(2), node(2));
        lost.gpus[0].not_sliceable = Some("GPU is lost".into());
        let mut seen = |view: &NodeView, at: u32| {
            conditions.observe(view, |_| true, SECOND * at);
            ailment(&conditions)
        };
        assert_eq!(seen(&well, 0), None);
        assert_eq!(seen(&lost, 1), Some("unusable"));
        assert_eq!(seen(&well, 2), Some("recovers"));
        assert_eq!(seen(&well, 61), Some("recovers"));
        assert_eq!(seen(&well, 62), None);
        let gone = NodeView { gpus: vec![well.gpus[1].clone()], ..well.clone() };
        assert_eq!(seen(&gone, 63), Some("gone"));
        assert_eq!(seen(&well, 121), Some("recovers"));
        assert_eq!(seen(&NodeView { gpus: Vec::new(), ..well.clone() }, 122), Some("recovers"));
    }

    #[test]
    fn faults_of_programs_and_ignored_ones_do_not_count() {
        let mut view = node(1);
        let fault = |xid| Fault { xid: Xid::new(xid), since_unix_ms: 0, count: 1 };
        let seen = |view: &NodeView| {
            let mut conditions = GpuConditions::new(vec![48], SECOND);
            conditions.observe(view, |_| true, SECOND);
            conditions.gpus().next().and_then(|(_, ailment)| ailment.map(|one| one.taint("d", false)))
        };
        view.gpus[0].faults = vec![fault(13), fault(48)];
        assert_eq!(seen(&view), None);
        view.gpus[0].faults.push(fault(79));
        let taint = seen(&view).unwrap();
        assert_eq!((taint.key.as_str(), taint.value.as_deref()), ("d/fault", Some("79")));
        assert_eq!(taint.effect, "NoSchedule");
    }

    #[test]
    fn words_of_loss_are_of_what_keeps_claims_from_working() {
        let all = [
            Ailment::Gone,
            Ailment::Unusable(String::new()),
            Ailment::Fault(Xid::new(79)),
            Ailment::Recovers,
            Ailment::Cordoned(String::new()),
            Ailment::Strangers(1),
        ];
        for ailment in all {
            assert_eq!(
                Ailment::OF_LOSS.contains(&ailment.word()),
                !ailment.leaves_claims_alone(),
                "{ailment:?}"
            );
        }
    }

    #[test]
    fn only_gpus_of_the_driver_are_kept() {
        let mut conditions = GpuConditions::new(Vec::new(), SECOND);
        conditions.observe(&node(3), |gpu| gpu.index == 1, SECOND);
        assert_eq!(conditions.gpus().map(|(gpu, _)| gpu.index).collect::<Vec<_>>(), [1]);
    }
}
