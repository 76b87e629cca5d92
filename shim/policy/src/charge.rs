//! Charging: from the process's credit first, then within the slice's cap by a request to the daemon.

use core::sync::atomic::Ordering::Relaxed;

use tranche_shm::control::{Control, DEPARTURE_PATIENCE_NS};
use tranche_shm::crash::point;
use tranche_shm::credit::{CreditWord, Units};
use tranche_shm::message::ShareKey;
use tranche_shm::parking::Hindrance;
use tranche_shm::usage::{Counter, Usage};
use tranche_shm::{DeviceSlot, Slot};

/// Longest wait for a daemon that does not reply before a charge is refused, in nanoseconds.
pub const PATIENCE_NS: u64 = 5_000_000_000;

/// Attempts of a charge whose fresh credit is taken by another thread.
const ROUNDS: u32 = 64;

/// The daemon, as a process of a slice reaches it.
pub trait DaemonLink {
    /// Sends one request for credit that covers `want`; returns at `deadline_ns` at the latest.
    ///
    /// Before it returns [`CreditResult::Later`], other threads have had their chance to send a request.
    fn ask(&self, device: DeviceSlot, want: Units, deadline_ns: u64) -> CreditResult;
    /// Reports a change of memory that several processes hold.
    ///
    /// A daemon without an account of such memory knows none.
    fn share(&self, _say: ShareReport, _deadline_ns: u64) -> ShareReply {
        ShareReply::Unknown
    }
    /// Monotonic clock, in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Waits a little before the next request.
    fn pause(&self);
}

/// Result of a request for credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditResult {
    /// The credit word holds more now.
    Granted,
    /// All of the slice's memory is in use.
    Exhausted,
    /// As `Exhausted`, but memory of an ended process is not free yet; a later request may fit.
    Later,
    /// No reply came; a later request may succeed.
    Away,
    /// The daemon refuses this process; further requests are useless.
    Refused,
}

/// Report about memory that several processes may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareReport {
    /// The process exports memory for which it is charged this much.
    Export(DeviceSlot, ShareKey, Units),
    /// The process opens exported memory.
    Import(ShareKey),
    /// The process has closed exported memory.
    Drop(ShareKey),
}

/// Result of a report about shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareReply {
    /// The daemon has carried it out.
    Noted,
    /// The daemon knows of no such memory in this slice.
    Unknown,
    /// No reply came; a later report may succeed.
    Away,
}

/// Result of a charge, or its refusal.
pub(crate) type Charged<T> = Result<T, ChargeRefused>;

/// Error of a refused charge; the program receives CUDA_ERROR_OUT_OF_MEMORY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeRefused;

/// Memory of a slice on one device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryView {
    /// Memory cap in bytes.
    pub total: u64,
    /// Charge of all processes of the slice, in bytes.
    pub used: u64,
    /// `total` less `used`, at least 0.
    pub free: u64,
}

/// A process in its slice: the two regions and its slot in them.
#[derive(Clone, Copy, Debug)]
pub struct Tenant<'a> {
    /// Control region of the slice, with its caps.
    pub control: Control<'a>,
    /// Usage region of the slice, with its credit words.
    pub usage: Usage<'a>,
    /// Slot of this process in both regions.
    pub slot: Slot,
}

