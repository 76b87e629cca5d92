//! Binding of a slice to containers.
//!
//! The socket in the folder that a container mounts admits its processes. The first container to attach has the slice
//! from then on; another one with the same folder is rejected while processes of the first are alive, unless the slice
//! is for several. The binding is written to disk before it takes effect, for the next daemon.

use std::collections::BTreeMap;
use std::sync::Arc;

use tranche_domain::slice::ProcessId;
use tranche_linux::process::Process;

use super::{Accounting, SliceRuntime};
use crate::container::{self, Container};

/// Rejection: another container uses the slice, or the binding could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InUse;

impl SliceRuntime {
    /// Containers that use the slice, or did last.
    pub fn containers(&self) -> Vec<Container> {
        self.accounting().binding.containers.clone()
    }

    /// Returns true if processes of a container are in the slice.
    pub fn is_in_container(&self) -> bool {
        let accounting = self.accounting();
        !accounting.binding.containers.is_empty() && accounting.live_processes().next().is_some()
    }
}

impl Accounting {
    /// Binds the slice to a container, unless it is for one and processes of another are alive. Ended processes do not
    /// count, although their memory may not be free yet: it stays charged.
    pub(super) fn bind_to(&mut self, container: Container) -> Result<(), InUse> {
        if self.binding.containers.contains(&container) {
            return Ok(());
        }
        let mut containers = self.containers_in_use();
        if !containers.is_empty() && !self.binding.several {
            return Err(InUse);
        }
        containers.push(container.clone());
        if let Err(error) = container::write(&self.binding.directory, &containers) {
            tracing::error!(%container, %error, "cannot write down whose container a slice is; it gets none");
            return Err(InUse);
        }
        tracing::info!(%container, "has the slice from now on");
        self.binding.containers = containers;
        Ok(())
    }

    /// Bound containers that have a live process in the slice. The only one has all of the slice's live processes.
    fn containers_in_use(&self) -> Vec<Container> {
        let mut bound = self.binding.containers.clone();
        if !self.binding.several {
            bound.retain(|_| self.live_processes().next().is_some());
            return bound;
        }
        let in_use: Vec<_> =
            self.live_processes().filter_map(|process| Container::of(process.id.pid)).collect();
        bound.retain(|container| in_use.contains(container));
        bound
    }

    /// Root and attached processes that are alive.
    fn live_processes(&self) -> impl Iterator<Item = &Arc<Process>> {
        let here = self.life.occupants().map(|here| here.roots.iter().chain(here.members.values()));
        let handles: &BTreeMap<ProcessId, Arc<Process>> = &self.handles;
        here.into_iter().flatten().filter_map(|id| handles.get(id)).filter(|process| process.is_alive())
    }
}
