//! Rotation: slices that have no room side by side have their stays on a GPU one after the other.
//!
//! Laws:
//! - A slice leaves only for one that is wanted, and only once its stay is over: ten times the cost of the switch, 2 s at
//!   least.
//! - The next one is the one that has had the least time while others waited; of two, the one that has waited longer. No
//!   other that waits for a GPU of it comes before it.
//! - A slice that was not wanted has no claim from that time, and one that was there for long waits for one stay more than
//!   another at most.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use crate::id::{GpuUuid, SliceName};
use crate::node::Node;
use crate::units::Bytes;

/// Shortest stay of a slice that others wait for.
pub const LEAST_STAY: Duration = Duration::from_secs(2);

/// Length of a stay, in costs of its switch.
///
/// Ten, and a fifth for the wait for running work and for the first call after it.
pub const COSTS_IN_A_STAY: u32 = 12;

/// Rate of copies until one was measured, in bytes per second: half of a PCIe 3.0 bus of 16 lanes.
const RATE: u64 = 6 << 30;

/// Smallest copy whose rate counts: a smaller one takes the time of its calls.
const MEASURABLE: Bytes = Bytes::mib(64);

/// Presence of a rotating slice on its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It holds its part of its GPUs.
    Here,
    /// It is parked, and none of its programs has a call for a GPU.
    Away,
    /// It is parked, and a call of its programs waits.
    Wanted,
    /// It is on its way.
    Moving,
    /// It is parked until its owner brings it back.
    Kept,
}

/// A rotating slice as it is observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotatingSlice {
    /// Name of the slice.
    pub name: SliceName,
    /// UUIDs of its GPUs.
    pub gpus: Vec<GpuUuid>,
    /// Its presence there, as observed.
    pub presence: Presence,
    /// Device memory that its processes may hold.
    pub held: Bytes,
}

impl RotatingSlice {
    fn shares(&self, other: &Self) -> bool {
        self.gpus.iter().any(|gpu| other.gpus.contains(gpu))
    }

    const fn contends(&self) -> bool {
        matches!(self.presence, Presence::Here | Presence::Wanted)
    }
}

/// A change of the slices that are on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Slices to be parked first.
    pub leave: Vec<SliceName>,
    /// The slice whose stay begins.
    pub comes: SliceName,
}

/// Times of a rotating slice.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// Time on its GPUs while others waited for them.
    had: Duration,
    /// Begin of its stay.
    came: Duration,
    /// Time that its return took.
    cost: Duration,
    /// Begin of its wait, while it waits.
    waits: Option<Duration>,
    /// Time before which it is left where it is.
    not_before: Duration,
}

/// Stays of the rotating slices of a node. All times are on one monotonic clock.
#[derive(Debug)]
pub struct Rotation {
    times: BTreeMap<SliceName, Times>,
    looked: Duration,
    rate: u64,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { times: BTreeMap::new(), looked: Duration::ZERO, rate: RATE }
    }
}

impl Rotation {
    /// Switches that are due. Nothing is taken as done before [`Rotation::came`] and [`Rotation::left`].
    pub fn due(&mut self, node: &Node, now: Duration, slices: &[RotatingSlice]) -> Vec<Switch> {
        self.account(now, slices);
        let may_come = |slice: &&RotatingSlice| {
            slice.presence == Presence::Wanted && now >= self.of(&slice.name).not_before
        };
        let mut waiting: Vec<&RotatingSlice> = slices.iter().filter(may_come).collect();
        if waiting.is_empty() {
            return Vec::new();
        }
        waiting.sort_by_key(|slice| {
            let times = self.of(&slice.name);
            (times.had, times.waits, slice.name.clone())
        });
        let mut plan = node.clone();
        // What is on its way may be about to take or to leave the room.
        let moving = slices.iter().filter(|slice| slice.presence == Presence::Moving);
        let mut taken: BTreeSet<GpuUuid> = moving.flat_map(|slice| slice.gpus.iter().copied()).collect();
        let mut due = Vec::new();
        for waiter in waiting {
            if !waiter.gpus.iter().any(|gpu| taken.contains(gpu))
                && let Some(switch) = self.switch_to(waiter, &mut plan, now, slices)
            {
                let leave = slices.iter().filter(|slice| switch.leave.contains(&slice.name));
                taken.extend(leave.flat_map(|slice| slice.gpus.iter().copied()));
                due.push(switch);
            }
            taken.extend(waiter.gpus.iter().copied());
        }
        due
    }

