//! Offences by slice, which outlive the processes that commit them.
//!
//! An offending process that is replaced, by `fork`, by `exec` or by a loop that starts it again, is a new process each
//! time. Offences are counted for the slice (or for the GPU, if the process is in no slice), so that
//! a grace once begun continues, and lives too short to be found one by one add up.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use super::finding::{Finding, FindingKey, REMEMBERED};
use super::rules::Doubt;
use crate::event::EventKind;
use crate::id::{GpuUuid, SliceName};
use crate::slice::ProcessId;

/// Time in which one sighting leaks away.
pub(super) const LEAK: Duration = Duration::from_secs(8);
/// Most sightings that are held, so that a slice that stops is soon clear.
const FULL: u32 = 6;
/// Most processes that are remembered one by one.
const MOST_SEEN: usize = 64;
/// Processes of a slice that are killed one by one within a spell.
///
/// With the next one the whole slice is ended.
pub(super) const ONE_BY_ONE: usize = 3;

/// Commits offences of one kind: a slice, or processes in no slice on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Offender {
    kind: EventKind,
    slice: Option<SliceName>,
    gpu: Option<GpuUuid>,
}

impl Offender {
    pub(super) fn of(subject: &FindingKey) -> Self {
        let gpu = if subject.slice.is_none() { subject.gpu } else { None };
        Self { kind: subject.kind.clone(), slice: subject.slice.clone(), gpu }
    }

    /// Subject of a finding about the offender, whichever its processes are.
    pub(super) fn subject(&self) -> FindingKey {
        FindingKey { kind: self.kind.clone(), slice: self.slice.clone(), gpu: self.gpu, whose: None }
    }

    /// Sightings beyond which processes that come and go are a finding.
    ///
    /// `None` where each process is found by itself at once.
    const fn patience(&self) -> Option<u32> {
        match self.kind {
            // A process that joined its slice is known before the driver lists it: there is no race to wait for.
            EventKind::UnshimmedProcess | EventKind::ForeignProcess => Some(1),
            EventKind::UnderReported => Some(3),
            _ => None,
        }
    }

    /// Time in which the same process is sighted once. What it holds may be out of date at any single look.
    const fn again(&self) -> Duration {
        match self.kind {
            EventKind::UnderReported => LEAK,
            _ => Duration::ZERO,
        }
    }
}

/// Offences of one offender.
#[derive(Clone, Debug, Default)]
struct OffenceRecord {
    /// Leaky bucket, of [`LEAK`] for each sighting.
    level: Duration,
    /// Time of the last sighting.
    last: Duration,
    /// Beginning of the spell: first finding since the last long time without a sighting.
    found: Option<Duration>,
    /// Last sighting of each process.
    seen: BTreeMap<ProcessId, Duration>,
    /// Killed in this spell.
    condemned: BTreeSet<ProcessId>,
    evidence: String,
}

/// Offences of all slices and GPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    records: BTreeMap<Offender, OffenceRecord>,
    looked: Duration,
}

impl Records {
    pub(super) const fn new() -> Self {
        Self { records: BTreeMap::new(), looked: Duration::ZERO }
    }

    /// Enters what was seen at a look.
    pub(super) fn enter(&mut self, seen: &BTreeMap<FindingKey, Doubt>, now: Duration) {
        let passed = now.saturating_sub(self.looked);
        self.looked = now;
        self.records.retain(|_, record| now.saturating_sub(record.last) < REMEMBERED);
        for record in self.records.values_mut() {
            record.level = record.level.saturating_sub(passed);
        }
        let mut sighted = BTreeSet::new();
        for (subject, doubt) in seen {
            let offender = Offender::of(subject);
            let record = self.records.entry(offender.clone()).or_default();
            record.last = now;
            record.evidence.clone_from(&doubt.evidence);
            if record.sees(subject.whose, now, offender.again()) {
                sighted.insert(offender);
            }
        }
        for offender in sighted {
            if let Some(record) = self.records.get_mut(&offender) {
                record.level = record.level.saturating_add(LEAK).min(LEAK.saturating_mul(FULL));
            }
        }
    }

    /// Doubts about processes that come and go, for offenders without a process found by itself.
    ///
    /// Also findings that stand already, until all sightings have leaked away.
    pub(super) fn amount(&self, stands: impl Fn(&Offender) -> bool) -> BTreeMap<FindingKey, Doubt> {
        let doubt = |(offender, record): (&Offender, &OffenceRecord)| {
            let most = LEAK.saturating_mul(offender.patience()?);
            let holds = record.level > most || record.level > Duration::ZERO && stands(offender);
            holds.then(|| (offender.subject(), record.doubt()))
        };
        self.records.iter().filter_map(doubt).collect()
    }

    /// Enters that an offence is a finding.
    pub(super) fn found(&mut self, subject: &FindingKey, now: Duration) {
        let record = self.records.entry(Offender::of(subject)).or_default();
        record.found.get_or_insert(now);
        record.last = record.last.max(now);
    }

    /// Time since the spell of an offender began.
    pub(super) fn known_for(&self, offender: &Offender, now: Duration) -> Option<Duration> {
        Some(now.saturating_sub(self.records.get(offender)?.found?))
    }

    /// Enters the kill of a process; returns true if the number of kills ends the whole slice.
    pub(super) fn condemn(&mut self, finding: &Finding) -> bool {
        let (Some(who), Some(record)) = (finding.who, self.records.get_mut(&Offender::of(&finding.subject)))
        else {
            return false;
        };
        if record.condemned.len() <= ONE_BY_ONE {
            record.condemned.insert(who);
        }
        record.condemned.len() > ONE_BY_ONE
    }

    /// Tests if something was seen a moment ago that may come again: it is looked for often.
    pub(super) fn is_alert(&self) -> bool {
        self.records
            .iter()
            .any(|(offender, record)| offender.patience().is_some() && record.level > Duration::ZERO)
    }
}

impl OffenceRecord {
    /// Enters a sighting; returns true if it counts.
    fn sees(&mut self, who: Option<ProcessId>, now: Duration, again: Duration) -> bool {
        let Some(who) = who else { return false };
        if self.seen.get(&who).is_some_and(|last| !again.is_zero() && now.saturating_sub(*last) < again) {
            return false;
        }
        if self.seen.len() >= MOST_SEEN && !self.seen.contains_key(&who) {
            let oldest = self.seen.iter().min_by_key(|(_, last)| **last).map(|(id, _)| *id);
            oldest.map(|id| self.seen.remove(&id));
        }
        self.seen.insert(who, now);
        true
    }

    fn doubt(&self) -> Doubt {
        let since = self.last.saturating_sub(REMEMBERED);
        let recent = self.seen.iter().filter(|(_, last)| **last >= since);
        let pids: BTreeSet<_> = recent.map(|(id, _)| id.pid).collect();
        let shown: alloc::vec::Vec<String> = pids.iter().rev().take(8).map(|pid| format!("{pid}")).collect();
        let evidence = format!(
            "{} processes that come and go ({}{}); the last: {}",
            pids.len(),
            shown.join(", "),
            if pids.len() > shown.len() { ", ..." } else { "" },
            self.evidence
        );
        Doubt { patience: 1, ..Doubt::new(evidence) }
    }
}
