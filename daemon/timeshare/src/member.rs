//! State of a slice in the scheduling loop: its account, the rate of its wakeups, and its lease.

use tranche_domain::compute::{Instant, LeaseDecision, Nanos, NextLease, Observed};
use tranche_domain::id::GpuUuid;
use tranche_shm::lease;

use super::account::Account;
use super::site::SliceSite;

/// Wakeups that a slice may use in a burst. A program that synchronizes after each kernel causes two per kernel.
const BURST: u64 = 256;
/// Time that earns one further wakeup, which bounds the decisions per second that one slice can cause.
const PER_RING: Nanos = Nanos::micros(100);
/// Time for which a slice that exceeds its rate is muted; its records are read meanwhile all the same.
const MUTE_TIME: Nanos = Nanos::millis(1);

/// Longest time between two reads of a slice whose open lease requests no wakeups.
const SILENT_PERIOD: Nanos = Nanos::millis(1);

/// Lateness of a thread from which it is woken before the time until which it sleeps.
const PUNCTUAL: Nanos = Nanos::micros(100);

/// A scheduled slice: its records, its last decision and its rate of wakeups.
#[derive(Debug)]
pub(super) struct ScheduledSlice<S> {
    site: S,
    account: Account,
    looked: Instant,
    /// Last decision of the scheduler.
    lease: Option<LeaseDecision>,
    /// Lease in the control region.
    written: Option<lease::Lease>,
    /// Announcement that follows it.
    next: Option<NextLease>,
    /// It is not in the control region yet.
    next_changed: bool,
    /// Time until which threads that wait at the gate sleep, if they know it.
    sleeps_until: Option<Instant>,
    /// Time at which the last wakeup would have come at the permitted rate.
    spent: Instant,
    muted_until: Option<Instant>,
}

impl<S: SliceSite> ScheduledSlice<S> {
    /// A slice with these devices, in their order.
    pub(super) fn new(site: S, devices: &[GpuUuid]) -> Self {
        let account = Account::new(devices);
        let never = Instant::default();
        Self {
            site,
            account,
            looked: never,
            lease: None,
            written: None,
            next: None,
            next_changed: false,
            sleeps_until: None,
            spent: never,
            muted_until: None,
        }
    }

    pub(super) const fn site(&self) -> &S {
        &self.site
    }

    pub(super) fn into_site(self) -> S {
        self.site
    }

    /// Launches admitted because no outstanding work made progress, and because there was no daemon.
    pub(super) const fn let_through(&self) -> (u64, u64) {
        self.account.let_through()
    }

    /// Busy time of each device.
    pub(super) fn busy(&self) -> Vec<Nanos> {
        self.account.busy()
    }

    /// Counts a wakeup; mutes the slice if it exceeds its rate.
    pub(super) fn count_wakeup(&mut self, now: Instant) {
        let saved = PER_RING.scaled(BURST, 1);
        let earliest = Instant::from_nanos(now.nanos().saturating_sub(saved.get()));
        self.spent = self.spent.max(earliest) + PER_RING;
        if self.spent > now && self.muted_until.is_none() {
            self.site.hear(false);
            self.muted_until = Some(now + MUTE_TIME);
        }
    }

    /// Unmutes the slice when its time has come; until then returns that time.
    pub(super) fn unmute(&mut self, now: Instant) -> Option<Instant> {
        let until = self.muted_until?;
        if now < until {
            return Some(until);
        }
        self.site.hear(true);
        self.muted_until = None;
        None
    }

    /// Returns true if the slice may have changed since the last read without a wakeup. One with a closed lease and
    /// nothing outstanding cannot: all its threads can do is wait.
    pub(super) fn needs_look(&self, now: Instant) -> bool {
        let open = self.lease.is_some_and(|lease| lease.open);
        let silent = self.lease.is_some_and(|lease| lease.open && !lease.bell);
        self.next.is_some_and(|next| next.lease.open && next.at <= now)
            || self.account.has_work()
            || open && self.account.is_active()
            || self.muted_until.is_some()
            || silent && now.since(self.looked) >= SILENT_PERIOD
    }

    /// Reads the records of all attached processes.
    pub(super) fn look(&mut self, now: Instant) -> Observed {
        self.looked = now;
        self.site.look(now, &mut self.account)
    }

    /// Takes in a decision. Returns true if the lease opens; use that was claimed until now then belongs to the time
    /// before.
    pub(super) fn take_decision(&mut self, now: Instant, lease: LeaseDecision) -> bool {
        let opens = lease.open && !self.lease.is_some_and(|lease| lease.open);
        self.lease = Some(lease);
        if self.next.take_if(|next| next.lease.open && next.at <= now).is_some() {
            // The gate has gone by the announcement since, which only another lease voids.
            self.written = None;
        }
        opens
    }

    /// Takes in an announcement.
    pub(super) const fn expect(&mut self, next: Option<NextLease>) {
        (self.next, self.next_changed) = (next, true);
    }

    /// Publishes lease and announcement if they differ from those in the control region.
    pub(super) fn publish_lease(&mut self, now: Instant) {
        let lease = self.lease.map(|lease| to_shm_lease(lease, self.account.launching()));
        if let Some(lease) = lease.filter(|lease| self.written != Some(*lease)) {
            let was_open = self.written.is_none_or(|written| written.open);
            self.site.write(lease);
            self.written = Some(lease);
            // What was announced under the lease before is void.
            self.next_changed |= self.next.is_some();
            if was_open {
                // Threads that begin to wait now read what is announced now.
                self.sleeps_until = self.next.map(|next| next.at);
            }
        }
        // A thread that woke at a likely time, and found the gate closed, sleeps for longer.
        self.sleeps_until = self.sleeps_until.filter(|until| *until > now);
        if std::mem::take(&mut self.next_changed) {
            let next = |next: NextLease| (to_shm_lease(next.lease, self.account.launching()), next.at);
            let oversleeps = |next: NextLease| {
                next.lease.open && self.sleeps_until.is_none_or(|until| next.at + PUNCTUAL < until)
            };
            self.site.announce(self.next.map(next), self.next.is_some_and(oversleeps));
            let likely = self.next.map(|next| next.at);
            self.sleeps_until = self.sleeps_until.map(|until| likely.map_or(until, |at| at.max(until)));
        }
    }
}

/// Lease as the launch gate reads it. The depth is the slice's; each process's gate sees its own work alone, so each
/// launching process gets an equal part.
fn to_shm_lease(lease: LeaseDecision, launching: u64) -> lease::Lease {
    let depth_us = lease.depth.get() / 1000 / launching.max(1);
    lease::Lease {
        open: lease.open,
        governed: true,
        frozen: lease.frozen,
        bell: lease.bell,
        depth_us: u32::try_from(depth_us).unwrap_or(u32::MAX).min(lease::Lease::MOST_DEPTH_US),
        least: lease.least.min(lease::Lease::MOST_LEAST),
    }
}
