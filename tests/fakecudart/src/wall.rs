//! The boundary between C callers, the safe code behind it, and the driver.
//!
//! Pointers of callers arrive as one of these types, which are as large as the pointer they hold. The CUDA runtime API
//! obliges its caller to pass null or a pointer good for the documented type and length; that obligation is what each
//! argument below rests on.

use std::ffi::{CStr, c_char, c_void};

use crate::status::{Outcome, Status};

/// Place for one answer to a caller, or of this library for one of the driver's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// No place: a null address.
    pub(crate) const NULL: Self = Self(std::ptr::null_mut());

    /// A place of this library. The borrow must outlive the call it is made for, which its callers ensure by using it
    /// as an argument only.
    pub(crate) fn to(place: &mut T) -> Self {
        Self(place)
    }

    /// Writes the answer; a null place is an invalid value.
    pub(crate) fn put(self, value: T) -> Outcome {
        self.check()?;
        // SAFETY: not null (checked), and the caller owes a place good for one T; `write_unaligned` needs no alignment.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// An invalid value when the caller gave no place.
    pub(crate) fn check(self) -> Outcome {
        if self.0.is_null() { Err(Status::INVALID_VALUE) } else { Ok(()) }
    }

    /// Writes values in a row.
    pub(crate) fn put_list(self, values: &[T]) -> Outcome {
        self.check()?;
        for (index, value) in values.iter().enumerate() {
            // SAFETY: not null (checked), and the caller owes a place for all of them.
            unsafe { self.0.add(index).write_unaligned(*value) };
        }
        Ok(())
    }

    /// Copy of the value at the place, for arguments that go both ways.
    pub(crate) fn get(self) -> Outcome<T> {
        In(self.0.cast_const()).get()
    }

    /// The same place for values of another type.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

/// A value that is passed by address.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// No value: a null address.
    pub(crate) const NULL: Self = Self(std::ptr::null());

    /// A value of this library. The borrow must outlive the call it is made for, which its callers ensure by using it
    /// as an argument only.
    pub(crate) fn of(value: &T) -> Self {
        Self(value)
    }

    /// A value at an address.
    pub(crate) fn at(address: u64) -> Self {
        Self(address as *const T)
    }

    /// Copy of it; null is an invalid value.
    pub(crate) fn get(self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, and the caller owes one readable T; `read_unaligned` needs no alignment.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Copies of `count` of them in a row; null is valid for none.
    pub(crate) fn list(self, count: usize) -> Outcome<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        self.get()?;
        // SAFETY: not null (`get` refused that), and the caller owes `count` readable Ts in a row.
        Ok((0..count).map(|index| unsafe { self.0.add(index).read_unaligned() }).collect())
    }
}

/// A string of a caller's or of this library, with its closing zero.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// Text of this library. The borrow must outlive the call it is made for, which its callers ensure by using it as
    /// an argument only.
    pub(crate) fn of(text: &CStr) -> Self {
        Self(text.as_ptr())
    }

    /// Copy of the text; null is an invalid value.
    pub(crate) fn get(self) -> Outcome<std::ffi::CString> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, and the caller owes a zero-terminated string.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_owned())
    }
}

/// A host function of the caller's, `cudaHostFn_t` and `CUhostFn`.
pub(crate) type HostFunction = Option<unsafe extern "C" fn(u64)>;
/// `cudaStreamCallback_t` and `CUstreamCallback`, whose results have the same numbers.
pub(crate) type StreamCallback = Option<unsafe extern "C" fn(u64, i32, u64)>;

/// Address of a function of the driver, or null.
///
/// The driver is opened by its name at the first call, so that a preloaded library that stands before the driver's
/// functions is found in their place.
pub(crate) fn driver_function(name: &CStr) -> *mut c_void {
    static DRIVER: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let driver = *DRIVER.get_or_init(|| {
        // SAFETY: the name is a C string; the driver's constructors are as trusted as a linked library's.
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) as usize }
    });
    if driver == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: the handle was returned by `dlopen`, is never closed, and the name is a C string.
    unsafe { libc::dlsym(driver as *mut c_void, name.as_ptr()) }
}

/// Makes a function pointer type of an address.
pub(crate) trait Callable: Sized {
    /// The function at this address; `None` for null.
    ///
    /// # Safety
    ///
    /// A function with exactly this signature must be there.
    unsafe fn at(address: *mut c_void) -> Option<Self>;
}

macro_rules! callable {
    ($($argument:ident)*) => {
        impl<$($argument),*> Callable for extern "C" fn($($argument),*) -> i32 {
            unsafe fn at(address: *mut c_void) -> Option<Self> {
                if address.is_null() {
                    return None;
                }
                // SAFETY: not null, and the caller of `at` owes a function of this signature there.
                Some(unsafe { std::mem::transmute::<*mut c_void, Self>(address) })
            }
        }
    };
}
callable!();
callable!(A);
callable!(A B);
callable!(A B C);
callable!(A B C D);
callable!(A B C D E);
callable!(A B C D E F);
callable!(A B C D E F G);
callable!(A B C D E F G H);
callable!(A B C D E F G H I J);
callable!(A B C D E F G H I J K);
