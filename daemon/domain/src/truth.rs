//! Audit: comparison of what slices report with what driver and kernel show.
//!
//! The daemon regularly takes a [`ObservedNode`]: the processes on each GPU and their memory from the driver,
//! their slices from the kernel, and their charges from the ledger. This module compares them. Most
//! discrepancies may come from reading the sources at different times, so they count only after several
//! consecutive observations; a value that the library never writes counts at once.
//!
//! Laws: each finding has evidence in the picture, a process is killed only under the configured policy, and
//! only if pid and start time identify it as a process of a slice.

mod finding;
mod picture;
mod record;
mod rules;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::event::EventKind;
use crate::id::SliceName;
use crate::units::Bytes;

use finding::REMEMBERED;
use record::{Offender, Records};

pub use finding::{Finding, FindingKey};
pub use picture::{Charged, Deceit, GpuUser, InvalidValue, ObservedNode, OnGpu, Served, Whose};

/// Interval between observations while there is no open discrepancy.
pub const CALM: Duration = Duration::from_secs(1);
/// Interval while there is one; findings are made within two seconds of their cause.
pub const DOUBT: Duration = Duration::from_millis(250);
/// Number of observations whose minimum excess is charged.
const LOOKS: usize = 3;

/// Treatment of processes with confirmed violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationPolicy {
    /// Events and views show them.
    Report,
    /// Report, and kill the identified processes.
    Kill {
        /// Time from the finding to the kill.
        grace: Duration,
    },
}

/// Result of one observation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditOutcome {
    /// Findings of this audit.
    pub news: Vec<Finding>,
    /// Findings of earlier audits that no longer hold.
    pub over: Vec<Finding>,
    /// Findings of excess memory that were observed again; the excess may have grown.
    pub charge: Vec<Finding>,
    /// Slices that use more GPU time than they report, now or recently.
    ///
    /// With the unreported time until the finding was made; zero for earlier findings.
    pub hiding: BTreeMap<SliceName, Duration>,
    /// Slices that keep their GPUs from others without computing.
    pub hollow: BTreeSet<SliceName>,
    /// Findings with a process to kill now.
    pub kill: Vec<Finding>,
    /// Slices to end because their processes kept offending, with the last finding.
    pub end: BTreeMap<SliceName, Finding>,
    /// Time until the next observation.
    pub again: Duration,
}

/// Findings and open discrepancies.
#[derive(Clone, Debug)]
pub struct Truth {
    violations: ViolationPolicy,
    looked: Duration,
    /// Slices found to use more GPU time than they report, with the last such time.
    hid: BTreeMap<SliceName, Duration>,
    watched: BTreeMap<FindingKey, Watched>,
    records: Records,
}

#[derive(Clone, Debug)]
struct Watched {
    finding: Finding,
    /// Number of consecutive observations.
    seen: u32,
    /// GPU time used beyond the reported time, over these observations.
    unsaid: Duration,
    last: Duration,
    /// Excess memory in the last observations.
    excesses: [Bytes; LOOKS],
    /// Time at which this became a finding.
    found: Option<Duration>,
}

impl Watched {
    /// Tests if this may be a race, or the excess of a finding is still growing.
    fn is_in_doubt(&self) -> bool {
        self.found.is_none() || self.excesses.iter().any(|excess| *excess > self.finding.excess)
    }
}

impl Truth {
    /// An audit without observations.
    pub const fn new(violations: ViolationPolicy) -> Self {
        Self {
            violations,
            looked: Duration::ZERO,
            hid: BTreeMap::new(),
            watched: BTreeMap::new(),
            records: Records::new(),
        }
    }

    /// Evaluates a picture taken at `now`, a time on a monotonic clock.
    pub fn look(&mut self, picture: &ObservedNode, now: Duration) -> AuditOutcome {
        let seen = rules::doubts(picture);
        self.records.enter(&seen, now);
        let amounts = self.records.amount(|offender| stands(&self.watched, &offender.subject()));
        let visible: Vec<Finding> = seen.iter().map(|(subject, doubt)| doubt.finding(subject)).collect();
        let unsure: BTreeSet<FindingKey> = rules::unsure(picture).collect();
        let is_seen = |subject: &FindingKey| seen.contains_key(subject) || amounts.contains_key(subject);
        let over = forget(&mut self.watched, is_seen, &unsure, now);
        let mut news = Vec::new();
        for (subject, doubt) in seen {
            news.extend(self.take(subject, doubt, now));
        }
        for (subject, doubt) in amounts {
            if self.watched.contains_key(&subject) || !self.is_known(&Offender::of(&subject)) {
                news.extend(self.take(subject, doubt, now));
            }
        }
        for watched in self.watched.values().filter(|watched| watched.found.is_some() && watched.last == now)
        {
            self.records.found(&watched.finding.subject, now);
        }
        let in_doubt = self.records.is_alert() || self.watched.values().any(Watched::is_in_doubt);
        let again = if in_doubt { DOUBT } else { CALM };
        self.looked = now;
        let (charge, hiding) = (self.owed(now), self.hiding(picture, now));
        let (kill, end) = self.condemned(&visible, now);
        let found = self.standing().filter(|finding| finding.subject.kind == EventKind::GpuHeldIdle);
        let hollow = found.filter_map(|finding| finding.subject.slice.clone()).collect();
        AuditOutcome { news, over, charge, hiding, hollow, kill, end, again }
    }

    /// Tests if a finding exists for a process of the offender.
    fn is_known(&self, offender: &Offender) -> bool {
        self.watched
            .values()
            .any(|watched| watched.found.is_some() && Offender::of(&watched.finding.subject) == *offender)
    }

