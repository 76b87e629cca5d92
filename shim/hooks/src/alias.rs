//! The driver's own libraries under other names, dependencies of the libraries in their place.
//!
//! A static program that opens the driver has a loader of its own, of which `dl_iterate_phdr` knows nothing: it shows
//! no object at all there, libc included. `dlopen` does, because libc forwards it to that loader. Both functions are
//! referenced in their oldest versions, and weakly: where a libc has neither, `elf::search` remains.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr;

use crate::elf::Object;
use crate::link_map::LinkMap;

loader!();
core::arch::global_asm!(
    ".weak tranche_dlopen",
    ".weak tranche_dlinfo",
    ".section .data.rel.ro.tranche_loader, \"aw\"",
    ".balign 8",
    ".hidden tranche_loader",
    ".globl tranche_loader",
    "tranche_loader:",
    ".quad tranche_dlopen",
    ".quad tranche_dlinfo",
    ".previous",
);

unsafe extern "C" {
    #[link_name = "tranche_loader"]
    static LOADER: [*mut c_void; 2];
}

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlinfo = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;

/// The object that is already loaded under this name, in the shim's namespace. It stays loaded.
pub(crate) fn loaded(name: &CStr) -> Option<Object> {
    const RTLD_DI_LINKMAP: c_int = 2;
    let mut map: *const LinkMap = ptr::null();
    // SAFETY: the two words are null or libc's dlopen and dlinfo, which have these types. RTLD_NOLOAD runs no code of
    // another object. The handle is never closed, so its link map stays, which dlinfo writes into the local `map`.
    unsafe {
        let [dlopen, dlinfo] = LOADER;
        if dlopen.is_null() || dlinfo.is_null() {
            return None;
        }
        let dlopen = transmute::<*mut c_void, Dlopen>(dlopen);
        let dlinfo = transmute::<*mut c_void, Dlinfo>(dlinfo);
        let handle = dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() || dlinfo(handle, RTLD_DI_LINKMAP, (&raw mut map).cast()) != 0 || map.is_null() {
            return None;
        }
        Object::at((*map).base, (*map).dynamic)
    }
}
