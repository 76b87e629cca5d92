//! What libc's loader says of a loaded object.

use core::ffi::{c_char, c_void};

/// The public head of `struct link_map`.
#[repr(C)]
pub(crate) struct LinkMap {
    pub(crate) base: usize,
    path: *const c_char,
    pub(crate) dynamic: *const c_void,
}
