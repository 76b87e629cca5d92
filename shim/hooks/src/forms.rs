//! Forms of the driver's functions by their names: variants, versions, streams of their own.

use core::ffi::{CStr, c_int, c_void};

use crate::libraries::{Library, Symbol};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const PER_THREAD: u64 = 2;

/// A governed function: a row of the table of hooks.
///
/// What a row calls receives the table as a type: the table names it, so it cannot name the table.
pub(crate) trait Governed: Copy + PartialEq + 'static {
    /// The newest CUDA version whose functions were compared with the rows.
    const KNOWN_VERSION: c_int;

    /// Every row in the order of the table, with the first version of its form.
    fn rows() -> &'static [(Self, c_int)];

    /// The symbol of the real function.
    fn symbol(self) -> Symbol;

    /// Address of the hook that is exported for it.
    fn address(self) -> *mut c_void;

    /// Every hook, in the order of the table.
    fn all() -> impl Iterator<Item = Self> + Clone {
        Self::rows().iter().map(|(hook, _)| *hook)
    }

    /// Name of the function, without the final zero.
    fn name(self) -> &'static [u8] {
        self.symbol().name_bytes()
    }

    /// The hook of the function of this name.
    fn named(name: &CStr) -> Option<Self> {
        Self::all().find(|hook| hook.name() == name.to_bytes())
    }

    /// True if its stream 0 is the calling thread's own.
    fn is_per_thread(self) -> bool {
        is_per_thread(self.name())
    }

    /// Forms of a driver's function that a request can select, each with its first version.
    fn forms(name: &CStr, version: c_int, flags: u64) -> impl Iterator<Item = (Self, c_int)> {
        let per_thread = flags & PER_THREAD != 0;
        let meant = move |(hook, since): &&(Self, c_int)| {
            hook.symbol().library() == Library::Cuda
                && base(hook.name()) == name.to_bytes()
                && *since <= version
                && (per_thread || !hook.is_per_thread())
        };
        Self::rows().iter().filter(meant).copied()
    }

    /// True if this is the base name of governed functions, without the endings of variants.
    fn is_base(name: &CStr) -> bool {
        let name = name.to_bytes();
        base(name) == name && Self::all().any(|hook| base(hook.name()) == name)
    }

    /// True for a form of a governed function without a hook, such as one newer than this release.
    fn is_unknown_form(name: &CStr) -> bool {
        let name_bytes = name.to_bytes();
        // Some NVML forms end in a letter instead of a number.
        let named = match name_bytes {
            [b'n', b'v', b'm', b'l', .., _, b'V'] => &name_bytes[..name_bytes.len() - 1],
            _ => base(name_bytes),
        };
        named != name_bytes
            && Self::all().any(|hook| base(hook.name()) == named)
            && Self::named(name).is_none()
    }
}

fn is_per_thread(name: &[u8]) -> bool {
    name.ends_with(b"_ptsz") || name.ends_with(b"_ptds")
}

/// A name without the endings of its variants.
pub(crate) fn base(name: &[u8]) -> &[u8] {
    let name = if is_per_thread(name) { &name[..name.len() - 5] } else { name };
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    match name.split_at_checked(name.len() - digits) {
        Some(([base @ .., b'_', b'v'], [_, ..])) => base,
        _ => name,
    }
}
