//! Room for one launch more beside the outstanding work.

use tranche_shm::DeviceSlot;
use tranche_shm::compute::MARKS;
use tranche_shm::lease::Lease;

use super::measure::CompletionGlance;
use super::state::{About, DeviceWord};
use super::{Gate, LaunchTarget, UNKNOWN_LAUNCHES};

/// Sleep of a thread that waits for room, in nanoseconds; longer each time if the work is overdue.
const NAP_NS: u64 = 50_000;
const LONG_NAP_NS: u64 = 1_000_000;
/// Time in nanoseconds around the expected end of a launch in which a waiting thread spins.
///
/// It spins for no longer than that. A sleep takes 50 to 110 us longer than requested, for which the GPU would be idle.
pub(super) const SPIN_NS: u64 = 100_000;
/// Longest launch before whose end a thread spins: of longer ones a sleep costs little.
const BRIEF_NS: u64 = 2_000_000;

/// Outstanding work of a process on a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessWork {
    /// GPU time, as estimated.
    pub(super) estimate_ns: u64,
    pub(super) launches: u64,
    /// Of these, launches that the driver has not taken yet.
    pub(super) entering: u64,
    /// Marks that are pending.
    pub(super) marks: u64,
    /// Number of streams with work.
    pub(super) streams: u64,
    /// Launches in the stream of the one that is about to be made.
    pub(super) own: u64,
    /// Launches done since the process began.
    pub(super) done: u64,
    /// Some of it is of unknown length.
    pub(super) unknown: bool,
    /// Time until the next completion, negative if it is overdue, and GPU time that ends with it.
    next: Option<(i64, u64)>,
}

impl ProcessWork {
    /// Tests if one more launch may join by what is outstanding alone. `alone_ns` is what each launch in a stream
    /// takes at least.
    fn fits(&self, lease: Lease, alone_ns: u64) -> bool {
        let depth = u64::from(lease.depth_us) * 1000;
        let shallow =
            self.estimate_ns < depth && (self.own == 0 || self.own.saturating_mul(alone_ns) < depth);
        self.launches < u64::from(lease.least.max(1))
            || shallow && (!self.unknown || self.launches < UNKNOWN_LAUNCHES)
    }

    /// Sleep until shortly before the next completion, or half of the excess after that, in nanoseconds.
    ///
    /// With a sleep until it is due a shorter length would never be learnt.
    pub(super) fn nap_ns(&self, lease: Lease) -> u64 {
        let (due, less) = self.next.unwrap_or_default();
        let until_next = if due < 0 { due.unsigned_abs() / 8 } else { due as u64 / 8 * 7 };
        let left = self.estimate_ns.saturating_sub(less);
        let excess = left.saturating_sub(u64::from(lease.depth_us) * 1000);
        let excess = if self.launches > u64::from(lease.least) + self.streams { excess } else { 0 };
        until_next.max(excess / 2).clamp(NAP_NS, LONG_NAP_NS)
    }

    /// Tests if the GPU is idle in a moment unless a launch comes, where launches are made one by one.
    pub(super) fn runs_dry(&self, lease: Lease) -> bool {
        let is_last = |(due, less): &(i64, u64)| {
            due.unsigned_abs() <= SPIN_NS && self.estimate_ns <= (*less).min(BRIEF_NS)
        };
        lease.depth_us == 0 && self.next.as_ref().is_some_and(is_last)
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.marks == 0 && self.launches == 0
    }
}

impl Gate<'_> {
    /// Takes in completions and returns the outstanding work on a device, as a launch finds it.
    pub(super) fn look(&self, place: LaunchTarget, glance: CompletionGlance) -> ProcessWork {
        let device = place.device;
        let streams = self.collect(device, glance);
        let of = |of| self.state.get(device, of);
        let (kernel, entering) = (self.kernel_ns(), of(DeviceWord::Entering));
        let kernels = of(DeviceWord::Unmarked) + entering;
        let mut seen = ProcessWork {
            launches: self.unmarked(device) + entering,
            entering,
            streams: streams + entering,
            estimate_ns: self.unmarked_ns(device).saturating_add(entering.saturating_mul(kernel)),
            unknown: self.launch_ns() == 0 && (kernels > 0 && kernel == 0 || of(DeviceWord::Moved) > 0),
            done: of(DeviceWord::Done),
            ..ProcessWork::default()
        };
        for at in self.state.pending_on(device) {
            self.add_pending(at, place.stream, of(DeviceWord::Clock), streams, &mut seen);
        }
        seen
    }

    fn add_pending(&self, at: usize, stream: u64, clock: u64, streams: u64, seen: &mut ProcessWork) {
        let about = |about| self.state.about(at, about);
        let launches = about(About::Kernels) + about(About::Graphs);
        let estimate = about(About::Estimate);
        seen.launches += launches;
        seen.marks += 1;
        seen.estimate_ns = seen.estimate_ns.saturating_add(estimate);
        seen.unknown |= estimate == 0;
        if about(About::Stream) == stream {
            seen.own += launches;
        }
        let due = about(About::Start).saturating_add(estimate).wrapping_sub(clock) as i64;
        let due = due.saturating_mul(streams as i64);
        if seen.next.is_none_or(|(next, _)| due < next) {
            seen.next = Some((due, estimate));
        }
    }

    /// Tests if the ring has no place for the mark of a launch among streams side by side.
    ///
    /// A launch without a mark would be found done with one of another stream. Each stream has an equal part of the ring.
    fn is_ring_short(&self, device: DeviceSlot, seen: &ProcessWork) -> bool {
        let part_used = || seen.own.saturating_mul(seen.streams) >= MARKS as u64;
        self.is_wide(device) && (part_used() || self.is_ring_full())
    }

    /// Decides on a launch beside the outstanding work: `None` holds it.
    ///
    /// `Some(true)` lets it pass to be watched, alone or beside other streams.
    pub(super) fn fits(&self, device: DeviceSlot, seen: &ProcessWork, lease: Lease) -> Option<bool> {
        if self.is_held(device) {
            return seen.is_idle().then_some(true);
        }
        if self.is_ring_short(device, seen) {
            return None;
        }
        let alone = if self.is_wide(device) { self.alone_ns(device) } else { 0 };
        // A mark that stands behind several launches is reached with the last of them; those in other streams may take
        // longer, by as much again at most.
        let several = seen.streams > 1 && seen.launches > seen.marks + seen.entering;
        let lease = if several { Lease { depth_us: lease.depth_us / 2, ..lease } } else { lease };
        if seen.fits(lease, alone) {
            return Some(false);
        }
        let joins = seen.own == 0 && seen.streams > 0 && self.may_join(device, seen.streams);
        joins.then_some(true)
    }
}
