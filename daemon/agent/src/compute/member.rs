//! A slice as the loop knows it: what was seen of it, how much it rings, and the lease that it has.

use tranche_domain::compute::{Instant, Lease, Nanos, Observed};
use tranche_domain::id::GpuUuid;
use tranche_shm::lease;

use super::account::Account;
use super::site::Site;

/// Rings that a slice may have saved up. A program that waits for each of its kernels rings twice for each.
const BURST: u64 = 256;
/// For each ring beyond, so much time has to pass: one slice costs at most so many decisions a second.
const PER_RING: Nanos = Nanos::micros(100);
/// A slice that rings too much is not heard for so long; then its records are looked at all the same.
const MUTED: Nanos = Nanos::millis(1);

/// A slice that may launch and need not ring is looked at as often as this, if anybody is.
const SILENCE: Nanos = Nanos::millis(1);

/// A slice that is governed.
#[derive(Debug)]
pub(super) struct Member<S> {
    site: S,
    account: Account,
    looked: Instant,
    /// What the arbiter said last.
    lease: Option<Lease>,
    /// What stands in the control region.
    written: Option<lease::Lease>,
    /// When its last ring would have come, had they come as seldom as they may.
    spent: Instant,
    muted_until: Option<Instant>,
}

impl<S: Site> Member<S> {
    /// One whose devices are these GPUs.
    pub(super) fn new(site: S, devices: &[GpuUuid]) -> Self {
        let account = Account::new(devices);
        let never = Instant::default();
        Self { site, account, looked: never, lease: None, written: None, spent: never, muted_until: None }
    }

    pub(super) const fn site(&self) -> &S {
        &self.site
    }

    pub(super) fn into_site(self) -> S {
        self.site
    }

    /// Launches let through because nothing made progress, and because there was no daemon.
    pub(super) const fn let_through(&self) -> (u64, u64) {
        self.account.let_through()
    }

    /// For how long it was busy, device by device.
    pub(super) fn busy(&self) -> Vec<Nanos> {
        self.account.busy()
    }

    /// It rang: if that is too much, it is not heard for a while.
    pub(super) fn rang(&mut self, now: Instant) {
        let saved = PER_RING.scaled(BURST, 1);
        let earliest = Instant::from_nanos(now.nanos().saturating_sub(saved.get()));
        self.spent = self.spent.max(earliest) + PER_RING;
        if self.spent > now && self.muted_until.is_none() {
            self.site.hear(false);
            self.muted_until = Some(now + MUTED);
        }
    }

    /// Hears it again when the time has come; says when it will.
    pub(super) fn unmute(&mut self, now: Instant) -> Option<Instant> {
        let until = self.muted_until?;
        if now < until {
            return Some(until);
        }
        self.site.hear(true);
        self.muted_until = None;
        None
    }

    /// Whether it may have changed since the last look without having rung. One that is closed and has nothing
    /// outstanding can't: all that its threads may do is wait.
    pub(super) fn wants_a_look(&self, now: Instant) -> bool {
        let open = self.lease.is_some_and(|lease| lease.open);
        let silent = self.lease.is_some_and(|lease| lease.open && !lease.bell);
        self.account.has_work()
            || open && self.account.is_active()
            || self.muted_until.is_some()
            || silent && now.since(self.looked) >= SILENCE
    }

    /// Reads the records of all who are there.
    pub(super) fn look(&mut self, now: Instant) -> Observed {
        self.looked = now;
        self.site.look(now, &mut self.account)
    }

    /// Takes note of a decision. Says whether it may launch from now on and could not before: what it has claimed until
    /// now is of before.
    pub(super) fn tell(&mut self, lease: Lease) -> bool {
        let opens = lease.open && !self.lease.is_some_and(|lease| lease.open);
        self.lease = Some(lease);
        opens
    }

    /// Writes its lease, if what stands there is another.
    pub(super) fn keep_up(&mut self) {
        let lease = self.lease.map(|lease| on_the_wall(lease, self.account.launching()));
        if let Some(lease) = lease.filter(|lease| self.written != Some(*lease)) {
            self.site.write(lease);
            self.written = Some(lease);
        }
    }
}

/// A lease as the gate reads it. The depth is the slice's; the gate of each process sees its own work alone, so
/// that those who launch have a part of the depth each.
fn on_the_wall(lease: Lease, launching: u64) -> lease::Lease {
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
