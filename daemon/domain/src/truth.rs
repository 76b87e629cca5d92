//! Whether what slices say is what the driver and the kernel see.
//!
//! From time to time the daemon draws a [`Picture`]: who uses each GPU and what he holds, as the driver says; to whom
//! he belongs, as the kernel says; what he is charged, as the ledger says. This module compares. What does not fit may
//! be a race of two clocks, so most of it counts only if it is seen several times in a row; what no honest process
//! ever writes counts at once.
//!
//! Law: nothing is found that is not in the picture, nothing is killed that the policy does not name, and nobody is
//! ever killed who is not known by pid *and* start time to belong to a slice.

mod picture;
mod record;
mod rules;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::event::{Happening, Kind};
use crate::id::{GpuUuid, SliceName};
use crate::slice::ProcessId;
use crate::units::Bytes;

use record::{Offender, Records};

pub use picture::{Charged, Deceit, Found, OnGpu, Picture, Served, User, Whose};

/// Between two looks while nothing is in doubt.
pub const CALM: Duration = Duration::from_secs(1);
/// Between two looks while something is: what is true is known within two seconds of its beginning.
pub const DOUBT: Duration = Duration::from_millis(250);
/// Of how many looks the least excess is charged.
const LOOKS: usize = 3;
/// How long it is shown that somebody deceived us, and he is not trusted, after the last time.
const REMEMBERED: Duration = Duration::from_secs(60);

/// What is done about violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violations {
    /// They are shown.
    Report,
    /// Whoever is known to commit one is killed, too.
    Kill {
        /// How long after it was found out.
        grace: Duration,
    },
}

/// What a finding is about: as long as it is found again, it is the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// What is wrong.
    pub kind: Kind,
    /// In which slice.
    pub slice: Option<SliceName>,
    /// On which GPU.
    pub gpu: Option<GpuUuid>,
    /// By whom, where that is part of what is wrong.
    pub whose: Option<ProcessId>,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub subject: Subject,
    /// Who does it, where that is known.
    pub who: Option<ProcessId>,
    /// What shows it.
    pub evidence: String,
    /// What somebody holds beyond what he is charged for, at the least that was seen in the last looks.
    pub excess: Bytes,
}

impl Finding {
    /// As an event.
    pub fn told(&self) -> Happening {
        self.happening(self.subject.kind.clone(), self.evidence.clone())
    }

    /// That it is so no more, as an event.
    pub fn told_over(&self) -> Happening {
        self.happening(Kind::Cleared, alloc::format!("{} no more: {}", self.subject.kind, self.evidence))
    }

    /// That all processes of a slice were killed for it, as an event.
    pub fn told_ended(&self) -> Happening {
        let why = alloc::format!(
            "all its processes, as one after the other commits the same and `violations` says so: {}, {}",
            self.subject.kind,
            self.evidence
        );
        Happening { pid: None, ..self.happening(Kind::Killed, why) }
    }

    /// That somebody was killed for it, as an event.
    pub fn told_killed(&self) -> Happening {
        let why = alloc::format!("{}, and `violations` says so: {}", self.subject.kind, self.evidence);
        self.happening(Kind::Killed, why)
    }

    fn happening(&self, kind: Kind, evidence: String) -> Happening {
        let Subject { slice, gpu, .. } = self.subject.clone();
        Happening { slice, gpu, pid: self.who.map(|who| who.pid), ..Happening::new(kind, evidence) }
    }
}

/// What came of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What was not known before.
    pub news: Vec<Finding>,
    /// What was known before and is so no more.
    pub over: Vec<Finding>,
    /// Who holds more than he is charged for, as long as he does: he may take more after he was found out.
    pub charge: Vec<Finding>,
    /// Which slices use more of a GPU's time than they say, or did a moment ago, and how much more until that was found:
    /// zero if it was found before.
    pub hiding: BTreeMap<SliceName, Duration>,
    /// Which slices keep their GPUs from others and compute nothing.
    pub hollow: BTreeSet<SliceName>,
    /// Whom to kill, and for what.
    pub kill: Vec<Finding>,
    /// Slices to end, of which one process after the other was to be killed, and the offence of the last.
    pub end: BTreeMap<SliceName, Finding>,
    /// How long until the next look.
    pub again: Duration,
}

/// What is found, and what is in doubt.
#[derive(Clone, Debug)]
pub struct Truth {
    violations: Violations,
    looked: Duration,
    /// Which slices were found to use more of a GPU's time than they say, and when last.
    hid: BTreeMap<SliceName, Duration>,
    watched: BTreeMap<Subject, Watched>,
    records: Records,
}

#[derive(Clone, Debug)]
struct Watched {
    finding: Finding,
    /// In how many looks it was seen without a break.
    seen: u32,
    /// What of a GPU's time was used beyond what was counted, in these looks.
    unsaid: Duration,
    last: Duration,
    /// What was held beyond, in the last looks.
    excesses: [Bytes; LOOKS],
    /// Since when it is a finding.
    found: Option<Duration>,
}

impl Watched {
    /// It may be a race, or somebody who was found out takes more and more.
    fn is_in_doubt(&self) -> bool {
        self.found.is_none() || self.excesses.iter().any(|excess| *excess > self.finding.excess)
    }
}

