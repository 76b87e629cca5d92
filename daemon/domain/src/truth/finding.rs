//! Findings of the audit, with the events for them.

use alloc::string::String;
use core::time::Duration;

use crate::event::{EventCause, EventKind, Happening};
use crate::id::{GpuUuid, SliceName};
use crate::slice::ProcessId;
use crate::units::Bytes;

/// Time for which tampering stays reported, and a slice mistrusted, after the last observation.
pub(super) const REMEMBERED: Duration = Duration::from_secs(60);

/// Key of a finding: repeated observations with the same key are one finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FindingKey {
    /// Kind of the violation.
    pub kind: EventKind,
    /// The slice that it is about, if any.
    pub slice: Option<SliceName>,
    /// The GPU that it is about, if any.
    pub gpu: Option<GpuUuid>,
    /// The process, where findings are made for each process.
    pub whose: Option<ProcessId>,
}

/// A violation that lasted longer than the doubt about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Kind and offender, by which it is found again.
    pub subject: FindingKey,
    /// Offending process, if identified.
    pub who: Option<ProcessId>,
    /// Evidence, as a sentence.
    pub evidence: String,
    /// Memory held beyond the charge: the minimum of the last observations.
    pub excess: Bytes,
}

impl Finding {
    /// Event for the finding.
    pub fn told(&self) -> Happening {
        self.happening(self.subject.kind.clone(), self.evidence.clone())
    }

    /// Event for the end of the finding.
    pub fn told_over(&self) -> Happening {
        self.happening(EventKind::Cleared, alloc::format!("{} no more: {}", self.subject.kind, self.evidence))
    }

    /// Event for killing all processes of the slice.
    pub fn told_ended(&self) -> Happening {
        let why = alloc::format!(
            "all its processes, as one after the other commits the same and `violations` says so: {}, {}",
            self.subject.kind,
            self.evidence
        );
        Happening { pid: None, ..self.happening(EventKind::Killed, why) }.caused_by(EventCause::Violation)
    }

    /// Event for killing the process.
    pub fn told_killed(&self) -> Happening {
        let why = alloc::format!("{}, and `violations` says so: {}", self.subject.kind, self.evidence);
        self.happening(EventKind::Killed, why).caused_by(EventCause::Violation)
    }

    fn happening(&self, kind: EventKind, evidence: String) -> Happening {
        let FindingKey { slice, gpu, .. } = self.subject.clone();
        Happening { slice, gpu, pid: self.who.map(|who| who.pid), ..Happening::new(kind, evidence) }
    }
}
