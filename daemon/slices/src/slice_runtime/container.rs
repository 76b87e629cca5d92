//! Binding of a slice to a container.
//!
//! The socket in the folder that a container mounts admits its processes. The first container to attach has the slice
//! from then on; another one with the same folder is rejected while processes of the first are alive. The binding is
//! written to disk before it takes effect, for the next daemon.

use super::{Accounting, SliceRuntime};
use crate::container::{self, Container};

/// Rejection: another container uses the slice, or the binding could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InUse;

impl SliceRuntime {
    /// Container that uses the slice, or did last.
    pub fn container(&self) -> Option<Container> {
        self.accounting().binding.container.clone()
    }

    /// Returns true if processes of a container are in the slice.
    pub fn is_in_container(&self) -> bool {
        let accounting = self.accounting();
        accounting.binding.container.is_some() && accounting.has_live_process()
    }
}

impl Accounting {
    /// Binds the slice to a container, unless processes of another are alive. Ended processes do not count, although
    /// their memory may not be free yet: it stays charged.
    pub(super) fn bind_to(&mut self, container: Container) -> Result<(), InUse> {
        if self.binding.container.as_ref() == Some(&container) {
            return Ok(());
        }
        if self.binding.container.is_some() && self.has_live_process() {
            return Err(InUse);
        }
        if let Err(error) = container::write(&self.binding.directory, &container) {
            tracing::error!(%container, %error, "cannot write down whose container a slice is; it gets none");
            return Err(InUse);
        }
        tracing::info!(%container, "has the slice from now on");
        self.binding.container = Some(container);
        Ok(())
    }

    /// Returns true if a root or attached process is alive.
    fn has_live_process(&self) -> bool {
        let here = self.life.occupants().map(|here| here.roots.iter().chain(here.members.values()));
        let handles = here.into_iter().flatten().filter_map(|id| self.handles.get(id));
        handles.into_iter().any(|process| process.is_alive())
    }
}
