//! Charging: credit in hand first, then what the slice can still have, then the daemon.

use core::sync::atomic::Ordering::Relaxed;

use tranche_shm::control::{Control, DEPARTURE_PATIENCE_NS};
use tranche_shm::crash::point;
use tranche_shm::credit::{CreditWord, Units};
use tranche_shm::message::ShareKey;
use tranche_shm::usage::{Counter, Usage};
use tranche_shm::{DeviceSlot, Slot};

/// How long a daemon that does not answer is waited for before a charge is refused, in nanoseconds.
pub const PATIENCE_NS: u64 = 5_000_000_000;

/// How often credit that the daemon granted may be taken by another thread before we give up.
const ROUNDS: u32 = 64;

/// The daemon, as seen from a process of a slice.
pub trait Daemon {
    /// Asks once for credit that covers `want`; comes back at the latest at `deadline_ns`. Before it comes back with
    /// [`Answer::Later`], other threads have had their chance to ask.
    fn ask(&self, device: DeviceSlot, want: Units, deadline_ns: u64) -> Answer;
    /// Says something about memory that several processes hold. A daemon that keeps no account of such memory
    /// knows none.
    fn share(&self, _say: Share, _deadline_ns: u64) -> Shared {
        Shared::Unknown
    }
    /// A clock that only goes forward, in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Waits a little before asking again.
    fn pause(&self);
}

/// What came of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The credit word holds more now.
    Granted,
    /// The slice's memory is all in use.
    Exhausted,
    /// It is, but somebody has just ended whose memory is not free yet; asking again may help.
    Later,
    /// Nobody answered; asking again may help.
    Away,
    /// The daemon does not want this process; asking again is of no use.
    Refused,
}

/// What a process says about memory that several may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Others may open what it is charged this much for.
    Export(DeviceSlot, ShareKey, Units),
    /// It opens what somebody exported.
    Import(ShareKey),
    /// It holds it no more.
    Drop(ShareKey),
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// So it is.
    Noted,
    /// The daemon knows of no such memory in this slice.
    Unknown,
    /// Nobody answered; asking again may help.
    Away,
}

/// A charge that is not made: to the program, the device is out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// What a slice has of a device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryView {
    /// The cap.
    pub total: u64,
    /// What the slice's processes are charged.
    pub used: u64,
    /// The rest, never below zero.
    pub free: u64,
}

/// A process in its slice: the two regions and its place in them.
#[derive(Clone, Copy, Debug)]
pub struct Tenant<'a> {
    /// What the slice may have.
    pub control: Control<'a>,
    /// What its processes hold.
    pub usage: Usage<'a>,
    /// Which of them we are.
    pub slot: Slot,
}

