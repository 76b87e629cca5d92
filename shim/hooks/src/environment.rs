//! The program's environment, for the length of one call changed where the driver looks.

use core::ffi::{CStr, c_char};
use core::ptr;

unsafe extern "C" {
    /// libc's.
    static environ: *const *mut c_char;
}

/// The entry for a variable, `NAME=text`, as it stands in the environment; null where there is none.
///
/// Not by `getenv`: a program may have one of its own, which answers with something else.
pub(crate) fn entry(name: &CStr) -> *mut c_char {
    // SAFETY: `environ` is null or a list of entries that ends with a null, each of which ends with a zero. As with
    // `getenv`, a program that changes it in another thread at this instant had to lock both.
    unsafe {
        let mut place = ptr::read_volatile(&raw const environ);
        while !place.is_null() && !(*place).is_null() {
            let entry = CStr::from_ptr(*place).to_bytes();
            if entry.strip_prefix(name.to_bytes()).is_some_and(|rest| rest.first() == Some(&b'=')) {
                return *place;
            }
            place = place.add(1);
        }
    }
    ptr::null_mut()
}

/// Puts an entry into the environment, in the place of the one for the same variable if there is one.
///
/// # Safety
/// `entry` must be `NAME=text`, end with a zero and stay until it is replaced.
pub(crate) unsafe fn put(entry: *mut c_char) {
    // SAFETY: the caller's promise. libc allocates only if there was no entry; without memory nothing changes.
    unsafe { libc::putenv(entry) };
}

/// Removes a variable.
pub(crate) fn remove(name: &CStr) {
    // SAFETY: the name ends with a zero and holds no `=`.
    unsafe { libc::unsetenv(name.as_ptr()) };
}
