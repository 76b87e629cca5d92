//! Current findings of the audit, and what follows from them for operators and placement.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use tranche_domain::event::EventKind;
use tranche_domain::id::GpuUuid;
use tranche_domain::slice::ProcessId;
use tranche_domain::truth::{Finding, Truth, ViolationPolicy};

/// Number of findings that are listed individually.
const SHOWN: usize = 16;

/// The audit's findings and the measures taken for them.
#[derive(Debug)]
pub(crate) struct Audit {
    findings: Mutex<Findings>,
    pub(super) begun: Instant,
    /// True if a GPU that a foreign process uses takes no slices.
    pub(super) refuses_foreign: bool,
}

#[derive(Debug)]
pub(super) struct Findings {
    pub(super) truth: Truth,
    /// Processes that were killed and are still found.
    pub(super) killed: BTreeSet<ProcessId>,
}

impl Audit {
    pub(crate) fn new(violations: ViolationPolicy, refuses_foreign: bool) -> Self {
        let findings = Findings { truth: Truth::new(violations), killed: BTreeSet::new() };
        Self { findings: Mutex::new(findings), begun: Instant::now(), refuses_foreign }
    }

    pub(super) fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().expect("nothing panics while it holds the findings")
    }

    /// Current findings, as sentences for the operator.
    pub(crate) fn notes(&self) -> Vec<String> {
        let findings = self.findings();
        let mut notes: Vec<String> = findings.truth.standing().take(SHOWN).map(sentence).collect();
        let rest = findings.truth.standing().count().saturating_sub(SHOWN);
        notes.extend((rest > 0).then(|| format!("and {rest} more findings: `tranche events` has them all")));
        notes
    }

    /// Reason why foreign processes keep a GPU from taking slices, if they do.
    pub(crate) fn obstacle(&self, gpu: GpuUuid) -> Option<String> {
        if !self.refuses_foreign {
            return None;
        }
        let findings = self.findings();
        let is_foreign = |finding: &&Finding| {
            finding.subject.kind == EventKind::ForeignProcess && finding.subject.gpu == Some(gpu)
        };
        let pids = findings.truth.standing().filter(is_foreign).filter_map(|finding| finding.who);
        let pids: Vec<String> = pids.map(|who| who.pid.to_string()).collect();
        (!pids.is_empty()).then(|| {
            format!("processes that are in no slice use it ({}), and `foreigners` says that it is not shared with them", pids.join(", "))
        })
    }
}

fn sentence(finding: &Finding) -> String {
    let of = finding.subject.slice.as_ref().map(|slice| format!(" of slice {slice}"));
    let who = finding.who.map(|who| format!(" process {}", who.pid));
    let of = of.unwrap_or_default();
    format!("{}:{}{of}: {}", finding.subject.kind, who.unwrap_or_default(), finding.evidence)
}
