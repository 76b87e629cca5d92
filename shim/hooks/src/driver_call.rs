//! A call of the driver, by reference to a closure of any type.
//!
//! As `dyn Fn` it would have a table of addresses for each of a hundred closures, which the loader relocates in each
//! program: half of the library's relocations, in pages of their own.

use core::ffi::c_int;
use core::marker::PhantomData;

/// A call of the driver, with its arguments.
#[derive(Clone, Copy)]
pub(crate) struct DriverCall<'a> {
    closure: *const (),
    make: unsafe fn(*const ()) -> c_int,
    lives: PhantomData<&'a ()>,
}

impl<'a> DriverCall<'a> {
    /// The call that this closure makes.
    #[inline(always)]
    pub(crate) fn of<F: Fn() -> c_int>(closure: &'a F) -> Self {
        Self { closure: (&raw const *closure).cast(), make: make::<F>, lives: PhantomData }
    }

    /// Makes the call; returns the driver's result.
    pub(crate) fn make(self) -> c_int {
        // SAFETY: `of` took `make` for the type of the closure, which is borrowed as long as this value lives.
        unsafe { (self.make)(self.closure) }
    }
}

/// Calls a closure of this type.
///
/// # Safety
/// `closure` must point to a live `F`.
unsafe fn make<F: Fn() -> c_int>(closure: *const ()) -> c_int {
    // SAFETY: the caller passes the address of a live `F`, which is called by a shared reference.
    unsafe { (*closure.cast::<F>())() }
}
