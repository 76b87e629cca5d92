//! UseAccount of GPU use: held, used, idle and borrowed GPU time of each holder, hour by hour.
//!
//! Times are of the job clock, so steps of the system time neither add nor remove any; the system time only selects the
//! hour. What is held is saved with the sums in one transaction, so a later daemon continues at the same instant.

mod holder;
mod holdings;
mod sums;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::jobs::{MilliGpus, ProjectName};

use crate::clock::{JobTime, Now};
pub use holder::GpuHolder;
pub(crate) use holder::{HeldPart, Holding, MeterId};
pub use sums::UseSum;

/// Length of an entry of the account in milliseconds.
pub(crate) const HOUR_MS: u64 = 3_600_000;

/// Interval of saving the account while GPUs are held; the end of a daemon loses this much use at most.
const MOST_UNSAVED: Duration = Duration::from_mins(1);

/// Maximum number of a user's holders in an hour. What further ones use is entered without their names.
const MOST_HOLDERS: usize = 1_000;

/// Hour since the Unix epoch and holder of an entry.
pub(crate) type EntryId = (u64, GpuHolder);

/// State from which a later daemon continues the account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedAccount {
    /// Time up to which use is entered.
    at: JobTime,
    holdings: Vec<(GpuHolder, Holding)>,
    meters: Vec<(MeterId, (GpuHolder, Duration))>,
}

impl SavedAccount {
    /// Time up to which use is entered.
    pub(crate) fn at(&self) -> JobTime {
        self.at
    }
}

/// The account since the last observation.
#[derive(Debug, Default)]
pub(crate) struct UseAccount {
    at: Option<JobTime>,
    holdings: BTreeMap<GpuHolder, Holding>,
    meters: BTreeMap<MeterId, (GpuHolder, Duration)>,
    /// Sums that are not saved yet.
    pub(crate) unsaved: BTreeMap<EntryId, UseSum>,
    /// The hour of the last entry, and its holders by user.
    hour: (u64, BTreeMap<u32, BTreeSet<GpuHolder>>),
}

impl UseAccount {
    /// Continues a saved account.
    pub(crate) fn again(saved: Option<SavedAccount>) -> Self {
        let Some(saved) = saved else { return Self::default() };
        Self {
            at: Some(saved.at),
            holdings: saved.holdings.into_iter().collect(),
            // The counters of this daemon begin at zero.
            meters: saved
                .meters
                .into_iter()
                .map(|(id, (holder, _))| (id, (holder, Duration::ZERO)))
                .collect(),
            ..Self::default()
        }
    }

    /// The state to continue from.
    pub(crate) fn saved(&self) -> Option<SavedAccount> {
        let copy = |(holder, holding): (&GpuHolder, &Holding)| (holder.clone(), *holding);
        Some(SavedAccount {
            at: self.at?,
            holdings: self.holdings.iter().map(copy).collect(),
            meters: self.meters.iter().map(|(id, meter)| (id.clone(), meter.clone())).collect(),
        })
    }

    /// Tests if this has to be saved again.
    ///
    /// From `saved` a daemon would charge other parts than are held, or lose starts, preemptions or use of a minute.
    pub(crate) fn is_due(&self, saved: Option<&SavedAccount>, now: JobTime) -> bool {
        let Some(saved) = saved else { return true };
        let holdings = saved.holdings.iter().map(|(holder, holding)| (holder, holding));
        let meters = saved.meters.iter().map(|(id, (holder, _))| (id, holder));
        let counts = |sum: &UseSum| sum.starts > 0 || sum.preemptions > 0;
        let is_old = !self.holdings.is_empty() && now.since(saved.at) >= MOST_UNSAVED;
        is_old
            || !holdings.eq(&self.holdings)
            || !meters.eq(self.meters.iter().map(|(id, (holder, _))| (id, holder)))
            || self.unsaved.values().any(counts)
    }

