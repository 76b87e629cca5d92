//! Calls of operators that concern GPUs.

use std::time::Duration;

use tranche_domain::cordon::{Cordoned, Reason};
use tranche_domain::id::GpuSelector;
use tranche_domain::view::RemainingView;
use tranche_rpc::v1;

use super::{Daemon, call};
use crate::errors::Failure;

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
    /// Returns the last message, with the slices that were parked and deleted.
    pub fn drain(
        &mut self,
        request: v1::DrainGpusRequest,
        mut hear: impl FnMut(&[RemainingView]),
    ) -> Result<v1::DrainProgress, Failure> {
        let mut told = call!(self, self.node.clone(), drain_gpus, request)?;
        let mut last = v1::DrainProgress::default();
        self.each(&mut told, Duration::MAX, |progress| {
            last.clone_from(&progress);
            let remaining: Result<Vec<_>, _> =
                progress.remaining.into_iter().map(TryInto::try_into).collect();
            hear(&remaining?);
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        Ok(last)
    }
}

fn read(view: v1::CordonsView) -> Result<Vec<Cordoned>, Failure> {
    Ok(view.gpus.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?)
}

fn texts(gpus: &[GpuSelector]) -> Vec<String> {
    gpus.iter().map(ToString::to_string).collect()
}