    /// Time to the earliest return of each slice that waits for its stay.
    ///
    /// The rest of the stay that ends first, and a stay of each slice that comes before.
    pub fn returns(&self, now: Duration, slices: &[RotatingSlice]) -> BTreeMap<SliceName, Duration> {
        let order = |slice: &RotatingSlice| {
            let times = self.of(&slice.name);
            (times.had, times.waits, slice.name.clone())
        };
        let stay = |slice: &RotatingSlice| self.stay(&self.of(&slice.name), slice.held);
        let rest = |slice: &RotatingSlice| {
            let times = self.of(&slice.name);
            times.came.saturating_add(stay(slice)).max(times.not_before).saturating_sub(now)
        };
        let wanted = || slices.iter().filter(|slice| slice.presence == Presence::Wanted);
        let return_of = |waiter: &RotatingSlice| {
            let here = slices.iter().filter(|slice| slice.presence == Presence::Here && slice.shares(waiter));
            let first = here.map(rest).min().unwrap_or_default();
            let before = wanted().filter(|other| other.shares(waiter) && order(other) < order(waiter));
            (waiter.name.clone(), before.map(stay).fold(first, Duration::saturating_add))
        };
        wanted().map(return_of).collect()
    }

    /// Notes that the stay of a slice begins, and the time that its return took.
    pub fn came(&mut self, name: &SliceName, now: Duration, took: Duration) {
        let times = self.times.entry(name.clone()).or_default();
        (times.came, times.cost) = (now, took);
    }

    /// Notes that a slice has left, and the time in which its memory was copied.
    pub fn left(&mut self, held: Bytes, took: Duration) {
        let rate = u128::from(held.get()) * 1_000_000_000 / took.as_nanos().max(1);
        if held >= MEASURABLE {
            self.rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        }
    }

    /// Notes that a slice could not leave or come, and is not to be tried again before a time.
    pub fn leave_alone(&mut self, name: &SliceName, until: Duration) {
        self.times.entry(name.clone()).or_default().not_before = until;
    }

    /// Length of a stay, for a slice that holds so much now.
    fn stay(&self, times: &Times, held: Bytes) -> Duration {
        let nanos = u128::from(held.get()) * 1_000_000_000 / u128::from(self.rate);
        let leaving = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        LEAST_STAY.max(times.cost.saturating_add(leaving).saturating_mul(COSTS_IN_A_STAY))
    }

    fn of(&self, name: &SliceName) -> Times {
        self.times.get(name).copied().unwrap_or_default()
    }

    /// Charges those that are there for the time in which others waited, and begins the waits of others.
    fn account(&mut self, now: Duration, slices: &[RotatingSlice]) {
        let passed = now.saturating_sub(core::mem::replace(&mut self.looked, now));
        self.times.retain(|name, _| slices.iter().any(|slice| slice.name == *name));
        for slice in slices {
            let others = || slices.iter().filter(|other| other.name != slice.name && other.shares(slice));
            let is_new = !self.times.contains_key(&slice.name);
            let least = others().filter(|other| other.contends()).map(|other| self.of(&other.name).had).min();
            let waits = others().any(|other| other.presence == Presence::Wanted);
            let stay = self.stay(&self.of(&slice.name), slice.held);
            let times = self.times.entry(slice.name.clone()).or_default();
            if is_new {
                times.came = now;
            }
            match slice.presence {
                Presence::Here if waits => times.had = times.had.saturating_add(passed),
                Presence::Wanted if times.waits.is_none() => {
                    // Time in which it was not wanted gives it no claim, and time beside others no long wait.
                    let least = least.unwrap_or_default();
                    times.had = times.had.clamp(least, least.saturating_add(stay));
                    times.waits = Some(now);
                }
                _ => {}
            }
            if slice.presence != Presence::Wanted {
                times.waits = None;
            }
        }
    }

    /// A switch that gives a slice its stay, entered in the plan; none before others have had theirs.
    fn switch_to(
        &self,
        waiter: &RotatingSlice,
        plan: &mut Node,
        now: Duration,
        slices: &[RotatingSlice],
    ) -> Option<Switch> {
        let had = self.of(&waiter.name).had;
        let may_leave = |slice: &&RotatingSlice| {
            let times = self.of(&slice.name);
            let over = now >= times.came.saturating_add(self.stay(&times, slice.held)).max(times.not_before);
            slice.presence == Presence::Here && slice.shares(waiter) && over && times.had >= had
        };
        let mut there: Vec<&RotatingSlice> = slices.iter().filter(may_leave).collect();
        there.sort_by_key(|slice| (Reverse(self.of(&slice.name).had), slice.name.clone()));
        let mut next = plan.clone();
        let mut leave = Vec::new();
        for slice in there {
            if next.may_return(&waiter.name) {
                break;
            }
            next.suppose(&slice.name, true);
            leave.push(slice.name.clone());
        }
        if !next.may_return(&waiter.name) {
            return None;
        }
        // One that left for nothing stays.
        leave.retain(|name| {
            next.suppose(name, false);
            let is_needed = !next.may_return(&waiter.name);
            next.suppose(name, is_needed);
            is_needed
        });
        next.suppose(&waiter.name, false);
        *plan = next;
        Some(Switch { leave, comes: waiter.name.clone() })
    }
}

#[cfg(test)]
#[path = "rotation_tests.rs"]
mod tests;
