//! Arrays and mipmapped arrays, charged in whole blocks.

use core::ffi::c_int;

use tranche_policy::{ArrayShape, Claim, EntryKind, Extent, Tile};

use super::abi::{INVALID_VALUE, OUT_OF_MEMORY, Width, checked, code};
use super::current::current;
use super::invalid::or_invalid;
use super::ledger::{ended_by_ledger, refused};
use super::mark::{self, EventMarks};
use super::reclaim::with_reclaim;
use super::{driver, external};
use crate::attach;
use crate::connection::DaemonLine;
use crate::driver_call::{DriverCall, number};

/// `CUDA_ARRAY_DESCRIPTOR`; its first version had 32-bit sizes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Array2d<S> {
    width: S,
    height: S,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`; its first version had 32-bit sizes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Array3d<S> {
    width: S,
    height: S,
    depth: S,
    format: u32,
    channels: u32,
    flags: u32,
}

/// An array descriptor of the driver, in any of its versions.
pub(crate) trait Descriptor: Copy {
    fn shape(self) -> ArrayShape;
}

impl<S: Width> Descriptor for Array2d<S> {
    fn shape(self) -> ArrayShape {
        let (width, height) = (self.width.wide(), self.height.wide());
        ArrayShape { width, height, depth: 0, format: self.format, channels: self.channels, flags: 0 }
    }
}

impl<S: Width> Descriptor for Array3d<S> {
    fn shape(self) -> ArrayShape {
        ArrayShape {
            width: self.width.wide(),
            height: self.height.wide(),
            depth: self.depth.wide(),
            format: self.format,
            channels: self.channels,
            flags: self.flags,
        }
    }
}

pub(crate) unsafe fn create<D: Descriptor>(
    real: impl Fn(*mut u64) -> c_int,
    shape: *const D,
) -> Result<u64, c_int> {
    // SAFETY: null or valid by the hook's contract; what is destroyed was just made, and no other code has its handle.
    unsafe { made(real, shape, 1, |made| _ = driver::cuArrayDestroy(made)) }
}

pub(crate) unsafe fn create_mipmapped(
    real: impl Fn(*mut u64) -> c_int,
    shape: *const Array3d<usize>,
    levels: u32,
) -> Result<u64, c_int> {
    // SAFETY: null or valid by the hook's contract; the array that is destroyed was just made, as in `create`.
    unsafe { made(real, shape, levels, |made| _ = driver::cuMipmappedArrayDestroy(made)) }
}

/// Charges an array and lets `real` make it. The driver refuses one without a shape itself.
///
/// # Safety
/// `shape` must be null or readable.
unsafe fn made<D: Descriptor>(
    real: impl Fn(*mut u64) -> c_int,
    shape: *const D,
    levels: u32,
    undo: fn(u64),
) -> Result<u64, c_int> {
    let real = number(real);
    // SAFETY: the pointer is null or readable, by this function's contract.
    let shape = unsafe { shape.as_ref() };
    shape.map_or_else(&real, |shape| charged(shape.shape(), levels, DriverCall::of(&real), undo))
}

#[inline(never)]
fn charged(
    shape: ArrayShape,
    levels: u32,
    real: DriverCall<'_, Result<u64, c_int>>,
    undo: fn(u64),
) -> Result<u64, c_int> {
    let made = allocated(shape.bytes(levels), real, undo);
    or_invalid(made, || super::invalid::array(shape.width, shape.format, shape.channels))
}

fn allocated(
    bytes: Option<u64>,
    real: DriverCall<'_, Result<u64, c_int>>,
    undo: fn(u64),
) -> Result<u64, c_int> {
    let place = current()?;
    let Some(extent) = bytes.and_then(Extent::blocks) else { return Err(refused(&place.ledger)) };
    let claim = Claim { device: place.device, extent, owner: place.owner };
    with_reclaim(&place.ledger, || {
        let driver = || real.make().map(|made| (made, extent));
        place.ledger.allocate(EntryKind::Array, claim, &DaemonLine, driver, undo)
    })
}

pub(crate) fn destroy(real: impl FnOnce() -> c_int, array: u64) -> c_int {
    ended_by_ledger(
        || checked(real()),
        |ledger, driver| {
            ledger.free(EntryKind::Array, array, || {
                external::free_view(ledger, external::in_array(array), driver)
            })
        },
    )
}

/// `CUarrayMapInfo`
#[repr(C)]
pub(crate) struct MapInfo {
    resource: u64,
    array: u64,
    region: [u64; 5],
    operation: c_int,
    handle_type: c_int,
    memory: u64,
    rest: [u64; 3],
}

/// True for `CU_MEM_OPERATION_TYPE_MAP`, false for an operation that unmaps; `None` if unknown.
pub(crate) const fn is_map(operation: c_int) -> Option<bool> {
    match operation {
        1 => Some(true),
        2 => Some(false),
        _ => None,
    }
}

impl MapInfo {
    fn tile(&self) -> Tile {
        let memory = (is_map(self.operation) == Some(true)).then_some(self.memory);
        Tile { array: self.array, region: self.region, memory }
    }
}

/// Lets `real` map memory into arrays or unmap it.
///
/// # Safety
/// `list` is null or has `count` entries.
pub(crate) unsafe fn map(real: impl Fn() -> c_int, list: *const MapInfo, count: u32, stream: u64) -> c_int {
    // SAFETY: the contract of `mapped` is this function's.
    unsafe { mapped(list, count, stream, DriverCall::of(&real)) }
}

/// As [`map`], compiled once for all calls.
///
/// # Safety
/// As for [`map`].
#[inline(never)]
unsafe fn mapped(list: *const MapInfo, count: u32, stream: u64, real: DriverCall<'_>) -> c_int {
    let Ok(ledger) = attach::ledger() else { return OUT_OF_MEMORY };
    if list.is_null() {
        return real.make();
    }
    // SAFETY: not null, and of `count` entries by this function's contract.
    let list = unsafe { core::slice::from_raw_parts(list, count as usize) };
    if list.iter().any(|info| is_map(info.operation).is_none()) {
        return INVALID_VALUE;
    }
    mark::used();
    let mapped = ledger.map_tiles(
        list.iter().map(MapInfo::tile),
        &EventMarks,
        || mark::behind(stream),
        || checked(real.make()),
    );
    ledger.flush_shares(&DaemonLine);
    code(mapped)
}
