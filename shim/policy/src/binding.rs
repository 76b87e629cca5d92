//! Bindings of physical memory to multicast objects, logical endpoints, and arrays without memory.
//!
//! Bound memory stays charged until it is unbound, even after the release of its handle.

use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::ledger::Ledger;
use crate::link::{MAPPING, MULTICAST, REFERENCE};
use crate::mark::{Behind, Mark, Marks};
use crate::table::{EntryKind, TableEntry};

/// A region of an array, with the physical memory to map there, or none to unmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Handle of the array.
    pub array: u64,
    /// Region within the array, in the words of the driver's request.
    pub region: [u64; 5],
    /// Handle of the memory; `None` unmaps.
    pub memory: Option<u64>,
}

/// Source of a binding to a multicast object or an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Physical memory by its handle.
    Handle(u64),
    /// The physical memory that is mapped around an address.
    Address(u64),
}

impl Ledger<'_> {
    /// Enters a new multicast object. It takes no memory itself, and keeps memory bound to it charged.
    pub fn multicast_made(&self, object: u64) {
        let Some(device) = DeviceSlot::new(0) else { return };
        let entry = TableEntry { detail: REFERENCE, link: MULTICAST, ..self.entry(device, Units::ZERO) };
        if let Ok(Some(gone)) = self.table.put(EntryKind::Physical, object, entry) {
            self.forget(EntryKind::Physical, object, gone);
        }
    }

    /// Lets `driver` bind memory to a place in a multicast object or an endpoint.
    pub fn bind<E>(
        &self,
        (object, offset): (u64, u64),
        memory: Bound,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let handle = match memory {
            Bound::Handle(handle) => Some(handle),
            Bound::Address(address) => self.mapping_around(address).map(|mapping| mapping.link),
        };
        let Some(physical) = handle.and_then(|handle| self.pin(handle)) else { return driver() };
        let handle = handle.unwrap_or_default();
        driver().inspect_err(|_| self.drop_part(handle, physical.serial, MAPPING))?;
        let place = place(&[object, offset, physical.device.index() as u64]);
        self.enter_binding(place, object, handle, physical.device)
            .into_iter()
            .for_each(|gone| self.drop_mapping(gone));
        Ok(())
    }

    /// Enters the memory of a place and returns the entry before it.
    ///
    /// A binding that finds no room in the table keeps its memory charged: too much, never too little.
    fn enter_binding(&self, place: u64, object: u64, handle: u64, device: DeviceSlot) -> Option<TableEntry> {
        let entry = TableEntry { detail: object, link: handle, ..self.entry(device, Units::ZERO) };
        self.few.put(EntryKind::Binding, place, entry).unwrap_or(None)
    }

    /// Lets `driver` map physical memory into arrays, or unmap it, in the order of a stream.
    ///
    /// Unmapped and replaced memory stays charged until the stream has reached the operation, which `mark` shows.
    pub fn map_tiles<E>(
        &self,
        tiles: impl Iterator<Item = Tile> + Clone,
        marks: &impl Marks,
        mark: impl Fn() -> Mark,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let memory = || tiles.clone().filter_map(|tile| tile.memory);
        let stamp = self.table.stamp();
        memory().for_each(|handle| _ = self.pin(handle));
        driver().inspect_err(|_| memory().for_each(|handle| self.drop_part(handle, stamp, MAPPING)))?;
        for tile in tiles {
            let place = tile.place();
            let known =
                tile.memory.and_then(|handle| Some((handle, self.table.find(EntryKind::Physical, handle)?)));
            let before = match known {
                Some((handle, physical)) => self.enter_binding(place, tile.array, handle, physical.device),
                None => self.few.take(EntryKind::Binding, place, u64::MAX),
            };
            before.into_iter().for_each(|gone| self.tile_leaves(place, gone, marks, &mark));
        }
        Ok(())
    }

    /// Renames the entry of leaving memory: its place may be taken again before the stream reaches it.
    fn tile_leaves(&self, place: u64, gone: TableEntry, marks: &impl Marks, mark: impl Fn() -> Mark) {
        let name = self::place(&[place, gone.serial]);
        if self.few.put(EntryKind::Binding, name, gone).is_ok() {
            self.leave_behind(Behind::Tile(name), gone.device, mark(), marks);
        }
    }

    /// Ends all bindings of an array or an endpoint that has been destroyed.
    pub fn unbind_all(&self, object: u64) {
        for (_, _, gone) in self.few.drain(&[EntryKind::Binding], |entry| entry.detail == object) {
            self.drop_mapping(gone);
        }
    }

    /// Lets `driver` unbind the memory of a place in a multicast object.
    pub fn unbind<E>(
        &self,
        (object, offset): (u64, u64),
        device: DeviceSlot,
        driver: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let stamp = self.table.stamp();
        driver()?;
        let place = place(&[object, offset, device.index() as u64]);
        if let Some(gone) = self.few.take(EntryKind::Binding, place, stamp) {
            self.drop_mapping(gone);
        }
        Ok(())
    }
}

impl Tile {
    /// The upper half of the first word is padding, which may hold anything.
    fn place(self) -> u64 {
        let [kind, rest @ ..] = self.region;
        place(&[self.array, kind & 0xffff_ffff, rest[0], rest[1], rest[2], rest[3]])
    }
}

/// Key of a place within an object: a hash of its words, wide enough that two places never share one.
fn place(words: &[u64]) -> u64 {
    let mix = |hash: u64, word: &u64| {
        let hash = (hash ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash ^ hash >> 29
    };
    words.iter().fold(0x9e37_79b9_7f4a_7c15, mix) >> 2
}
