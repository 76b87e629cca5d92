//! Attribution of processes to slices, by ancestry or container, whether or not they have attached.

use std::collections::BTreeMap;
use std::sync::Arc;

use tranche_domain::id::HostPid;
use tranche_domain::slice::ProcessId;

use tranche_linux::process;
use tranche_slices::container::Container;
use tranche_slices::slice_runtime::SliceRuntime;

/// Processes and containers known to belong to slices.
pub(crate) struct Attribution {
    known: BTreeMap<ProcessId, Arc<SliceRuntime>>,
    containers: Vec<(Container, Arc<SliceRuntime>)>,
}

/// Owner of a process that has not attached to a slice.
pub(crate) enum ProcessOwner {
    /// The slice of its ancestors or its container.
    Slice(Arc<SliceRuntime>),
    /// The daemon: it measures the cost of contexts in a child process.
    Daemon,
    /// No slice and not the daemon: a foreign process.
    None,
}

impl Attribution {
    pub(crate) fn of(runtimes: &[Arc<SliceRuntime>]) -> Self {
        let processes_of = |runtime: &Arc<SliceRuntime>| {
            let (here, runtime) = (runtime.occupants(), Arc::clone(runtime));
            let ids = here.roots.into_iter().chain(here.members.into_values());
            ids.map(move |id| (id, Arc::clone(&runtime))).collect::<Vec<_>>()
        };
        let containers_of = |runtime: &Arc<SliceRuntime>| {
            let runtime = Arc::clone(runtime);
            runtime.containers().into_iter().map(move |container| (container, Arc::clone(&runtime)))
        };
        Self {
            known: runtimes.iter().flat_map(processes_of).collect(),
            containers: runtimes.iter().flat_map(containers_of).collect(),
        }
    }

    /// Identifies the process that has this pid now, and its owner; `None` if it has ended.
    pub(crate) fn find(&self, pid: HostPid) -> Option<(ProcessId, ProcessOwner)> {
        let line: Vec<ProcessId> = process::ancestry(pid).collect();
        let id = *line.first()?;
        let daemon = HostPid::new(std::process::id());
        if line.iter().any(|ancestor| ancestor.pid == daemon) {
            return Some((id, ProcessOwner::Daemon));
        }
        let of_ancestors = line.iter().find_map(|ancestor| self.known.get(ancestor));
        let owner = of_ancestors.or_else(|| self.of_container(pid)).cloned();
        Some((id, owner.map_or(ProcessOwner::None, ProcessOwner::Slice)))
    }

    /// Processes that belong to a slice now, whether or not they have attached.
    pub(crate) fn all_of(&self, runtime: &Arc<SliceRuntime>) -> Vec<ProcessId> {
        let pids = process::all().into_iter().filter_map(|pid| match self.find(pid)? {
            (id, ProcessOwner::Slice(its)) if Arc::ptr_eq(&its, runtime) => Some(id),
            _ => None,
        });
        pids.collect()
    }

    fn of_container(&self, pid: HostPid) -> Option<&Arc<SliceRuntime>> {
        // Most nodes have no slices in containers; then no cgroup file needs to be read.
        let container = (!self.containers.is_empty()).then(|| Container::of(pid)).flatten()?;
        self.containers.iter().find(|(known, _)| *known == container).map(|(_, runtime)| runtime)
    }
}