    /// The findings in force.
    pub fn standing(&self) -> impl Iterator<Item = &Finding> + '_ {
        self.watched.values().filter(|watched| watched.found.is_some()).map(|watched| &watched.finding)
    }

    /// Records an observation; returns the finding if this makes it one.
    fn take(&mut self, subject: FindingKey, doubt: rules::Doubt, now: Duration) -> Option<Finding> {
        let rules::Doubt { evidence, who, excess, unsaid, patience } = doubt;
        let looked = self.looked;
        let finding = Finding { subject: subject.clone(), who, evidence, excess };
        let watched = self.watched.entry(subject).or_insert_with(|| Watched {
            finding: finding.clone(),
            seen: 0,
            unsaid: Duration::ZERO,
            last: looked,
            excesses: [excess; LOOKS],
            found: None,
        });
        watched.excesses[watched.seen as usize % LOOKS] = excess;
        watched.seen = watched.seen.saturating_add(1);
        // The first observation covers on average half of the interval before it.
        let passed = now.saturating_sub(watched.last).min(CALM);
        watched.unsaid += passed * unsaid.get() / if watched.seen > 1 { 1000 } else { 2000 };
        watched.last = now;
        let least = watched.excesses.into_iter().min().unwrap_or(excess);
        watched.finding = Finding { excess: least, ..finding };
        let is_news = watched.found.is_none() && watched.seen >= patience;
        if is_news {
            watched.found = Some(now);
        }
        is_news.then(|| watched.finding.clone())
    }

    /// Excess memory of findings that were observed now.
    fn owed(&self, now: Duration) -> Vec<Finding> {
        let seen = self.watched.values().filter(|watched| watched.found.is_some() && watched.last == now);
        seen.map(|watched| &watched.finding).filter(|finding| finding.excess > Bytes::ZERO).cloned().collect()
    }

    /// Slices that hide GPU time. A slice that is charged for hidden time runs less and shows nothing for a
    /// while, so it counts as hiding for some time after.
    fn hiding(&mut self, picture: &ObservedNode, now: Duration) -> BTreeMap<SliceName, Duration> {
        let there: BTreeSet<_> =
            picture.gpus.iter().flat_map(|on| on.slices.iter().map(|served| &served.slice)).collect();
        self.hid.retain(|slice, last| there.contains(slice) && now.saturating_sub(*last) < REMEMBERED);
        let mut hiding: BTreeMap<_, _> =
            self.hid.keys().map(|slice| (slice.clone(), Duration::ZERO)).collect();
        for watched in self.watched.values().filter(|watched| watched.found.is_some()) {
            let FindingKey { kind, slice, .. } = &watched.finding.subject;
            if let (EventKind::GateBypassed, Some(slice)) = (kind, slice) {
                self.hid.insert(slice.clone(), now);
                let until_now = if watched.found == Some(now) { watched.unsaid } else { Duration::ZERO };
                let most: &mut Duration = hiding.entry(slice.clone()).or_default();
                *most = until_now.max(*most);
            }
        }
        hiding
    }

    /// Processes to kill, and slices to end. The grace belongs to the slice: it continues while one offending
    /// process follows another, and restarts only after a long time without one.
    fn condemned(
        &mut self,
        visible: &[Finding],
        now: Duration,
    ) -> (Vec<Finding>, BTreeMap<SliceName, Finding>) {
        let ViolationPolicy::Kill { grace } = self.violations else { return Default::default() };
        let is_due = |finding: &Finding| {
            let known = self.records.known_for(&Offender::of(&finding.subject), now);
            finding.who.is_some()
                && finding.subject.slice.is_some()
                && known.is_some_and(|time| time >= grace)
        };
        let found = self.watched.values().filter(|watched| watched.found.is_some());
        let mut kill: Vec<Finding> =
            found.map(|watched| watched.finding.clone()).filter(|finding| is_due(finding)).collect();
        // First observations count where one suffices, or where processes of the slice come and go.
        let is_enough = |finding: &Finding| match finding.subject.kind {
            EventKind::UnshimmedProcess => true,
            EventKind::UnderReported => stands(&self.watched, &Offender::of(&finding.subject).subject()),
            _ => false,
        };
        let first = visible.iter().filter(|finding| is_due(finding) && is_enough(finding));
        let first: Vec<Finding> =
            first.filter(|new| !kill.iter().any(|known| known.subject == new.subject)).cloned().collect();
        kill.extend(first);
        let mut end = BTreeMap::new();
        for finding in &kill {
            let is_visible = visible.iter().any(|seen| seen.subject == finding.subject);
            if let (Some(slice), true) = (&finding.subject.slice, is_visible)
                && self.records.condemn(finding)
            {
                end.insert(slice.clone(), finding.clone());
            }
        }
        (kill, end)
    }
}

/// Tests if this is a finding.
fn stands(watched: &BTreeMap<FindingKey, Watched>, subject: &FindingKey) -> bool {
    watched.get(subject).is_some_and(|watched| watched.found.is_some())
}

/// Drops discrepancies that were not observed again; returns the findings among them.
fn forget(
    watched: &mut BTreeMap<FindingKey, Watched>,
    is_seen: impl Fn(&FindingKey) -> bool,
    unsure: &BTreeSet<FindingKey>,
    now: Duration,
) -> Vec<Finding> {
    let mut over = Vec::new();
    watched.retain(|subject, watched| {
        let remembered = if subject.kind == EventKind::UsageTampered { REMEMBERED } else { Duration::ZERO };
        let kept = is_seen(subject)
            || unsure.contains(subject)
            || watched.found.is_some() && now.saturating_sub(watched.last) < remembered;
        if !kept && watched.found.is_some() {
            over.push(watched.finding.clone());
        }
        kept
    });
    over
}

#[cfg(test)]
#[path = "truth_tests.rs"]
mod tests;
