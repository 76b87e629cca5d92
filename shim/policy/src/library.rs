//! Libraries: code that the driver keeps in every context of the process, present and future.
//!
//! A library is charged once for each context: when it is loaded, for the contexts that exist or are being made; when
//! a context is made, for the libraries that are loaded or being loaded. Each enters its list before it reads the
//! other, so that of two at the same time at least one sees the other. Both may: the charge of a library in a context
//! has a key, under which it is made once.
//!
//! Of a library that the driver loads lazily, the deferred code enters the list as a library of its own when a
//! function of it is first needed: from then on it is charged in every context.
//!
//! Laws:
//! - A list is left only after the driver has freed the memory, and the charges of the place are released after that.
//! - A charge that is entered is checked once more: if the library or the context has left meanwhile, the first of the
//!   two threads to find it releases it.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::fence;

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::charge::{ChargeRefused, Charged, DaemonLink};
use crate::extent::BLOCK;
use crate::image::ImageSize;
use crate::ledger::{ClaimDenied, Ledger};
use crate::list::List;
use crate::module::{Allowance, deferred, deferring};
use crate::table::{EntryKind, Full, TableEntry};

/// Width of a place in a list, in bits.
const PLACE_BITS: u32 = 32;
/// Set in the detail of a [`EntryKind::Copy`] that uses its device's allowance, beside the serial.
const ALLOWED: u64 = 1 << 63;

/// An entry of a list, which leaves it when dropped.
pub(crate) struct Enlisted<'a> {
    ledger: Ledger<'a>,
    list: List,
    place: u64,
    entry: TableEntry,
}

impl Enlisted<'_> {
    pub(crate) const fn place(&self) -> u64 {
        self.place
    }

    pub(crate) const fn serial(&self) -> u64 {
        self.entry.serial
    }

    /// Keeps the entry in its list.
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Enlisted<'_> {
    fn drop(&mut self) {
        match self.list {
            List::Contexts => self.ledger.leave_present(self.place, self.entry.serial),
            List::Libraries => self.ledger.leave_library(self.place, self.entry.serial),
        }
    }
}

impl<'a> Ledger<'a> {
    /// Charges a library for every context and lets `driver` load it; `undo` unloads it again.
    pub fn load_library<E>(
        &self,
        size: ImageSize,
        daemon: &impl DaemonLink,
        driver: impl FnOnce() -> Result<u64, E>,
        undo: impl FnOnce(u64),
    ) -> Result<u64, ClaimDenied<E>> {
        let units = size.units().ok_or(ClaimDenied::OutOfMemory)?;
        let later = size.later().ok_or(ClaimDenied::OutOfMemory)?;
        let anywhere = DeviceSlot::new(0).ok_or(ClaimDenied::OutOfMemory)?;
        let library = self.enlist(List::Libraries, self.entry(anywhere, units))?;
        self.charge_everywhere(&library, daemon)?;
        let handle = driver().map_err(ClaimDenied::Driver)?;
        let loaded =
            TableEntry { units: Units::ZERO, detail: deferring(later), link: library.place, ..library.entry };
        let before = self.table.put(EntryKind::Loaded, handle, loaded).inspect_err(|_| undo(handle))?;
        library.keep();
        before.into_iter().for_each(|gone| self.unloaded(&gone));
        Ok(handle)
    }

    /// Lets `driver` unload a library, then releases its charge in every context.
    pub fn unload_library<E>(&self, handle: u64, driver: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let stamp = self.table.stamp();
        driver()?;
        if let Some(loaded) = self.table.take(EntryKind::Loaded, handle, stamp) {
            self.unloaded(&loaded);
        }
        Ok(())
    }

