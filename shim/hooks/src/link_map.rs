//! A loaded object in the records of libc's loader.

use core::ffi::{c_char, c_void};

/// The public head of `struct link_map`.
#[repr(C)]
pub(crate) struct LinkMap {
    pub(crate) base: usize,
    path: *const c_char,
    pub(crate) dynamic: *const c_void,
}
