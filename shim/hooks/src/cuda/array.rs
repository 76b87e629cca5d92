//! Arrays and mipmapped arrays, charged in whole blocks.

use core::ffi::c_int;

use tranche_policy::{ArrayShape, Claim, Extent, Kind};

use super::{Width, checked, code, current, driver, refused, with_reclaim};
use crate::attach;
use crate::connection::Line;

/// `CUDA_ARRAY_DESCRIPTOR`; its first form had 32-bit sizes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Flat<S> {
    width: S,
    height: S,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`; its first form had 32-bit sizes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Solid<S> {
    width: S,
    height: S,
    depth: S,
    format: u32,
    channels: u32,
    flags: u32,
}

/// A descriptor of the driver's.
pub(crate) trait Descriptor: Copy {
    fn shape(self) -> ArrayShape;
}

impl<S: Width> Descriptor for Flat<S> {
    fn shape(self) -> ArrayShape {
        let (width, height) = (self.width.wide(), self.height.wide());
        ArrayShape { width, height, depth: 0, format: self.format, channels: self.channels, flags: 0 }
    }
}

impl<S: Width> Descriptor for Solid<S> {
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
    real: unsafe extern "C" fn(*mut u64, *const D) -> c_int,
    array: *mut u64,
    shape: *const D,
) -> c_int {
    // SAFETY: the program's own call; what is read of it was checked for null.
    unsafe {
        if array.is_null() || shape.is_null() {
            return real(array, shape);
        }
        let undo = |made| _ = driver::cuArrayDestroy(made);
        code(charged((*shape).shape().bytes(1), |made| real(made, shape), undo).map(|made| *array = made))
    }
}

pub(crate) unsafe fn create_mipmapped(
    real: unsafe extern "C" fn(*mut u64, *const Solid<usize>, u32) -> c_int,
    array: *mut u64,
    shape: *const Solid<usize>,
    levels: u32,
) -> c_int {
    // SAFETY: the program's own call; what is read of it was checked for null.
    unsafe {
        if array.is_null() || shape.is_null() {
            return real(array, shape, levels);
        }
        let undo = |made| _ = driver::cuMipmappedArrayDestroy(made);
        let bytes = (*shape).shape().bytes(levels);
        code(charged(bytes, |made| real(made, shape, levels), undo).map(|made| *array = made))
    }
}

fn charged(bytes: Option<u64>, real: impl Fn(*mut u64) -> c_int, undo: impl Fn(u64)) -> Result<u64, c_int> {
    let place = current()?;
    let Some(extent) = bytes.and_then(Extent::blocks) else { return Err(refused(&place.ledger)) };
    let claim = Claim { device: place.device, extent, owner: place.owner };
    with_reclaim(&place.ledger, || {
        let driver = || {
            let mut made = 0;
            checked(real(&mut made)).map(|()| (made, extent))
        };
        place.ledger.allocate(Kind::Array, claim, &Line, driver, &undo)
    })
}

pub(crate) unsafe fn destroy(real: unsafe extern "C" fn(u64) -> c_int, array: u64) -> c_int {
    // SAFETY: the program's own call.
    let driver = || checked(unsafe { real(array) });
    match attach::ledger() {
        Ok(ledger) => code(ledger.free(Kind::Array, array, driver)),
        Err(attach::Outside) => code(driver()),
    }
}