impl Truth {
    /// Nothing is known yet.
    pub const fn new(violations: Violations) -> Self {
        Self {
            violations,
            looked: Duration::ZERO,
            hid: BTreeMap::new(),
            watched: BTreeMap::new(),
            records: Records::new(),
        }
    }

    /// Looks at a picture that was drawn now, at a time on a clock that is never set back.
    pub fn look(&mut self, picture: &Picture, now: Duration) -> Outcome {
        let seen = rules::doubts(picture);
        self.records.enter(&seen, now);
        let amounts = self.records.amount(|offender| stands(&self.watched, &offender.subject()));
        let visible: Vec<Finding> = seen.iter().map(|(subject, doubt)| doubt.finding(subject)).collect();
        let unsure: BTreeSet<Subject> = rules::unsure(picture).collect();
        let is_seen = |subject: &Subject| seen.contains_key(subject) || amounts.contains_key(subject);
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
        let found = self.standing().filter(|finding| finding.subject.kind == Kind::GpuHeldIdle);
        let hollow = found.filter_map(|finding| finding.subject.slice.clone()).collect();
        Outcome { news, over, charge, hiding, hollow, kill, end, again }
    }

    /// Whether a process of the offender is found by itself.
    fn is_known(&self, offender: &Offender) -> bool {
        self.watched
            .values()
            .any(|watched| watched.found.is_some() && Offender::of(&watched.finding.subject) == *offender)
    }

    /// What is found to be so now.
    pub fn standing(&self) -> impl Iterator<Item = &Finding> + '_ {
        self.watched.values().filter(|watched| watched.found.is_some()).map(|watched| &watched.finding)
    }

    /// Something was seen; returns it if that makes it a finding.
    fn take(&mut self, subject: Subject, doubt: rules::Doubt, now: Duration) -> Option<Finding> {
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
        // Before it was seen first it has been so for some part of the time since the look before.
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

    /// What was found now or before, and was seen again now.
    fn owed(&self, now: Duration) -> Vec<Finding> {
        let seen = self.watched.values().filter(|watched| watched.found.is_some() && watched.last == now);
        seen.map(|watched| &watched.finding).filter(|finding| finding.excess > Bytes::ZERO).cloned().collect()
    }

    /// Whoever is charged for what it hides runs less for a while, and then there is nothing to be seen: it is taken to
    /// hide for some time after that, as long as its slice is there.
    fn hiding(&mut self, picture: &Picture, now: Duration) -> BTreeMap<SliceName, Duration> {
        let there: BTreeSet<_> =
            picture.gpus.iter().flat_map(|on| on.slices.iter().map(|served| &served.slice)).collect();
        self.hid.retain(|slice, last| there.contains(slice) && now.saturating_sub(*last) < REMEMBERED);
        let mut hiding: BTreeMap<_, _> =
            self.hid.keys().map(|slice| (slice.clone(), Duration::ZERO)).collect();
        for watched in self.watched.values().filter(|watched| watched.found.is_some()) {
            let Subject { kind, slice, .. } = &watched.finding.subject;
            if let (Kind::GateBypassed, Some(slice)) = (kind, slice) {
                self.hid.insert(slice.clone(), now);
                let until_now = if watched.found == Some(now) { watched.unsaid } else { Duration::ZERO };
                let most: &mut Duration = hiding.entry(slice.clone()).or_default();
                *most = until_now.max(*most);
            }
        }
        hiding
    }

    /// Processes to kill, and slices to end. The grace is the slice's: it runs on while one offending process follows
    /// the other, and ends only when none was seen for long.
    fn condemned(
        &mut self,
        visible: &[Finding],
        now: Duration,
    ) -> (Vec<Finding>, BTreeMap<SliceName, Finding>) {
        let Violations::Kill { grace } = self.violations else { return Default::default() };
        let is_due = |finding: &Finding| {
            let known = self.records.known_for(&Offender::of(&finding.subject), now);
            finding.who.is_some()
                && finding.subject.slice.is_some()
                && known.is_some_and(|time| time >= grace)
        };
        let found = self.watched.values().filter(|watched| watched.found.is_some());
        let mut kill: Vec<Finding> =
            found.map(|watched| watched.finding.clone()).filter(|finding| is_due(finding)).collect();
        // Those that are seen for the first time, where that is enough or processes of their slice come and go.
        let is_enough = |finding: &Finding| match finding.subject.kind {
            Kind::UnshimmedProcess => true,
            Kind::UnderReported => stands(&self.watched, &Offender::of(&finding.subject).subject()),
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

/// Whether that is a finding now.
fn stands(watched: &BTreeMap<Subject, Watched>, subject: &Subject) -> bool {
    watched.get(subject).is_some_and(|watched| watched.found.is_some())
}

/// Drops what was not seen again; returns what of it had been found.
fn forget(
    watched: &mut BTreeMap<Subject, Watched>,
    is_seen: impl Fn(&Subject) -> bool,
    unsure: &BTreeSet<Subject>,
    now: Duration,
) -> Vec<Finding> {
    let mut over = Vec::new();
    watched.retain(|subject, watched| {
        let remembered = if subject.kind == Kind::UsageTampered { REMEMBERED } else { Duration::ZERO };
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
