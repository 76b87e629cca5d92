//! Processes of a slice that is to leave its GPUs, and the hold on new memory while it is away.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tranche_domain::id::HostPid;
use tranche_domain::slice::{ProcessId, Seat};
use tranche_domain::units::Bytes;
use tranche_shm::compute::Tally;
use tranche_shm::parking::Hindrance;

use super::{Accounting, AttachedProcess, SliceRuntime, slot};
use tranche_linux::process::Process;

/// Reason for which a slice cannot leave its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unparkable {
    /// A process of the slice uses what the driver does not checkpoint.
    Hindered(HostPid, Hindrance),
    /// The library of a process does not report what it uses.
    Unreported(HostPid),
    /// A process has ended, and its memory is not free yet.
    Exiting(HostPid),
    /// Processes of the slice hold memory in common.
    Shared,
}

impl fmt::Display for Unparkable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hindered(pid, hindrance) => {
                let what = match hindrance {
                    Hindrance::Managed => "managed memory (cuMemAllocManaged)",
                    Hindrance::Ipc => "memory of other processes, or that others opened (cuIpcGetMemHandle)",
                    Hindrance::Multicast => "multicast objects (cuMulticastCreate)",
                    Hindrance::Shareable => {
                        "memory exported or imported by handle (cuMemExportToShareableHandle)"
                    }
                    Hindrance::Pool => "memory pools of several processes (cuMemPoolExportPointer)",
                    Hindrance::External => "memory of another interface (cuImportExternalMemory)",
                };
                write!(f, "process {pid} has used {what}, which the driver does not checkpoint")
            }
            Self::Unreported(pid) => {
                write!(f, "process {pid} has a shim that does not report what it uses: start it again")
            }
            Self::Exiting(pid) => {
                write!(f, "process {pid} has ended, and its memory is not free yet: try again")
            }
            Self::Shared => {
                f.write_str("its processes hold memory in common, which the driver does not checkpoint")
            }
        }
    }
}

/// An attached process with its handle, and what it was granted on all devices together.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its slot, pid and start time.
    pub member: AttachedProcess,
    /// Handle that stays this process's.
    pub process: Arc<Process>,
    /// Granted memory, used or not.
    pub granted: Bytes,
}

impl SliceRuntime {
    /// Attached processes, if all of them can be checkpointed by what they report.
    ///
    /// # Errors
    /// See [`Unparkable`].
    pub fn candidates(&self) -> Result<Vec<Candidate>, Unparkable> {
        let accounting = self.accounting();
        let candidates = accounting.members().map(|(seat, id)| self.candidate(&accounting, seat, id));
        let candidates = candidates.collect::<Result<Vec<_>, _>>()?;
        if accounting.ledgers.iter().any(|ledger| ledger.common() > Bytes::ZERO) {
            return Err(Unparkable::Shared);
        }
        Ok(candidates)
    }

    /// Those attached processes that can be checkpointed by what each reports.
    pub fn each_candidate(&self) -> Vec<Candidate> {
        let accounting = self.accounting();
        let candidates = accounting.members().map(|(seat, id)| self.candidate(&accounting, seat, id));
        candidates.filter_map(Result::ok).collect()
    }

    fn candidate(&self, accounting: &Accounting, seat: Seat, id: ProcessId) -> Result<Candidate, Unparkable> {
        let process = accounting.handles.get(&id).filter(|_| !accounting.exiting.contains_key(&id));
        let process = Arc::clone(process.ok_or(Unparkable::Exiting(id.pid))?);
        let reported = self.regions.usage().hindrances(slot(seat)).load();
        if !reported.are_reported() || reported.has_unknown() {
            return Err(Unparkable::Unreported(id.pid));
        }
        if let Some(hindrance) = reported.iter().next() {
            return Err(Unparkable::Hindered(id.pid, hindrance));
        }
        let granted =
            accounting.ledgers.iter().map(|ledger| ledger.granted(seat).saturating_add(ledger.beyond(seat)));
        Ok(Candidate { member: AttachedProcess { seat, id }, process, granted: granted.sum() })
    }

    /// Attached processes with their handles; those that have ended are left out.
    pub fn attached(&self) -> Vec<(AttachedProcess, Arc<Process>)> {
        let accounting = self.accounting();
        let attached = accounting.members().filter_map(|(seat, id)| {
            Some((AttachedProcess { seat, id }, Arc::clone(accounting.handles.get(&id)?)))
        });
        attached.collect()
    }

    /// Memory that each device's processes were granted, in the order of devices.
    pub fn granted(&self) -> Vec<Bytes> {
        let accounting = self.accounting();
        let of = |ledger: &tranche_domain::ledger::GrantLedger| {
            let held = |(seat, _)| ledger.granted(seat).saturating_add(ledger.beyond(seat));
            accounting.members().map(held).sum()
        };
        accounting.ledgers.iter().map(of).collect()
    }

    /// Holds back requests for memory from now on, or answers them again.
    pub fn hold_requests(&self, hold: bool) {
        // Under the lock that a grant takes: none is made after this.
        let _accounting = self.accounting();
        self.held_back.send_replace(hold);
    }

    /// Recalls all credit that no process uses; while requests are held back, none is granted again.
    pub fn recall_unused(&self) {
        let mut accounting = self.accounting();
        let seats = accounting.seats();
        for (device, _) in self.devices() {
            self.observe(&mut accounting, device);
            self.account(&mut accounting, device).recall_unused(seats.iter().copied());
        }
    }

    /// Returns true while requests for memory are held back.
    pub fn holds_requests(&self) -> bool {
        *self.held_back.borrow()
    }

    /// Tests if a thread of its processes waits for a GPU, or a request for memory for its reply.
    pub fn is_wanted(&self) -> bool {
        let accounting = self.accounting();
        let records = self.regions.compute();
        let waits = |(seat, _)| records.record(slot(seat)).tally(Tally::Waiting).load(Relaxed) > 0;
        accounting.members().any(waits) || self.holds_requests() && self.held_back.receiver_count() > 0
    }

    /// Waits until requests for memory are answered.
    pub(crate) async fn until_answered(&self) {
        let mut held_back = self.held_back.subscribe();
        let _ = held_back.wait_for(|hold| !hold).await; // the sender is this slice's own
    }
}