    /// Charges the deferred part of a library in every context, before a function of it is loaded.
    pub fn need_library(&self, handle: u64, daemon: &impl DaemonLink) -> Charged<()> {
        let due =
            || self.table.find(EntryKind::Loaded, handle).filter(|loaded| deferred(loaded) > Units::ZERO);
        if due().is_none() {
            return Ok(());
        }
        // Another thread that needs it has to wait until it is charged.
        let _turn = self.loading().acquire();
        let Some(seen) = due() else { return Ok(()) };
        let entry = self.entry(seen.device, deferred(&seen));
        let code = self.enlist(List::Libraries, entry).map_err(|Full| ChargeRefused)?;
        self.charge_everywhere(&code, daemon)?;
        let mut is_there = false;
        self.table.alter(EntryKind::Loaded, handle, |known| {
            is_there = known.serial == seen.serial;
            if is_there { TableEntry { detail: code.place, ..known } } else { known }
        });
        if is_there {
            code.keep();
        }
        Ok(())
    }

    /// Releases the charges of a library that was unloaded, by its entry.
    fn unloaded(&self, loaded: &TableEntry) {
        self.leave_library(loaded.link, loaded.serial);
        // The place of its code, should that have been needed.
        let code = loaded.detail & ((1 << PLACE_BITS) - 1);
        if let Some(entry) = self.table.find(EntryKind::Library, code) {
            self.leave_library(code, entry.serial);
        }
    }

