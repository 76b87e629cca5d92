//! Copies and fills, where the daemon has them counted.
//!
//! Asynchronous ones, and others inside devices, for whose end the driver does not wait either. Copies whose end the
//! call waits for are never delayed.

use core::ffi::c_int;

use tranche_policy::{Route, Transfer};

use super::abi::{SUCCESS, Width};
use super::driver;
use super::stream::Stream;
use crate::launch::{be_present, transferred};

/// A memory type of copies with a shape.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

/// A kind of operand of [`BatchCopy`], `CUmemcpy3DOperandType`.
const POINTER_OPERAND: u32 = 1;
const ARRAY_OPERAND: u32 = 2;

/// `CUDA_MEMCPY2D`, in the oldest form with numbers of 32 bits.
#[repr(C)]
pub(crate) struct Copy2d<N> {
    from_at: [N; 2],
    from: u32,
    from_host: u64,
    from_device: N,
    from_array: u64,
    from_pitch: N,
    to_at: [N; 2],
    to: u32,
    to_host: u64,
    to_device: N,
    to_array: u64,
    to_pitch: N,
    extent: [N; 2],
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`, likewise.
#[repr(C)]
pub(crate) struct Copy3d<N> {
    from_at: [N; 4],
    from: u32,
    from_host: u64,
    from_device: N,
    from_array: u64,
    from_context: u64,
    from_shape: [N; 2],
    to_at: [N; 4],
    to: u32,
    to_host: u64,
    to_device: N,
    to_array: u64,
    to_context: u64,
    to_shape: [N; 2],
    extent: [N; 3],
}

/// `CUDA_MEMCPY3D_BATCH_OP`: with an array its extent is in elements, which are taken for bytes.
#[repr(C)]
pub(crate) struct BatchCopy {
    /// Source, then destination: kind in the lower half of the first word, then the address of a pointer.
    operands: [[u64; 5]; 2],
    extent: [u64; 3],
    order: [u32; 2],
}

impl BatchCopy {
    fn route(&self) -> Route {
        let [from, to] = self.operands.map(|operand| match operand[0] as u32 {
            POINTER_OPERAND => kind_at(operand[1]),
            ARRAY_OPERAND => ARRAY,
            _ => UNIFIED,
        });
        route(from, to)
    }
}

/// Description of a copy, in any of its versions.
pub(crate) trait CopyShape {
    fn transfer(&self) -> Transfer;
}

impl<N: Width> CopyShape for Copy2d<N> {
    fn transfer(&self) -> Transfer {
        let end = |kind, address: N| if kind == UNIFIED { kind_at(address.wide()) } else { kind };
        let route = route(end(self.from, self.from_device), end(self.to, self.to_device));
        Transfer { route, bytes: product(&self.extent) }
    }
}

impl<N: Width> CopyShape for Copy3d<N> {
    fn transfer(&self) -> Transfer {
        let end = |kind, address: N| if kind == UNIFIED { kind_at(address.wide()) } else { kind };
        let route = route(end(self.from, self.from_device), end(self.to, self.to_device));
        Transfer { route, bytes: product(&self.extent) }
    }
}

fn product<N: Width>(extent: &[N]) -> u64 {
    extent.iter().fold(1, |bytes, side| side.wide().saturating_mul(bytes))
}

const fn route(from: u32, to: u32) -> Route {
    match (from, to) {
        (DEVICE | ARRAY, DEVICE | ARRAY) => Route::Device,
        (HOST, DEVICE | ARRAY) => Route::Upload,
        (DEVICE | ARRAY, HOST) => Route::Download,
        _ => Route::Unknown,
    }
}

/// Passes a transfer in a default stream. Only one with both ends on devices counts.
#[inline(always)]
pub(crate) fn at_once(real: impl Fn() -> c_int, stream: Stream, what: impl FnOnce() -> Transfer) -> c_int {
    be_present();
    match what() {
        inside if inside.is_inside() => transferred(real, stream, || inside),
        _ => real(),
    }
}

/// Memory type at an address; memory unknown to the driver is the host's.
fn kind_at(address: u64) -> u32 {
    /// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`
    const MEMORY_TYPE: c_int = 2;
    let mut kind = HOST;
    // SAFETY: writes one value into a local, or none.
    let asked = unsafe { driver::cuPointerGetAttribute((&raw mut kind).cast(), MEMORY_TYPE, address) };
    if asked == SUCCESS { kind } else { HOST }
}

#[inline(never)]
pub(crate) fn between(from: u64, to: u64) -> Route {
    route(kind_at(from), kind_at(to))
}

pub(crate) fn of(route: Route, bytes: impl Width) -> Transfer {
    Transfer { route, bytes: bytes.wide() }
}

pub(crate) fn rows<V>(width: impl Width, height: impl Width) -> Transfer {
    of(Route::Fill, product(&[size_of::<V>() as u64, width.wide(), height.wide()]))
}

/// The transfer of a description; the driver refuses a call without one.
#[inline(never)]
pub(crate) fn shaped(copy: *const impl CopyShape) -> Transfer {
    // SAFETY: null, or a description that the driver itself is about to read, so readable by the call's contract.
    unsafe { copy.as_ref() }.map_or(of(Route::Unknown, 0u64), CopyShape::transfer)
}

/// The copies of a batch as one, whose route is unknown unless all have the same.
#[inline(never)]
pub(crate) fn sum(to: *const u64, from: *const u64, sizes: *const usize, count: usize) -> Transfer {
    let ends = listed(from, count).iter().zip(listed(to, count)).map(|(from, to)| between(*from, *to));
    let bytes = listed(sizes, count).iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes as u64));
    of(common(ends), bytes)
}

fn common(mut routes: impl Iterator<Item = Route>) -> Route {
    let first = routes.next().unwrap_or(Route::Unknown);
    if routes.all(|route| route == first) { first } else { Route::Unknown }
}

#[inline(never)]
pub(crate) fn parts(count: usize, list: *const BatchCopy) -> Transfer {
    let parts = listed(list, count);
    let bytes = parts.iter().fold(0u64, |sum, part| sum.saturating_add(product(&part.extent)));
    of(common(parts.iter().map(BatchCopy::route)), bytes)
}

/// A list of the program's, empty if it is null: the driver refuses that.
fn listed<'a, T>(list: *const T, count: usize) -> &'a [T] {
    // SAFETY: not null, and the driver itself is about to read `count` entries, by the call's contract.
    if list.is_null() { &[] } else { unsafe { core::slice::from_raw_parts(list, count) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{offset_of, size_of};

    #[test]
    fn descriptions_lie_in_memory_as_the_driver_has_them() {
        assert_eq!(
            (size_of::<Copy2d<u32>>(), offset_of!(Copy2d<u32>, to), offset_of!(Copy2d<u32>, extent)),
            (96, 52, 84)
        );
        assert_eq!(
            (size_of::<Copy2d<usize>>(), offset_of!(Copy2d<usize>, to), offset_of!(Copy2d<usize>, extent)),
            (128, 72, 112)
        );
        assert_eq!(
            (size_of::<Copy3d<u32>>(), offset_of!(Copy3d<u32>, to), offset_of!(Copy3d<u32>, extent)),
            (144, 80, 128)
        );
        assert_eq!(
            (size_of::<Copy3d<usize>>(), offset_of!(Copy3d<usize>, to), offset_of!(Copy3d<usize>, extent)),
            (200, 120, 176)
        );
        assert_eq!((size_of::<BatchCopy>(), offset_of!(BatchCopy, extent)), (112, 80));
    }
}
