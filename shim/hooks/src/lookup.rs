//! The doors by which a program looks functions up: `dlsym`, `dlvsym` and `cuGetProcAddress`.
//!
//! `dlsym` and `dlvsym` jump to the real ones with the caller's return address in place, so that RTLD_NEXT and
//! RTLD_DEFAULT mean what the caller means. Only a name of ours, asked of a handle, and these doors themselves
//! make a detour: the real one is asked first, and only what really is there, in the driver or in libc, is
//! replaced.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

use crate::elf;
use crate::hooks::Hook;
use crate::libraries::{Library, Provider, provider};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static REAL_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// What the filter wants done, in the two registers that a pair is returned in.
#[repr(C)]
struct Verdict {
    /// What to return, or where to jump.
    address: *mut c_void,
    /// 1 to jump there with the caller's arguments, 0 to return it.
    jump: usize,
}

/// `dlsym`, for references to any of its versions.
#[cfg_attr(all(panic = "abort", feature = "preload"), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "endbr64",
        // Three pushes align the stack for the call.
        "push rdi",
        "push rsi",
        "push rdx",
        "call {filter}",
        "mov r11, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test r11, r11",
        "jnz 2f",
        "ret",
        "2:",
        "jmp rax",
        filter = sym filter_dlsym,
    )
}

/// `dlvsym`, likewise.
#[cfg_attr(all(panic = "abort", feature = "preload"), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {filter}",
        "mov r11, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test r11, r11",
        "jnz 2f",
        "ret",
        "2:",
        "jmp rax",
        filter = sym filter_dlvsym,
    )
}

unsafe extern "C" fn filter_dlsym(handle: *mut c_void, name: *const c_char) -> Verdict {
    let Some(real) = real(&REAL_DLSYM, c"dlsym") else { return give(null_mut()) };
    // SAFETY: `real` is libc's dlsym; handle and name are what the program passed it.
    unsafe {
        filter(handle, name, real, || {
            let real: Dlsym = transmute(real);
            real(handle, name)
        })
    }
}

unsafe extern "C" fn filter_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> Verdict {
    let Some(real) = real(&REAL_DLVSYM, c"dlvsym") else { return give(null_mut()) };
    // SAFETY: `real` is libc's dlvsym; the arguments are what the program passed it.
    unsafe {
        filter(handle, name, real, || {
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
    ask: impl FnOnce() -> *mut c_void,
) -> Verdict {
    let pass = Verdict { address: real, jump: 1 };
    if name.is_null() {
        return pass;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    match name.to_bytes() {
        // The doors are in libc, so which of its copies is meant does not hang on who asks; a request for one
        // version of them finds libc's even though ours comes first.
        b"dlsym" | b"dlvsym" => own_door(ask()).map_or(pass, give),
        _ if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT => pass,
        [b'c', b'u', ..] | [b'n', b'v', b'm', b'l', ..] => match Hook::named(name) {
            Some(hook) => replace(hook, ask()).map_or(pass, give),
            None => pass,
        },
        _ => pass,
    }
}

const fn give(address: *mut c_void) -> Verdict {
    Verdict { address, jump: 0 }
}

/// What the program gets instead of `found`; nothing if it should hear it from the real one.
fn replace(hook: Hook, found: *mut c_void) -> Option<*mut c_void> {
    if found.is_null() {
        return None;
    }
    if found == hook.address() {
        // Found in the global scope, where our own export stands even if the driver is not loaded.
        return (!hook.symbol().library.is_loaded()).then_some(null_mut());
    }
    match (provider(hook.symbol(), found), hook.symbol().library) {
        (Provider::Driver, library) if library.is_ours() => None,
        (Provider::Driver, _) => Some(hook.address()),
        // Two copies of the driver can't be told apart by a hook, and must not be mixed.
        (Provider::OtherCopy, Library::Cuda) => Some(null_mut()),
        (Provider::OtherCopy, Library::Nvml) | (Provider::Stranger, _) => None,
    }
}

/// A program that looks up libc's own look-up functions gets ours.
fn own_door(found: *mut c_void) -> Option<*mut c_void> {
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
    let found = in_libc(name).or_else(|| in_any_other(name))?;
    known.store(found, Release);
    Some(found)
}

/// A function of libc, or of the library where it lived before glibc 2.34.
pub(crate) fn in_libc(name: &CStr) -> Option<*mut c_void> {
    let homes = [c"libc.so.6", c"libdl.so.2"];
    homes.into_iter().find_map(|home| {
        elf::search(|object| (object.soname() == home).then(|| object.function(name)).flatten())
    })
}

/// The first loaded object that defines the function and is not this one: for a libc with another name.
fn in_any_other(name: &CStr) -> Option<*mut c_void> {
    let ours = [dlsym as *mut c_void, dlvsym as *mut c_void];
    elf::search(|object| object.function(name).filter(|found| !ours.contains(found)))
}

/// `cuGetProcAddress` and its successors: the driver answers first; what it answered is replaced by the hook of
/// the same function, so that versions and per-thread streams keep their ABI.
///
/// # Safety
/// `name` must be null or end with a zero, and `slot` valid for writes if the driver was content with it.
pub(crate) unsafe fn replace_answer(name: *const c_char, slot: *mut *mut c_void, version: c_int, flags: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        if slot.is_null() || name.is_null() || (*slot).is_null() {
            return;
        }
        let found = *slot;
        let hook = Hook::all()
            .filter(|hook| hook.symbol().library == Library::Cuda)
            .find(|hook| hook.symbol().real() == Some(found))
            .or_else(|| Hook::for_request(CStr::from_ptr(name), version, flags));
        if let Some(hook) = hook {
            ptr::write(slot, hook.address());
        }
    }
}

const _: () = assert!(size_of::<Verdict>() == 16, "a verdict comes back in two registers");
