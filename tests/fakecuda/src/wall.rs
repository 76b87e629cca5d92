//! The boundary between C callers and the safe code behind it.
//!
//! Every pointer that a caller passes arrives as one of these types, which are as large as the pointer they hold.
//! Nothing but an exported function receives them from outside, and the CUDA driver API obliges its caller to pass null
//! or a pointer good for the documented type and length; that obligation is what each argument below rests on.

use std::ffi::{CStr, c_char, c_void};

use crate::status::{Outcome, Status};

/// Place for one answer to a caller.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
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

    /// The place at an address of the caller's.
    pub(crate) fn at(address: Host) -> Self {
        Self(address.0.cast())
    }

    /// The address as a number.
    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }

    /// Writes the answer unless the place is null.
    pub(crate) fn offer(self, value: T) {
        let _ = self.put(value);
    }

    /// An invalid value when the caller gave no place, for use before anything happens.
    pub(crate) fn check(self) -> Outcome {
        if self.0.is_null() { Err(Status::InvalidValue) } else { Ok(()) }
    }

    /// Writes as many of `values` as `room` allows.
    pub(crate) fn put_list(self, values: &[T], room: usize) -> Outcome {
        self.check()?;
        for (index, value) in values.iter().take(room).enumerate() {
            // SAFETY: not null (checked), and the caller owes `room` places, which bounds `index`.
            unsafe { self.0.add(index).write_unaligned(*value) };
        }
        Ok(())
    }

    /// The value at the place, for arguments that go both ways.
    pub(crate) fn get(self) -> Outcome<T> {
        In(self.0.cast_const()).get()
    }
}

impl Out<c_char> {
    /// Writes text with its closing zero into a buffer of `room` bytes, cut short if it must be.
    pub(crate) fn put_text(self, text: &str, room: i32) -> Outcome {
        let room = usize::try_from(room).ok().filter(|room| *room > 0).ok_or(Status::InvalidValue)?;
        let bytes: Vec<c_char> = text.bytes().take(room - 1).chain([0]).map(|byte| byte as c_char).collect();
        self.put_list(&bytes, room)
    }
}

/// A value that a caller passes by address.
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

    /// A value of the caller's at an address.
    pub(crate) fn at(address: Host) -> Self {
        Self(address.0.cast_const().cast())
    }

    /// A copy of it; null is an invalid value.
    pub(crate) fn get(self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
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

    /// The address as a number.
    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }
}

/// A zero-terminated string of the caller's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// The text; null is an invalid value, and bytes that are no UTF-8 are replaced.
    pub(crate) fn get(self) -> Outcome<String> {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: not null, and the caller owes a zero-terminated string.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// A plain address in the caller's memory.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Host(pub(crate) *mut c_void);

// SAFETY: it is an address alone; what is done with it is argued where it is done.
unsafe impl Send for Host {}
// SAFETY: a shared address gives no access by itself; what is done with it is argued where it is done.
unsafe impl Sync for Host {}

impl Host {
    /// Address 0.
    pub(crate) const NULL: Self = Self(std::ptr::null_mut());

    /// The address as a number.
    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }

    /// The address a number stands for.
    pub(crate) fn at(address: u64) -> Self {
        Self(address as *mut c_void)
    }

    /// Reads a value of the caller's at this address.
    pub(crate) fn read<T: Copy>(self) -> Outcome<T> {
        In(self.0.cast_const().cast::<T>()).get()
    }

    /// `count` bytes of a caller's image.
    ///
    /// The image ends where its own header or closing zero states, see [`crate::image`].
    pub(crate) fn bytes(self, count: usize) -> Outcome<Vec<u8>> {
        In(self.0.cast_const().cast::<u8>()).list(count)
    }

    /// The bytes up to a closing zero.
    pub(crate) fn text(self) -> Outcome<Vec<u8>> {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: not null, and called only for images whose first bytes mark them as text, which the caller owes a
        // closing zero.
        Ok(unsafe { CStr::from_ptr(self.0.cast_const().cast::<c_char>()) }.to_bytes().to_vec())
    }
}

/// Copies bytes between buffers of the caller's and mappings of this library.
pub(crate) fn copy(from: Host, to: Host, bytes: usize) {
    // SAFETY: each side is either a caller's buffer, which the caller owes for `bytes`, or lies in a mapping
    // whose bounds `backing` has checked; `memmove` semantics allow overlap.
    unsafe { std::ptr::copy(from.0.cast::<u8>(), to.0.cast::<u8>(), bytes) };
}

/// A host function of the caller's, `CUhostFn`.
pub(crate) type HostFunction = Option<unsafe extern "C" fn(Host)>;
/// A stream callback of the caller's, `CUstreamCallback`.
pub(crate) type StreamCallback = Option<unsafe extern "C" fn(u64, i32, Host)>;

/// `CUoccupancyB2DSize`: shared memory that a block of this many threads needs.
pub(crate) type SharedBySize = Option<unsafe extern "C" fn(i32) -> usize>;

/// A function of the caller's to call in its turn in a stream.
#[derive(Clone, Copy)]
pub(crate) enum Callee {
    /// From `cuLaunchHostFunc` or a host node.
    Function(unsafe extern "C" fn(Host), Host),
    /// From `cuStreamAddCallback`: stream handle and user data.
    Callback(unsafe extern "C" fn(u64, i32, Host), u64, Host),
}

impl Callee {
    /// Calls the function with its arguments.
    pub(crate) fn call(self) {
        match self {
            // SAFETY: the caller gave this function with this argument for exactly this call.
            Self::Function(function, data) => unsafe { function(data) },
            // SAFETY: the caller gave this callback with this stream and argument for exactly this call; zero is
            // CUDA_SUCCESS.
            Self::Callback(function, stream, data) => unsafe { function(stream, 0, data) },
        }
    }
}

/// Shared memory that a block of this many threads needs, if the caller gave a function for it.
pub(crate) fn shared_by_size(function: SharedBySize, threads: i32) -> Option<usize> {
    // SAFETY: the caller gave this function for exactly this call.
    function.map(|function| unsafe { function(threads) })
}

/// Runs an entry point that waits while the process is locked.
pub(crate) fn guarded(entry: impl FnOnce() -> Outcome) -> i32 {
    unlocked(|| {
        let _inside = crate::gate::enter();
        entry()
    })
}

/// Runs an entry point and turns a panic into `CUDA_ERROR_UNKNOWN`, so that none crosses into C.
pub(crate) fn unlocked(entry: impl FnOnce() -> Outcome) -> i32 {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        if crate::fork::is_child() { Err(Status::NotInitialized) } else { entry() }
    }));
    crate::status::number(outcome.unwrap_or(Err(Status::Unknown)))
}
