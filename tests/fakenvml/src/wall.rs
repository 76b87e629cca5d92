//! Reads and writes through the callers' pointers: the only unsafe code besides the exports.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::status::{Answer, Failure, SUCCESS, Status};

/// Return code of a call; a panic becomes an unknown error.
pub(crate) fn status(call: impl FnOnce() -> Answer<()>) -> Status {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(failure)) => failure as Status,
        Err(_) => Failure::Unknown as Status,
    }
}

/// Fails for a null pointer.
pub(crate) fn check<T>(pointer: *const T) -> Answer<()> {
    if pointer.is_null() { Err(Failure::InvalidArgument) } else { Ok(()) }
}

/// Writes a value to a caller's place.
///
/// # Safety
/// A pointer that is not null points to writable room for a `T`.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Answer<()> {
    check(out)?;
    // SAFETY: not null by the line above, and then writable by this function's contract; NVML requires no alignment
    // beyond C's, but a write that needs none costs nothing.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Reads the value at a caller's pointer.
///
/// # Safety
/// A pointer that is not null points to an initialised `T`.
pub(crate) unsafe fn get<T: Copy>(from: *const T) -> Answer<T> {
    check(from)?;
    // SAFETY: not null by the line above, and then readable by this function's contract.
    Ok(unsafe { from.read_unaligned() })
}

/// Reads a caller's text.
///
/// # Safety
/// A pointer that is not null points to text that ends in a zero byte.
pub(crate) unsafe fn text(from: *const c_char) -> Answer<String> {
    check(from)?;
    // SAFETY: not null by the line above, and then zero-terminated by this function's contract; copied at once.
    let text = unsafe { CStr::from_ptr(from) };
    Ok(text.to_string_lossy().into_owned())
}

/// Writes text with its zero byte into a caller's buffer; fails if the buffer is too small.
///
/// # Safety
/// A pointer that is not null points to `room` writable bytes.
pub(crate) unsafe fn put_text(out: *mut c_char, room: u32, text: &str) -> Answer<()> {
    check(out)?;
    if text.len() >= room as usize {
        return Err(Failure::InsufficientSize);
    }
    // SAFETY: the buffer has room for the text and the zero byte, by the line above and this function's contract; a
    // caller's buffer does not overlap this library's string.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        out.add(text.len()).write(0);
    }
    Ok(())
}

/// Writes a list into a caller's array of `*count` places, and its length into `*count`.
///
/// The length is written also if the array is too small.
///
/// # Safety
/// `count`, if not null, points to an initialised, writable number, and `out`, if not null, to that many writable
/// places.
pub(crate) unsafe fn put_list<T: Copy>(out: *mut T, count: *mut u32, list: &[T]) -> Answer<()> {
    // SAFETY: this function's contract for `count` is that of `get` and `put`.
    let room = unsafe { get(count)? };
    // SAFETY: `count` was read above, so it is not null, and then writable by this function's contract.
    unsafe { put(count, list.len() as u32)? };
    if list.is_empty() {
        return Ok(());
    }
    if list.len() > room as usize {
        return Err(Failure::InsufficientSize);
    }
    check(out)?;
    // SAFETY: the array has room for the list, by the check above and this function's contract; the list is a vector of
    // this library, which does not overlap it.
    unsafe { out.copy_from_nonoverlapping(list.as_ptr(), list.len()) };
    Ok(())
}

/// One or two results, each with the place that it is written to.
pub(crate) trait Results {
    /// Place of the results.
    type Places;

    /// Writes each result to its place.
    ///
    /// # Safety
    /// As for [`put`], for each.
    unsafe fn put(self, places: Self::Places) -> Answer<()>;
}

impl<A> Results for (A,) {
    type Places = (*mut A,);

    unsafe fn put(self, places: Self::Places) -> Answer<()> {
        // SAFETY: the caller guarantees for the place what the function `put` requires.
        unsafe { put(places.0, self.0) }
    }
}

impl<A, B> Results for (A, B) {
    type Places = (*mut A, *mut B);

    unsafe fn put(self, places: Self::Places) -> Answer<()> {
        // SAFETY: the caller guarantees for both places what the function `put` requires.
        unsafe { put(places.0, self.0).and_then(|()| put(places.1, self.1)) }
    }
}

/// Exports calls of the form: inputs, then one place for each result.
macro_rules! calls {
    ($($name:ident($($input:ident: $type:ty),*) -> ($($output:ident: $result:ty),+) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($input: $type,)* $($output: *mut $result),+) -> $crate::status::Status {
            $crate::wall::status(|| {
                $($crate::wall::check($output)?;)+
                let results: $crate::status::Answer<($($result,)+)> = $body;
                // SAFETY: NVML's callers pass a null or writable place for each result, which is what `put` requires.
                unsafe { $crate::wall::Results::put(results?, ($($output,)+)) }
            })
        }
    )*};
}
pub(crate) use calls;
