//! Copies: each entry point moves a box of bytes from one place to another.

use crate::bytes::{Copy, Side};
use crate::driver::{Driver, Table, driver};
use crate::lookup::{DefaultStream, find, select};
use crate::memory::span::Place;
use crate::state::stream::Op;
use crate::status::{Outcome, Status};
use crate::wall::{Host, In};

/// Wait of the caller for the operation.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    /// Until the bytes have arrived, where the host could see that they have not.
    Yes,
    /// The call returns at once.
    No,
}

/// Puts an operation into a stream.
pub(crate) fn put(default: DefaultStream, stream: u64, op: Op, wait: Wait) -> Outcome {
    let driver = driver()?;
    let stream = select(driver, default, stream)?;
    match wait {
        Wait::No => stream.enqueue(driver, op),
        Wait::Yes => {
            stream.must_not_capture(driver)?;
            let is_waited_for = op.is_waited_for();
            stream.enqueue(driver, op)?;
            if is_waited_for { stream.synchronize(driver) } else { Ok(()) }
        }
    }
}

fn place(of: impl FnOnce(&Table) -> Outcome<Place>) -> Outcome<Place> {
    of(&driver()?.table())
}

/// Device memory of any context.
pub(crate) fn on_device(address: u64, bytes: usize) -> Outcome<Place> {
    place(|table| table.ranges.device_place(address, bytes as u64))
}

/// A caller's buffer, or any memory of this driver: the two share one address space.
fn anywhere(address: u64, bytes: usize) -> Outcome<Place> {
    place(|table| table.ranges.place(address, bytes as u64))
}

fn in_array(handle: u64, offset: usize, bytes: usize) -> Outcome<Place> {
    place(|table| {
        let array = find(&table.arrays, handle)?;
        if (offset as u64).checked_add(bytes as u64).is_none_or(|end| end > array.bytes()) {
            return Err(Status::InvalidValue);
        }
        let (place, _, _) = array.place(table)?;
        Ok(place.after(offset as u64))
    })
}

fn linear(default: DefaultStream, stream: u64, sides: (Place, Place), bytes: usize, wait: Wait) -> Outcome {
    let (from, to) = sides;
    if bytes == 0 {
        return Ok(());
    }
    from.check()?;
    to.check()?;
    put(default, stream, Op::Copy(Copy::linear(from, to, bytes as u64)), wait)
}