    /// Enters a context that is about to be made and charges the libraries in it.
    pub(crate) fn enter_present(
        &self,
        device: DeviceSlot,
        daemon: &impl DaemonLink,
    ) -> Charged<Enlisted<'a>> {
        let context =
            self.enlist(List::Contexts, self.entry(device, Units::ZERO)).map_err(|Full| ChargeRefused)?;
        self.charge_copies(&context, daemon)?;
        Ok(context)
    }

    /// Enters the primary context of a device likewise, until it [leaves](Self::leave_primary).
    pub(crate) fn enter_primary(&self, device: DeviceSlot, daemon: &impl DaemonLink) -> Charged<()> {
        let (place, entry) = (primary_place(device), self.entry(device, Units::ZERO));
        self.table.put(EntryKind::Present, place, entry).map_err(|Full| ChargeRefused)?;
        fence(SeqCst);
        let context = Enlisted { ledger: *self, list: List::Contexts, place, entry };
        self.charge_copies(&context, daemon)?;
        context.keep();
        Ok(())
    }

    pub(crate) fn leave_primary(&self, device: DeviceSlot) {
        if let Some(entry) = self.table.find(EntryKind::Present, primary_place(device)) {
            self.leave_present(primary_place(device), entry.serial);
        }
    }

    /// Releases the charges of libraries in a context that has ended.
    pub(crate) fn leave_present(&self, place: u64, serial: u64) {
        self.delist(List::Contexts, place, serial);
        for library in List::Libraries.first()..self.end_of(List::Libraries) {
            self.drop_copy(library, place, |copy| copy.link == serial);
        }
    }

    fn leave_library(&self, place: u64, serial: u64) {
        self.delist(List::Libraries, place, serial);
        for context in 1..self.end_of(List::Contexts) {
            self.drop_copy(place, context, |copy| copy.detail & !ALLOWED == serial);
        }
    }

    fn charge_everywhere(&self, library: &Enlisted<'a>, daemon: &impl DaemonLink) -> Charged<()> {
        self.listed(List::Contexts)
            .try_for_each(|context| self.charge_copy((library.place, library.entry), context, daemon))
    }

    fn charge_copies(&self, context: &Enlisted<'a>, daemon: &impl DaemonLink) -> Charged<()> {
        self.listed(List::Libraries)
            .try_for_each(|library| self.charge_copy(library, (context.place, context.entry), daemon))
    }

    /// Charges a library in a context, unless it is charged already or one of them has left.
    fn charge_copy(
        &self,
        (library_place, library): (u64, TableEntry),
        (context_place, context): (u64, TableEntry),
        daemon: &impl DaemonLink,
    ) -> Charged<()> {
        let key = copy_key(library_place, context_place);
        let of_both =
            |copy: &TableEntry| copy.detail & !ALLOWED == library.serial && copy.link == context.serial;
        if self.table.find(EntryKind::Copy, key).is_some_and(|copy| of_both(&copy)) {
            return Ok(());
        }
        let allowance = Allowance::take(self, context.device);
        let units = if allowance.is_some() { library.units.saturating_sub(BLOCK) } else { library.units };
        let allowed = if allowance.is_some() { ALLOWED } else { 0 };
        let reserved = self.tenant.charge(context.device, units, daemon)?;
        let copy = TableEntry { units, detail: library.serial | allowed, link: context.serial, ..context };
        // Places are reused: of two with the same key that of the newer library or context counts.
        let mut is_entered = false;
        let before = self.table.change(EntryKind::Copy, key, |known| {
            let newer = |known: &TableEntry| {
                of_both(known) || known.detail & !ALLOWED > library.serial || known.link > context.serial
            };
            is_entered = !known.as_ref().is_some_and(newer);
            if is_entered { Some(copy) } else { known }
        });
        let before = before.map_err(|Full| ChargeRefused)?;
        if is_entered {
            reserved.keep(units);
            allowance.into_iter().for_each(Allowance::keep);
            before.into_iter().for_each(|gone| self.forget(EntryKind::Copy, key, gone));
        }
        fence(SeqCst);
        let are_there = self.is_listed(List::Libraries, library_place, library.serial)
            && self.is_listed(List::Contexts, context_place, context.serial);
        if !are_there {
            self.drop_copy(library_place, context_place, of_both);
        }
        Ok(())
    }

    fn drop_copy(&self, library: u64, context: u64, which: impl Fn(&TableEntry) -> bool) {
        let key = copy_key(library, context);
        let mut gone = None;
        let _ = self.table.change(EntryKind::Copy, key, |copy| {
            gone = copy.filter(&which);
            copy.filter(|_| gone.is_none())
        });
        gone.into_iter().for_each(|gone| self.forget(EntryKind::Copy, key, gone));
    }

    /// Returns the allowance of a charge that has been released.
    pub(crate) fn copy_gone(&self, copy: TableEntry) {
        if copy.detail & ALLOWED != 0 {
            self.return_allowance(copy.device);
        }
    }

    /// Enters an item in the first free place of a list, before any charge for it.
    fn enlist(&self, list: List, entry: TableEntry) -> Result<Enlisted<'a>, Full> {
        for place in list.first()..1 << PLACE_BITS {
            let mut is_mine = false;
            self.table.change(list.kind(), place, |known| {
                is_mine = known.is_none();
                known.or(Some(entry))
            })?;
            if is_mine {
                self.places(list).fetch_max(place + 1, SeqCst);
                fence(SeqCst);
                return Ok(Enlisted { ledger: *self, list, place, entry });
            }
        }
        Err(Full)
    }

    fn delist(&self, list: List, place: u64, serial: u64) {
        let _ = self.table.change(list.kind(), place, |known| known.filter(|known| known.serial != serial));
        fence(SeqCst);
    }

    fn is_listed(&self, list: List, place: u64, serial: u64) -> bool {
        self.table.find(list.kind(), place).is_some_and(|entry| entry.serial == serial)
    }

    /// One more than the last place of a list that was ever taken.
    fn end_of(&self, list: List) -> u64 {
        self.places(list).load(SeqCst).max(list.first())
    }

    /// Entries of a list. An item that enters during the iteration finds its counterpart in the other list.
    fn listed(&self, list: List) -> impl Iterator<Item = (u64, TableEntry)> {
        (1..self.end_of(list)).filter_map(move |place| Some((place, self.table.find(list.kind(), place)?)))
    }
}

const fn primary_place(device: DeviceSlot) -> u64 {
    device.index() as u64 + 1
}

/// Places have fewer than 32 bits, so that no two pairs have the same key.
const fn copy_key(library: u64, context: u64) -> u64 {
    library << PLACE_BITS | context
}
