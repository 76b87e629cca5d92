//! A call of the driver, by reference to a closure of any type.
//!
//! What charges for a call is compiled once for all functions that make calls of this result, not once for each. As
//! `dyn Fn` it would have a table of addresses for each of a hundred closures, which the loader relocates in each
//! program: half of the library's relocations, in pages of their own.

use core::ffi::c_int;
use core::marker::PhantomData;

use crate::cuda::abi::checked;

/// A call of the driver, with its arguments.
pub(crate) struct DriverCall<'a, R = c_int> {
    closure: *const (),
    make: unsafe fn(*const ()) -> R,
    lives: PhantomData<&'a ()>,
}

impl<R> Clone for DriverCall<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for DriverCall<'_, R> {}

impl<'a, R> DriverCall<'a, R> {
    /// The call that this closure makes.
    #[inline(always)]
    pub(crate) fn of<F: Fn() -> R>(closure: &'a F) -> Self {
        Self { closure: (&raw const *closure).cast(), make: make::<R, F>, lives: PhantomData }
    }

    /// Makes the call; returns its result.
    pub(crate) fn make(self) -> R {
        // SAFETY: `of` took `make` for the type of the closure, which is borrowed as long as this value lives.
        unsafe { (self.make)(self.closure) }
    }
}

/// Calls a closure of this type.
///
/// # Safety
/// `closure` must point to a live `F`.
unsafe fn make<R, F: Fn() -> R>(closure: *const ()) -> R {
    // SAFETY: the caller passes the address of a live `F`, which is called by a shared reference.
    unsafe { (*closure.cast::<F>())() }
}

/// The driver's result with the number that it writes: an address, a handle or a size.
#[inline(always)]
pub(crate) fn number<N: Default>(call: impl Fn(*mut N) -> c_int) -> impl Fn() -> Result<N, c_int> {
    move || {
        let mut made = N::default();
        checked(call(&mut made)).map(|()| made)
    }
}