impl<'a> Tenant<'a> {
    /// Charges `units`, or fails where the slice has no room for them.
    ///
    /// # Errors
    /// The slice has no room.
    #[inline(never)]
    pub fn charge(
        self,
        device: DeviceSlot,
        units: Units,
        daemon: &impl DaemonLink,
    ) -> Charged<Reservation<'a>> {
        self.charge_quickly(device, units, daemon)
    }

    /// As [`Tenant::charge`], compiled into its caller: for what programs do thousands of times a second.
    #[inline(always)]
    pub(crate) fn charge_quickly(
        self,
        device: DeviceSlot,
        units: Units,
        daemon: &impl DaemonLink,
    ) -> Charged<Reservation<'a>> {
        point("charge: begin");
        self.stir();
        if !self.may_spend_freely(device) || self.credit(device).charge(units).is_err() {
            self.charge_by_asking(device, units, daemon)?;
        }
        point("charge: charged");
        Ok(Reservation { tenant: self, device, units })
    }

    /// A function of its own, to keep the common path of [`Tenant::charge`] short.
    #[cold]
    fn charge_by_asking(self, device: DeviceSlot, units: Units, daemon: &impl DaemonLink) -> Charged<()> {
        // An empty charge does not wait for a slice to be within its cap.
        if units == Units::ZERO {
            return Ok(());
        }
        if self.excluded(device, units) {
            point("charge: excluded");
            return Err(ChargeRefused);
        }
        let began_ns = daemon.now_ns();
        for _ in 0..ROUNDS {
            if !self.ask(device, units, daemon, began_ns) {
                break;
            }
            if self.credit(device).charge(units).is_ok() {
                return Ok(());
            }
            if self.excluded(device, units) {
                break;
            }
        }
        point("charge: refused");
        Err(ChargeRefused)
    }

    /// Releases a charge, and returns its credit too while the slice is over its cap.
    #[inline(never)]
    pub fn release(self, device: DeviceSlot, units: Units) {
        self.release_quickly(device, units);
    }

    /// As [`Tenant::release`], compiled into its caller.
    #[inline(always)]
    pub(crate) fn release_quickly(self, device: DeviceSlot, units: Units) {
        point("release: begin");
        match self.control.over_cap(device) {
            false => self.credit(device).release(units),
            true => {
                self.credit(device).release_with_credit(units);
                point("release: with credit");
            }
        }
        point("release: end");
    }

    /// Memory of the slice on a device, at about one instant.
    pub fn view(self, device: DeviceSlot) -> MemoryView {
        let total = self.control.cap_bytes(device);
        let used = self.usage.used(self.control, device).bytes();
        MemoryView { total, used, free: total.saturating_sub(used) }
    }

    /// Charge of one process of the slice on a device, in bytes.
    pub fn used_by(self, slot: Slot, device: DeviceSlot) -> u64 {
        self.usage.credit(slot, device).load().used.bytes()
    }

    /// Adds one to a counter of this process.
    pub fn count(self, counter: Counter) {
        self.usage.counter(self.slot, counter).fetch_add(1, Relaxed);
    }

    /// Reports memory or an object that the driver cannot checkpoint, before the call that makes it.
    pub fn hinder(self, hindrance: Hindrance) {
        self.usage.hindrances(self.slot).add(hindrance);
    }

    /// Changes [`Counter::Charges`]. Threads may overwrite each other's step; the word changes all the same.
    #[inline(always)]
    fn stir(self) {
        let charges = self.usage.counter(self.slot, Counter::Charges);
        charges.store(charges.load(Relaxed).wrapping_add(1), Relaxed);
    }

    #[inline(always)]
    fn credit(self, device: DeviceSlot) -> CreditWord<'a> {
        self.usage.credit(self.slot, device)
    }

    /// True if credit may be used without the daemon: the slice is not over its cap.
    #[inline(always)]
    fn may_spend_freely(self, device: DeviceSlot) -> bool {
        !self.control.over_cap(device)
    }

    /// True if the slice's use leaves no room, so that a request would be refused.
    ///
    /// Use by ended processes is left to the daemon, which knows when their memory is free.
    fn excluded(self, device: DeviceSlot, units: Units) -> bool {
        let cap = Units::within(self.control.cap_bytes(device));
        let full = self.usage.used(self.control, device).checked_add(units).is_none_or(|sum| sum > cap);
        full && !self.is_any_departing()
    }

    /// True while memory of an ended process may become free.
    ///
    /// By the daemon's clock alone, because this process may be in another time namespace. After the death of a
    /// daemon the word stays as it was until the next daemon sets it.
    fn is_any_departing(self) -> bool {
        let until_ns = self.control.departing_until_ns();
        until_ns != 0 && self.control.heartbeat_ns() < until_ns
    }

    /// Requests credit until a final reply or the end of [`PATIENCE_NS`] since the charge began.
    ///
    /// Returns true if the charge is worth another attempt.
    fn ask(self, device: DeviceSlot, want: Units, daemon: &impl DaemonLink, began_ns: u64) -> bool {
        let deadline_ns = began_ns.saturating_add(PATIENCE_NS);
        self.count(Counter::Asked);
        loop {
            match daemon.ask(device, want, deadline_ns) {
                CreditResult::Granted => {
                    point("charge: granted");
                    return true;
                }
                CreditResult::Exhausted | CreditResult::Refused => return false,
                CreditResult::Later if daemon.now_ns() >= began_ns.saturating_add(DEPARTURE_PATIENCE_NS) => {
                    return false;
                }
                CreditResult::Later => {}
                CreditResult::Away if daemon.now_ns() >= deadline_ns => {
                    self.count(Counter::Unanswered);
                    return false;
                }
                CreditResult::Away => daemon.pause(),
            }
        }
    }
}

/// A charge without an entry yet: kept by [`Reservation::keep`], otherwise released when dropped.
#[must_use = "what is not kept is given back at once"]
#[derive(Debug)]
pub struct Reservation<'a> {
    tenant: Tenant<'a>,
    device: DeviceSlot,
    units: Units,
}

impl Reservation<'_> {
    /// Device of the charge.
    pub fn device(&self) -> DeviceSlot {
        self.device
    }

    /// Amount of the charge, in units.
    pub fn units(&self) -> Units {
        self.units
    }

    /// Raises the reservation to at least `units`.
    ///
    /// If that is refused, it stays as it was, because the driver may still hold the memory that it covers.
    #[inline(always)]
    pub fn grow(&mut self, units: Units, daemon: &impl DaemonLink) -> Charged<()> {
        let missing = units.saturating_sub(self.units);
        if missing > Units::ZERO {
            core::mem::forget(self.tenant.charge(self.device, missing, daemon)?);
            self.units = units;
            point("reservation: grown");
        }
        Ok(())
    }

    /// Keeps `units` charged, for the caller to release later; the rest is released at once.
    #[inline(always)]
    pub fn keep(mut self, units: Units) {
        point("reservation: keep");
        self.units = self.units.saturating_sub(units);
        // Mostly the rest is zero, which is not worth a call.
        if self.units == Units::ZERO {
            core::mem::forget(self);
        }
    }
}

impl Drop for Reservation<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.units > Units::ZERO {
            point("reservation: drop");
            self.tenant.release(self.device, self.units);
        }
    }
}
