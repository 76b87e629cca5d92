//! To which slice a process belongs, by its ancestors or its container, whether or not it joined.

use std::collections::BTreeMap;
use std::sync::Arc;

use tranche_domain::id::HostPid;
use tranche_domain::slice::ProcessId;

use crate::containers::identity::Container;
use crate::process;
use crate::tenancy::Tenancy;

/// Who is known to belong where.
pub(super) struct Kin {
    known: BTreeMap<ProcessId, Arc<Tenancy>>,
    containers: Vec<(Container, Arc<Tenancy>)>,
}

/// To whom a process belongs that joined no slice.
pub(super) enum Kinship {
    /// To this slice.
    Of(Arc<Tenancy>),
    /// To us: the daemon measures what contexts cost in a child of its own.
    Ours,
    /// To nobody.
    None,
}

impl Kin {
    pub(super) fn of(tenancies: &[Arc<Tenancy>]) -> Self {
        let everybody = |tenancy: &Arc<Tenancy>| {
            let (here, tenancy) = (tenancy.occupants(), Arc::clone(tenancy));
            let ids = here.roots.into_iter().chain(here.members.into_values());
            ids.map(move |id| (id, Arc::clone(&tenancy))).collect::<Vec<_>>()
        };
        let container = |tenancy: &Arc<Tenancy>| Some((tenancy.container()?, Arc::clone(tenancy)));
        Self {
            known: tenancies.iter().flat_map(everybody).collect(),
            containers: tenancies.iter().filter_map(container).collect(),
        }
    }

    /// Who has that pid now, and to whom it belongs; nothing if it has ended.
    pub(super) fn find(&self, pid: HostPid) -> Option<(ProcessId, Kinship)> {
        let line: Vec<ProcessId> = process::ancestry(pid).collect();
        let id = *line.first()?;
        let ours = HostPid::new(std::process::id());
        if line.iter().any(|ancestor| ancestor.pid == ours) {
            return Some((id, Kinship::Ours));
        }
        let of_ancestors = line.iter().find_map(|ancestor| self.known.get(ancestor));
        let kinship = of_ancestors.or_else(|| self.of_container(pid)).cloned();
        Some((id, kinship.map_or(Kinship::None, Kinship::Of)))
    }

    /// Processes that belong to a slice now, by their ancestors or its container, whether or not they joined.
    pub(super) fn all_of(&self, tenancy: &Arc<Tenancy>) -> Vec<ProcessId> {
        let pids = process::all().into_iter().filter_map(|pid| match self.find(pid)? {
            (id, Kinship::Of(its)) if Arc::ptr_eq(&its, tenancy) => Some(id),
            _ => None,
        });
        pids.collect()
    }

    fn of_container(&self, pid: HostPid) -> Option<&Arc<Tenancy>> {
        // Most nodes have slices in no containers, and then nobody's has to be read.
        let container = (!self.containers.is_empty()).then(|| Container::of(pid)).flatten()?;
        self.containers.iter().find(|(known, _)| *known == container).map(|(_, tenancy)| tenancy)
    }
}