impl<'a> Tenant<'a> {
    /// Charges `units`, or says that the slice cannot have them.
    #[inline(always)]
    pub fn charge(
        self,
        device: DeviceSlot,
        units: Units,
        daemon: &impl Daemon,
    ) -> Result<Reservation<'a>, Refused> {
        point("charge: begin");
        self.stir();
        if !self.may_spend_freely(device) || self.credit(device).charge(units).is_err() {
            self.charge_by_asking(device, units, daemon)?;
        }
        point("charge: charged");
        Ok(Reservation { tenant: self, device, units })
    }

    /// Apart, so that the way through [`Tenant::charge`] that nearly all charges take is short.
    #[cold]
    fn charge_by_asking(self, device: DeviceSlot, units: Units, daemon: &impl Daemon) -> Result<(), Refused> {
        // What costs nothing does not wait for a slice to be within its cap.
        if units == Units::ZERO {
            return Ok(());
        }
        if self.excluded(device, units) {
            point("charge: excluded");
            return Err(Refused);
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
        Err(Refused)
    }

    /// Gives back what was charged; credit too while the slice is over its cap.
    #[inline(always)]
    pub fn release(self, device: DeviceSlot, units: Units) {
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

    /// What the slice has of a device.
    pub fn view(self, device: DeviceSlot) -> MemoryView {
        let total = self.control.cap_bytes(device);
        let used = self.usage.used(self.control, device).bytes();
        MemoryView { total, used, free: total.saturating_sub(used) }
    }

    /// What another process of the slice, or this one, is charged.
    pub fn used_by(self, slot: Slot, device: DeviceSlot) -> u64 {
        self.usage.credit(slot, device).load().used.bytes()
    }

    /// Counts an event for the operator.
    pub fn count(self, counter: Counter) {
        self.usage.counter(self.slot, counter).fetch_add(1, Relaxed);
    }

    /// Shows that something was charged. Threads may overwrite each other's step; it moves all the same.
    #[inline(always)]
    fn stir(self) {
        let charges = self.usage.counter(self.slot, Counter::Charges);
        charges.store(charges.load(Relaxed).wrapping_add(1), Relaxed);
    }

    #[inline(always)]
    fn credit(self, device: DeviceSlot) -> CreditWord<'a> {
        self.usage.credit(self.slot, device)
    }

    /// Credit in hand is good unless the slice was shrunk below what it holds: then the daemon decides.
    #[inline(always)]
    fn may_spend_freely(self, device: DeviceSlot) -> bool {
        !self.control.over_cap(device)
    }

    /// Whether what the slice's processes hold leaves no room, so that asking would be in vain. Of what the dead held
    /// the daemon knows better.
    fn excluded(self, device: DeviceSlot, units: Units) -> bool {
        let cap = Units::within(self.control.cap_bytes(device));
        let full = self.usage.used(self.control, device).checked_add(units).is_none_or(|sum| sum > cap);
        full && !self.is_any_departing()
    }

    /// By the daemon's clock alone: this process may be in another time namespace. Where the daemon has died it stays as it
    /// was, and the next one puts it right.
    fn is_any_departing(self) -> bool {
        let until_ns = self.control.departing_until_ns();
        until_ns != 0 && self.control.heartbeat_ns() < until_ns
    }

    /// Asks until there is an answer or patience ends, which began with the charge; says whether to try the charge
    /// again.
    fn ask(self, device: DeviceSlot, want: Units, daemon: &impl Daemon, began_ns: u64) -> bool {
        let deadline_ns = began_ns.saturating_add(PATIENCE_NS);
        self.count(Counter::Asked);
        loop {
            match daemon.ask(device, want, deadline_ns) {
                Answer::Granted => {
                    point("charge: granted");
                    return true;
                }
                Answer::Exhausted | Answer::Refused => return false,
                Answer::Later if daemon.now_ns() >= began_ns.saturating_add(DEPARTURE_PATIENCE_NS) => {
                    return false;
                }
                Answer::Later => {}
                Answer::Away if daemon.now_ns() >= deadline_ns => {
                    self.count(Counter::Unanswered);
                    return false;
                }
                Answer::Away => daemon.pause(),
            }
        }
    }
}

/// Charged memory that nobody holds yet: kept by saying so, otherwise given back when dropped.
#[must_use = "what is not kept is given back at once"]
#[derive(Debug)]
pub struct Reservation<'a> {
    tenant: Tenant<'a>,
    device: DeviceSlot,
    units: Units,
}

impl Reservation<'_> {
    /// Where it is.
    pub fn device(&self) -> DeviceSlot {
        self.device
    }

    /// How much it is.
    pub fn units(&self) -> Units {
        self.units
    }

    /// Makes the reservation at least `units`. When that is refused, it stays as it was, for as long as the driver may
    /// hold what it is for.
    #[inline(always)]
    pub fn grow(&mut self, units: Units, daemon: &impl Daemon) -> Result<(), Refused> {
        let missing = units.saturating_sub(self.units);
        if missing > Units::ZERO {
            core::mem::forget(self.tenant.charge(self.device, missing, daemon)?);
            self.units = units;
            point("reservation: grown");
        }
        Ok(())
    }

    /// Keeps `units` charged, from now on somebody else's to give back; the rest goes back at once.
    #[inline(always)]
    pub fn keep(mut self, units: Units) {
        point("reservation: keep");
        self.units = self.units.saturating_sub(units);
        // Mostly there is none, and then dropping is not worth a call.
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
