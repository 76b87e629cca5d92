//! Calls of operators that concern GPUs.

use std::time::Duration;

use tranche_domain::cordon::{Cordoned, Reason};
use tranche_domain::id::GpuSelector;
use tranche_domain::view::RemainingView;
use tranche_rpc::v1;

use super::{Daemon, call};
use crate::errors::Failure;
use crate::when;

/// Parameters of a drain.
#[derive(Clone, Debug)]
pub struct DrainTerms {
    /// Reason for the cordon, shown to users.
    pub reason: Option<Reason>,
    /// True to park slices that can be, before anything else.
    pub park: bool,
    /// Time for slices and processes to end by themselves; `None` is unlimited.
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL; `None` kills nothing.
    pub grace: Option<Duration>,
}

/// Result of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Slices that were parked.
    pub parked: Vec<String>,
    /// Slices that were deleted by force.
    pub deleted: Vec<String>,
}

impl Daemon {
    /// Cordons GPUs, and returns them with reason and time.
    pub fn cordon(&mut self, gpus: &[GpuSelector], reason: Option<Reason>) -> Result<Vec<Cordoned>, Failure> {
        let message = v1::CordonGpusRequest { gpus: texts(gpus), reason: reason.map(String::from) };
        read(call!(self, self.node.clone(), cordon_gpus, message)?)
    }

    /// Uncordons GPUs, and returns them.
    pub fn uncordon(&mut self, gpus: &[GpuSelector]) -> Result<Vec<Cordoned>, Failure> {
        let message = v1::UncordonGpusRequest { gpus: texts(gpus) };
        read(call!(self, self.node.clone(), uncordon_gpus, message)?)
    }

    /// Cordons GPUs and waits until they are empty; passes the remaining slices to `hear` on each change.
    pub fn drain(
        &mut self,
        gpus: &[GpuSelector],
        terms: DrainTerms,
        mut hear: impl FnMut(&[RemainingView]),
    ) -> Result<Drained, Failure> {
        let message = v1::DrainGpusRequest {
            gpus: texts(gpus),
            reason: terms.reason.map(String::from),
            timeout_ms: terms.timeout.map(when::millis),
            delete_slices: terms.grace.is_some(),
            grace_ms: terms.grace.map(when::millis).unwrap_or_default(),
            park: terms.park,
        };
        let mut told = call!(self, self.node.clone(), drain_gpus, message)?;
        let mut drained = Drained::default();
        self.each(&mut told, Duration::MAX, |progress| {
            (drained.parked, drained.deleted) = (progress.parked, progress.deleted);
            let remaining: Result<Vec<_>, _> =
                progress.remaining.into_iter().map(TryInto::try_into).collect();
            hear(&remaining?);
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        Ok(drained)
    }
}

fn read(view: v1::CordonsView) -> Result<Vec<Cordoned>, Failure> {
    Ok(view.gpus.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?)
}

fn texts(gpus: &[GpuSelector]) -> Vec<String> {
    gpus.iter().map(ToString::to_string).collect()
}
