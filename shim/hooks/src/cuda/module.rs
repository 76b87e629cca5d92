//! Modules and libraries: charged before they are loaded, for the size of their image.
//!
//! Where the driver loads functions lazily, code beyond a block is charged before a handle of a function is returned.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::slice;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tranche_policy::{
    ELF, ELF_HEADER, EntryKind, FAT, FAT_HEADER, FAT_WRAPPER, ImageSize, elf_length, fat_length,
};

use tranche_shm::credit::Units;
use tranche_shm::parking::Hindrance;

use super::abi::{SUCCESS, checked, code};
use super::current::current;
use super::driver;
use super::ledger::{by_ledger, ledger};
use super::reclaim::with_reclaim;
use crate::attach;
use crate::connection::DaemonLine;
use crate::driver_call::{DriverCall, number};
use crate::sys;

/// `CU_MODULE_LAZY_LOADING`
const LAZY: c_int = 2;
/// True once a charge of code was deferred: mostly code is at most a block, and none is.
static DEFERRED: AtomicBool = AtomicBool::new(false);
/// Longest image that is read, in bytes.
const LONGEST: u64 = 1 << 32;

/// Form in which code is loaded, and unloaded again.
#[derive(Clone, Copy)]
pub(crate) enum LoadForm {
    Module,
    Library,
}

/// Charges an image of this size and lets `real` load it.
///
/// Without a size there is no image to load, which the driver reports.
pub(crate) fn load(
    real: impl Fn(*mut u64) -> c_int,
    form: LoadForm,
    size: Option<ImageSize>,
) -> Result<u64, c_int> {
    let real = number(real);
    size.map_or_else(&real, |size| loaded(form, size, DriverCall::of(&real)))
}

#[inline(never)]
fn loaded(form: LoadForm, size: ImageSize, real: DriverCall<'_, Result<u64, c_int>>) -> Result<u64, c_int> {
    if size.is_managed {
        attach::hinder(Hindrance::Managed);
    }
    let size = if is_lazy() { size.lazily() } else { size };
    if size.later().is_some_and(|later| later > Units::ZERO) {
        DEFERRED.store(true, Relaxed);
    }
    let undo = |made| drop_unseen(form, made);
    match form {
        LoadForm::Module => {
            let place = current()?;
            let where_to = (place.device, place.owner);
            with_reclaim(&place.ledger, || {
                place.ledger.load_module(size, where_to, &DaemonLine, || real.make(), undo)
            })
        }
        // It belongs to no context, and is loaded into all of them.
        LoadForm::Library => {
            let ledger = ledger()?;
            with_reclaim(&ledger, || ledger.load_library(size, &DaemonLine, || real.make(), undo))
        }
    }
}

fn drop_unseen(form: LoadForm, made: u64) {
    // SAFETY: unloads what the driver has just made, whose handle no other code has received.
    let _ = unsafe {
        match form {
            LoadForm::Module => driver::cuModuleUnload(made),
            LoadForm::Library => driver::cuLibraryUnload(made),
        }
    };
}

/// True if the driver loads code when it is first used; false if it does not report that.
fn is_lazy() -> bool {
    // SAFETY: the driver writes one value into a local.
    number(|mode| unsafe { driver::cuModuleGetLoadingMode(mode) })() == Ok(LAZY)
}

/// Charges deferred code before handles of its functions are returned.
fn need(form: LoadForm, handle: u64) -> c_int {
    if !DEFERRED.load(Relaxed) {
        return SUCCESS;
    }
    let Ok(ledger) = attach::ledger() else { return SUCCESS };
    let needed = || match form {
        LoadForm::Module => Ok(ledger.need_module(handle, &DaemonLine)?),
        LoadForm::Library => Ok(ledger.need_library(handle, &DaemonLine)?),
    };
    code(with_reclaim(&ledger, needed))
}

/// Charges deferred code before handles of its functions, or the module of a library, are returned.
///
/// Later look-ups name that module alone.
pub(crate) fn find(real: impl FnOnce() -> c_int, form: LoadForm, handle: u64) -> c_int {
    match need(form, handle) {
        SUCCESS => real(),
        refused => refused,
    }
}

pub(crate) fn unload(real: impl FnOnce() -> c_int, module: u64) -> c_int {
    by_ledger(|| checked(real()), |ledger, driver| ledger.free(EntryKind::Module, module, driver))
}

pub(crate) fn unload_library(real: impl FnOnce() -> c_int, library: u64) -> c_int {
    by_ledger(|| checked(real()), |ledger, driver| ledger.unload_library(library, driver))
}

/// Address of a managed variable, also of an image that is compressed.
pub(crate) fn library_managed(real: impl FnOnce() -> c_int) -> c_int {
    attach::hinder(Hindrance::Managed);
    real()
}

/// Size of an image in memory.
///
/// # Safety
/// `image` is null or points to an image, whose length stands in it.
pub(crate) unsafe fn image_size(image: *const c_void) -> Option<ImageSize> {
    if image.is_null() {
        return None;
    }
    // SAFETY: an image begins with four bytes of a number or with text that ends with a zero; headers and
    // lengths are those of the format that the first four bytes name.
    unsafe {
        let length = match first_word(image.cast()) {
            ELF => elf_length(slice::from_raw_parts(image.cast(), ELF_HEADER)),
            FAT => fat_length(slice::from_raw_parts(image.cast(), FAT_HEADER)),
            FAT_WRAPPER => {
                let binary = image.cast::<u8>().add(8).cast::<*const c_void>().read_unaligned();
                return if binary == image { None } else { image_size(binary) };
            }
            _ => Some(CStr::from_ptr(image.cast()).count_bytes() as u64),
        };
        let length = length.filter(|length| *length <= LONGEST)?;
        Some(ImageSize::of(slice::from_raw_parts(image.cast(), length as usize)))
    }
}

/// The first four bytes, or as many as come before a zero.
///
/// # Safety
/// `image` must point to at least four bytes, or to text that ends with a zero.
unsafe fn first_word(image: *const u8) -> u32 {
    let mut word = [0; 4];
    for (at, byte) in word.iter_mut().enumerate() {
        // SAFETY: by this function's contract, as no byte before this one was zero.
        *byte = unsafe { *image.add(at) };
        if *byte == 0 {
            break;
        }
    }
    u32::from_le_bytes(word)
}

/// Size of an image in a file.
///
/// # Safety
/// `name` is null or ends with a zero.
pub(crate) unsafe fn file_size(name: *const c_char) -> Option<ImageSize> {
    // SAFETY: not null here, and terminated by this function's contract.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })?;
    sys::with_file(name, ImageSize::of)
}