macro_rules! copies {
    ($($(#[$doc:meta])* $sync:ident, $later:ident ($($name:ident: $type:ty),*) $from:expr => $to:expr;)*) => {
        $(
            $(#[$doc])*
            pub(crate) fn $sync(default: DefaultStream, $($name: $type,)* bytes: usize) -> Outcome {
                linear(default, 0, ($from(bytes)?, $to(bytes)?), bytes, Wait::Yes)
            }
            $(#[$doc])*
            pub(crate) fn $later(default: DefaultStream, $($name: $type,)* bytes: usize, stream: u64) -> Outcome {
                linear(default, stream, ($from(bytes)?, $to(bytes)?), bytes, Wait::No)
            }
        )*
    };
}

copies! {
    /// Copies from host to device.
    to_device, to_device_async (to: u64, from: Host)
        |bytes| anywhere(from.address(), bytes) => |bytes| on_device(to, bytes);
    /// Copies from device to host.
    to_host, to_host_async (to: Host, from: u64)
        |bytes| on_device(from, bytes) => |bytes| anywhere(to.address(), bytes);
    /// Copies from device to device.
    on_devices, on_devices_async (to: u64, from: u64)
        |bytes| on_device(from, bytes) => |bytes| on_device(to, bytes);
    /// Copies from anywhere to anywhere.
    unified, unified_async (to: u64, from: u64)
        |bytes| anywhere(from, bytes) => |bytes| anywhere(to, bytes);
    /// Between two contexts, which share one address space.
    peer, peer_async (to: u64, to_context: u64, from: u64, from_context: u64)
        |bytes| in_context(from_context, from, bytes) => |bytes| in_context(to_context, to, bytes);
    /// Copies from array to host.
    array_to_host, array_to_host_async (to: Host, from: u64, offset: usize)
        |bytes| in_array(from, offset, bytes) => |bytes| anywhere(to.address(), bytes);
    /// Copies from host to array.
    host_to_array, host_to_array_async (to: u64, offset: usize, from: Host)
        |bytes| anywhere(from.address(), bytes) => |bytes| in_array(to, offset, bytes);
}

fn in_context(context: u64, address: u64, bytes: usize) -> Outcome<Place> {
    driver()?.table().contexts.get(&context).ok_or(Status::InvalidContext)?;
    on_device(address, bytes)
}

pub(crate) fn array_to_device(
    default: DefaultStream,
    to: u64,
    from: u64,
    offset: usize,
    bytes: usize,
) -> Outcome {
    linear(default, 0, (in_array(from, offset, bytes)?, on_device(to, bytes)?), bytes, Wait::Yes)
}

pub(crate) fn device_to_array(
    default: DefaultStream,
    to: u64,
    offset: usize,
    from: u64,
    bytes: usize,
) -> Outcome {
    linear(default, 0, (on_device(from, bytes)?, in_array(to, offset, bytes)?), bytes, Wait::Yes)
}

pub(crate) fn array_to_array(
    default: DefaultStream,
    to: u64,
    to_offset: usize,
    from: u64,
    from_offset: usize,
    bytes: usize,
) -> Outcome {
    linear(
        default,
        0,
        (in_array(from, from_offset, bytes)?, in_array(to, to_offset, bytes)?),
        bytes,
        Wait::Yes,
    )
}

pub(crate) fn to_device_low(to: u32, from: Host, bytes: u32) -> Outcome {
    to_device(DefaultStream::Legacy, u64::from(to), from, bytes as usize)
}

pub(crate) fn to_host_low(to: Host, from: u32, bytes: u32) -> Outcome {
    to_host(DefaultStream::Legacy, to, u64::from(from), bytes as usize)
}

pub(crate) fn on_devices_low(to: u32, from: u32, bytes: u32) -> Outcome {
    on_devices(DefaultStream::Legacy, u64::from(to), u64::from(from), bytes as usize)
}

pub(crate) fn to_device_async_low(to: u32, from: Host, bytes: u32, stream: u64) -> Outcome {
    to_device_async(DefaultStream::Legacy, u64::from(to), from, bytes as usize, stream)
}

pub(crate) fn to_host_async_low(to: Host, from: u32, bytes: u32, stream: u64) -> Outcome {
    to_host_async(DefaultStream::Legacy, to, u64::from(from), bytes as usize, stream)
}

pub(crate) fn on_devices_async_low(to: u32, from: u32, bytes: u32, stream: u64) -> Outcome {
    on_devices_async(DefaultStream::Legacy, u64::from(to), u64::from(from), bytes as usize, stream)
}

/// One side of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct FlatSide {
    x: usize,
    y: usize,
    memory_type: i32,
    host: Host,
    device: u64,
    array: u64,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct FlatCopy {
    from: FlatSide,
    to: FlatSide,
    width: usize,
    height: usize,
}

/// One side of `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`, which differ in what stands at `context`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DeepSide {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    memory_type: i32,
    host: Host,
    device: u64,
    array: u64,
    context: u64,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DeepCopy {
    from: DeepSide,
    to: DeepSide,
    width: usize,
    height: usize,
    depth: usize,
}

impl FlatCopy {
    fn deep(&self) -> DeepCopy {
        let side = |side: FlatSide| DeepSide {
            x: side.x,
            y: side.y,
            z: 0,
            level: 0,
            memory_type: side.memory_type,
            host: side.host,
            device: side.device,
            array: side.array,
            context: 0,
            pitch: side.pitch,
            height: 0,
        };
        DeepCopy {
            from: side(self.from),
            to: side(self.to),
            width: self.width,
            height: self.height,
            depth: 1,
        }
    }
}

impl DeepSide {
    fn side(&self, table: &Table, extent: [u64; 3]) -> Outcome<Side> {
        let [width, height, depth] = extent;
        let (x, y, z) = (self.x as u64, self.y as u64, self.z as u64);
        let pitch = if self.pitch == 0 { width } else { self.pitch as u64 };
        let rows = if self.height == 0 { height } else { self.height as u64 };
        let slice = pitch.checked_mul(rows).ok_or(Status::InvalidValue)?;
        let span = |pitch: u64, slice: u64| -> Option<(u64, u64)> {
            let start = z.checked_mul(slice)?.checked_add(y.checked_mul(pitch)?)?.checked_add(x)?;
            let last = (depth - 1).checked_mul(slice)?.checked_add((height - 1).checked_mul(pitch)?)?;
            Some((start, last.checked_add(width)?))
        };
        let linear = |base: u64, known: bool| {
            let (start, length) = span(pitch, slice).ok_or(Status::InvalidValue)?;
            let at = base.checked_add(start).ok_or(Status::InvalidValue)?;
            let place =
                if known { table.ranges.device_place(at, length) } else { table.ranges.place(at, length) }?;
            place.check()?;
            Ok(Side { place, pitch, slice })
        };
        match self.memory_type {
            1 => linear(self.host.address(), false),
            2 => linear(self.device, true),
            3 => {
                let array = find(&table.arrays, self.array)?;
                let (place, pitch, slice) = array.place(table)?;
                let (start, length) = span(pitch, slice).ok_or(Status::InvalidValue)?;
                if start + length > array.bytes() || x + width > pitch {
                    return Err(Status::InvalidValue);
                }
                Ok(Side { place: place.after(start), pitch, slice })
            }
            4 => linear(self.device, false),
            _ => Err(Status::InvalidValue),
        }
    }
}

impl DeepCopy {
    /// The copy this describes; nothing for an empty box.
    pub(crate) fn copy(&self, driver: &Driver) -> Outcome<Option<Copy>> {
        let table = driver.table();
        let extent = [self.width as u64, self.height as u64, self.depth as u64];
        if extent.contains(&0) {
            return Ok(None);
        }
        if self.from.level != 0 || self.to.level != 0 {
            return Err(Status::InvalidValue);
        }
        let (from, to) = (self.from.side(&table, extent)?, self.to.side(&table, extent)?);
        if width_exceeds(&from, extent[0]) || width_exceeds(&to, extent[0]) {
            return Err(Status::InvalidValue);
        }
        Ok(Some(Copy { from, to, extent }))
    }
}

const fn width_exceeds(side: &Side, width: u64) -> bool {
    side.pitch < width
}

fn shaped(default: DefaultStream, copy: DeepCopy, stream: u64, wait: Wait) -> Outcome {
    match copy.copy(driver()?)? {
        Some(copy) => put(default, stream, Op::Copy(copy), wait),
        None => Ok(()),
    }
}

pub(crate) fn flat(default: DefaultStream, copy: In<FlatCopy>) -> Outcome {
    shaped(default, copy.get()?.deep(), 0, Wait::Yes)
}

pub(crate) fn flat_async(default: DefaultStream, copy: In<FlatCopy>, stream: u64) -> Outcome {
    shaped(default, copy.get()?.deep(), stream, Wait::No)
}

pub(crate) fn deep(default: DefaultStream, copy: In<DeepCopy>) -> Outcome {
    shaped(default, copy.get()?, 0, Wait::Yes)
}

pub(crate) fn deep_async(default: DefaultStream, copy: In<DeepCopy>, stream: u64) -> Outcome {
    shaped(default, copy.get()?, stream, Wait::No)
}