    /// Parts of slices without a job at the last observation.
    pub(crate) fn parts_of_slices(&self) -> impl Iterator<Item = HeldPart> {
        let slices = self.holdings.iter().filter(|(holder, _)| holder.name.contains(':'));
        slices.flat_map(|(holder, holding)| {
            let part = |gpus, idle| HeldPart { holder: holder.clone(), gpus, idle, meter: None };
            [part(holding.idle, true), part(holding.gpus.less(holding.idle), false)]
        })
    }

    /// Enters the time since the last observation, and takes over what is held now.
    ///
    /// `live` is the GPU time of all slices, which may live on without being held, as while a member stops; `ended` is
    /// the final GPU time of slices that are gone.
    pub(crate) fn observe(
        &mut self,
        now: Now,
        parts: Vec<HeldPart>,
        live: &BTreeMap<MeterId, Duration>,
        ended: &BTreeMap<(SliceName, GpuUuid), Duration>,
        quota: impl Fn(&ProjectName) -> Option<MilliGpus>,
    ) {
        self.enter_time(now);
        let before = std::mem::take(&mut self.meters);
        let mut meters = BTreeMap::new();
        for HeldPart { holder, meter, .. } in &parts {
            let Some((id, used)) = meter else { continue };
            // A counter that is lower than before was reset by the start of a daemon.
            let known = before.get(id).map(|(_, known)| *known).filter(|known| known <= used);
            self.enter_use(now, holder, used.saturating_sub(known.unwrap_or_default()));
            meters.insert(id.clone(), (holder.clone(), *used));
        }
        let others = before.into_iter().filter(|(id, _)| !meters.contains_key(id)).collect::<Vec<_>>();
        for (id, (holder, known)) in others {
            let last = live.get(&id).or_else(|| ended.get(&(id.slice.clone(), id.gpu))).copied();
            self.enter_use(now, &holder, last.unwrap_or_default().saturating_sub(known));
            if let Some(used) = live.get(&id) {
                meters.insert(id, (holder, *used));
            }
        }
        self.meters = meters;
        self.holdings = holdings::sum(parts, quota);
    }

    /// Enters the time since the last observation for all that was held.
    fn enter_time(&mut self, now: Now) {
        let from = self.at.replace(now.moment()).unwrap_or(now.moment());
        let mut rest = now.moment().millis().saturating_sub(from.millis());
        let mut end = now.unix_ms;
        let held: Vec<_> = self.holdings.iter().map(|(holder, holding)| (holder.clone(), *holding)).collect();
        while rest > 0 {
            // A millisecond before the end is in the hour that it belongs to.
            let hour = end.saturating_sub(1) / HOUR_MS;
            let within = rest.min(end.saturating_sub(hour * HOUR_MS)).max(1).min(rest);
            for (holder, holding) in &held {
                self.entry(hour, holder).add_time(*holding, within);
            }
            (rest, end) = (rest - within, end.saturating_sub(within));
        }
    }

    fn enter_use(&mut self, now: Now, holder: &GpuHolder, used: Duration) {
        if !used.is_zero() {
            self.entry(now.unix_ms / HOUR_MS, holder).add_use(used);
        }
    }

    /// Enters a start of a job's member, with its wait if it is the first.
    pub(crate) fn started(&mut self, now: Now, holder: &GpuHolder, wait: Option<Duration>) {
        self.entry(now.unix_ms / HOUR_MS, holder).add_start(wait);
    }

    /// Enters a preemption of a member or a slice.
    pub(crate) fn preempted(&mut self, now: Now, holder: &GpuHolder) {
        self.entry(now.unix_ms / HOUR_MS, holder).preemptions += 1;
    }

    fn entry(&mut self, hour: u64, holder: &GpuHolder) -> &mut UseSum {
        let (last, users) = &mut self.hour;
        if *last != hour {
            (*last, *users) = (hour, BTreeMap::new());
        }
        let holders = users.entry(holder.uid).or_default();
        let named =
            holders.contains(holder) || holders.len() < MOST_HOLDERS && holders.insert(holder.clone());
        let name = if named { holder.name.clone() } else { String::new() };
        self.unsaved.entry((hour, GpuHolder { name, ..holder.clone() })).or_default()
    }
}
