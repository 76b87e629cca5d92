//! Values in a slice's pages that no correct process writes, as found since the audit last took them.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tranche_domain::slice::ProcessId;
use tranche_domain::truth::Deceit;

/// Violations found since the last call: the last of each kind and process.
/// Tenants therefore cannot fill the map.
#[derive(Debug, Default)]
pub(super) struct RecentViolations(Mutex<BTreeMap<(Option<ProcessId>, u8), Deceit>>);

impl RecentViolations {
    pub(super) fn add(&self, who: Option<ProcessId>, what: Deceit) {
        let kind = match what {
            Deceit::Credit { .. } => 0,
            Deceit::Use { .. } => 1,
            Deceit::Header => 2,
            Deceit::Time => 3,
        };
        self.0.lock().expect("nothing panics while it holds what was found").insert((who, kind), what);
    }

    pub(super) fn take(&self) -> BTreeMap<(Option<ProcessId>, u8), Deceit> {
        std::mem::take(&mut self.0.lock().expect("nothing panics while it holds what was found"))
    }
}
