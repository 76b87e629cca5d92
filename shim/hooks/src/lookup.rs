//! Hooks of libc's look-up functions: `dlsym` and `dlvsym`.
//!
//! `dlsym` and `dlvsym` jump to the real ones with the caller's return address in place, so that RTLD_NEXT and
//! RTLD_DEFAULT refer to the caller. Only a governed name with a handle, and these functions' own names, take another
//! path: the real one is called first, and only a function that exists, in the driver or in libc, is replaced.

use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

use crate::cuda::driver;
use crate::elf;
use crate::forms::Governed;
use crate::hooks::Hook;
use crate::libraries::{Library, Provider, Symbol, provider};
use crate::nvml;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static REAL_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Name that is looked up in place of a governed function's form that this release does not know.
const UNKNOWN_FORM: &CStr = c"a form of a governed function that this release does not know";

/// Decision of the filter, in the two registers in which a pair is returned.
#[repr(C)]
struct LookupVerdict {
    /// Address to return or to jump to.
    address: *mut c_void,
    /// 1 to jump there with the caller's arguments, 0 to return it.
    jump: usize,
}

/// `dlsym`, for references to any of its versions.
#[cfg_attr(all(panic = "abort", feature = "preload"), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    door!(filter_dlsym)
}

/// `dlvsym`, for references to any of its versions.
#[cfg_attr(all(panic = "abort", feature = "preload"), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    door!(filter_dlvsym)
}

unsafe extern "C" fn filter_dlsym(handle: *mut c_void, name: *const c_char) -> LookupVerdict {
    let Some(real) = real(&REAL_DLSYM, c"dlsym") else { return give(null_mut()) };
    // SAFETY: `real` is libc's dlsym; handle and name are the program's arguments, valid by dlsym's contract.
    unsafe {
        filter(handle, name, real, |name| {
            let real: Dlsym = transmute(real);
            real(handle, name)
        })
    }
}

unsafe extern "C" fn filter_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> LookupVerdict {
    let Some(real) = real(&REAL_DLVSYM, c"dlvsym") else { return give(null_mut()) };
    // SAFETY: `real` is libc's dlvsym; the arguments are the program's, valid by dlvsym's contract.
    unsafe {
        filter(handle, name, real, |name| {
            let real: Dlvsym = transmute(real);
            real(handle, name, version)
        })
    }
}

/// # Safety
/// `name` must be null or end with a zero.
unsafe fn filter(
    handle: *mut c_void,
    name: *const c_char,
    real: *mut c_void,
    ask: impl Fn(*const c_char) -> *mut c_void,
) -> LookupVerdict {
    let pass = LookupVerdict { address: real, jump: 1 };
    if name.is_null() {
        return pass;
    }
    // SAFETY: `name` is not null here, and terminated by this function's contract.
    let name = unsafe { CStr::from_ptr(name) };
    let find = || ask(name.as_ptr());
    match name.to_bytes() {
        // These functions are in libc, so the caller does not matter; a request for one version of them finds libc's
        // even though the hooks come first.
        b"dlsym" | b"dlvsym" => own_lookup(find()).map_or(pass, give),
        // Looked up under a name that no library has, so that `dlerror` has an error to report.
        [b'c', b'u', ..] | [b'n', b'v', b'm', b'l', ..] if Hook::is_unknown_form(name) => {
            ask(UNKNOWN_FORM.as_ptr());
            give(null_mut())
        }
        _ if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT => pass,
        [b'c', b'u', ..] | [b'n', b'v', b'm', b'l', ..] => match Hook::named(name) {
            Some(hook) => replace(hook, find()).map_or(pass, give),
            None => pass,
        },
        _ => pass,
    }
}

const fn give(address: *mut c_void) -> LookupVerdict {
    LookupVerdict { address, jump: 0 }
}

/// Address to return instead of `found`; `None` to return the real function's result.
fn replace(hook: Hook, found: *mut c_void) -> Option<*mut c_void> {
    if found.is_null() {
        return None;
    }
    if found == hook.address() {
        // Found in the global scope, where the shim's export stands even if the driver is not loaded.
        return (!hook.symbol().library().is_loaded()).then_some(null_mut());
    }
    match (provider(hook.symbol(), found, symbols()), hook.symbol().library()) {
        (Provider::Driver, library) if library.is_ours() => None,
        (Provider::Driver, _) => Some(hook.address()),
        // A hook cannot distinguish two copies of the driver, and they must not be mixed.
        (Provider::OtherCopy, Library::Cuda) => Some(null_mut()),
        (Provider::OtherCopy, Library::Nvml) | (Provider::Stranger, _) => None,
    }
}

/// The hook for one of libc's own look-up functions.
fn own_lookup(found: *mut c_void) -> Option<*mut c_void> {
    if found.is_null() {
        return None;
    }
    if Some(found) == real(&REAL_DLSYM, c"dlsym") {
        return Some(dlsym as *mut c_void);
    }
    (Some(found) == real(&REAL_DLVSYM, c"dlvsym")).then_some(dlvsym as *mut c_void)
}

fn real(known: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
    let address = known.load(Acquire);
    if !address.is_null() {
        return Some(address);
    }
    let found = elf::in_libc(name).or_else(|| in_any_other(name))?;
    known.store(found, Release);
    Some(found)
}

/// The first loaded object that defines the function and is not this one: for a libc with another name.
fn in_any_other(name: &CStr) -> Option<*mut c_void> {
    let ours = [dlsym as *mut c_void, dlvsym as *mut c_void];
    elf::search(|object| object.function(name).filter(|found| !ours.contains(found)))
}

const _: () = assert!(size_of::<LookupVerdict>() == 16, "a verdict comes back in two registers");
/// Every symbol of the driver whose address is cached.
fn symbols() -> impl Iterator<Item = Symbol> + Clone {
    Hook::all().map(Hook::symbol).chain(driver::symbols()).chain(nvml::driver::symbols())
}
