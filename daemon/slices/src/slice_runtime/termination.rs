//! Termination of a slice's processes, by pidfd, so that a reused pid is never signalled.

use std::sync::{Arc, MutexGuard};

use tranche_domain::id::HostPid;
use tranche_domain::slice::{ProcessId, Seat};
use tranche_domain::units::Bytes;
use tranche_linux::process::Process;
use tranche_shm::DeviceSlot;

use super::SliceRuntime;

impl SliceRuntime {
    /// The process that holds most on a device where the slice is over its cap, to be killed. None while an earlier one
    /// is there, or another process of the slice is exiting.
    pub fn condemn_largest(&self) -> Option<Arc<Process>> {
        let mut condemned = self.condemned();
        let still_here = |id: ProcessId| self.occupants().members.values().any(|member| *member == id);
        if condemned.is_some_and(still_here) || !self.ended_processes().is_empty() {
            return None;
        }
        let over = |device: &DeviceSlot| self.common_charges(*device).over > Bytes::ZERO;
        let device = self.devices().map(|(device, _)| device).find(over)?;
        let accounting = self.accounting();
        let ledger = &accounting.ledgers[device.index()];
        let holds =
            |(seat, _): &(Seat, ProcessId)| ledger.granted(*seat).saturating_add(ledger.beyond(*seat));
        let process = accounting.handles.get(&accounting.members().max_by_key(holds)?.1)?;
        *condemned = Some(process.id);
        Some(Arc::clone(process))
    }

    /// Takes [`SliceRuntime::condemn_largest`] back: its process was not killed.
    pub fn spare(&self) {
        *self.condemned() = None;
    }

    fn condemned(&self) -> MutexGuard<'_, Option<ProcessId>> {
        self.condemned.lock().expect("nothing panics while it holds the condemned")
    }

    /// Kills all processes of the slice; returns their pids.
    pub fn kill_all(&self) -> Vec<HostPid> {
        let accounting = self.accounting();
        let killed = accounting.handles.values().filter(|process| match process.kill() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(slice = %self.name, pid = %process.id.pid, %error, "cannot kill");
                false
            }
        });
        killed.map(|process| process.id.pid).collect()
    }
}
