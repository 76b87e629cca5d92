//! Modules and libraries: charged before they are loaded, for the size of their image.
//!
//! Where the driver loads functions lazily, code beyond a block is charged before a handle of a function is returned.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::slice;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tranche_policy::{ELF, ELF_HEADER, FAT, FAT_HEADER, FAT_WRAPPER, ImageSize, elf_length, fat_length};

use tranche_shm::credit::Units;
use tranche_shm::parking::Hindrance;

use super::abi::{SUCCESS, checked, code};
use super::current::current;
use super::driver;
use super::ledger::ledger;
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

/// Options of a loader as the program passed them: arrays of names and values, and their length.
type Options = (*mut c_int, *mut *mut c_void, u32);

/// Arguments of a library's load functions, apart from image or file.
pub(crate) type LoadLibrary<T> = unsafe extern "C" fn(
    *mut u64,
    *const T,
    *mut c_int,
    *mut *mut c_void,
    u32,
    *mut c_int,
    *mut *mut c_void,
    u32,
) -> c_int;

/// The function that unloads it again.
#[derive(Clone, Copy)]
enum UnloadForm {
    Module,
    Library,
}

pub(crate) unsafe fn load_file(
    real: unsafe extern "C" fn(*mut u64, *const c_char) -> c_int,
    module: *mut u64,
    name: *const c_char,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged; the name is terminated by the hook's contract.
    unsafe { charged(module, UnloadForm::Module, file_size(name), |made| real(made, name)) }
}

pub(crate) unsafe fn load(
    real: unsafe extern "C" fn(*mut u64, *const c_void) -> c_int,
    module: *mut u64,
    image: *const c_void,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged; `image` holds its length by the hook's contract.
    unsafe { charged(module, UnloadForm::Module, image_size(image), |made| real(made, image)) }
}

pub(crate) unsafe fn load_with_options(
    real: unsafe extern "C" fn(*mut u64, *const c_void, u32, *mut c_int, *mut *mut c_void) -> c_int,
    module: *mut u64,
    image: *const c_void,
    count: u32,
    options: *mut c_int,
    values: *mut *mut c_void,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged; `image` holds its length by the hook's contract.
    unsafe {
        charged(module, UnloadForm::Module, image_size(image), |made| {
            real(made, image, count, options, values)
        })
    }
}

#[allow(clippy::too_many_arguments, reason = "the driver's function has as many")]
pub(crate) unsafe fn load_library(
    real: LoadLibrary<c_void>,
    library: *mut u64,
    image: *const c_void,
    jit: *mut c_int,
    jit_values: *mut *mut c_void,
    jit_count: u32,
    options: *mut c_int,
    values: *mut *mut c_void,
    count: u32,
) -> c_int {
    let (jit, own): (Options, Options) = ((jit, jit_values, jit_count), (options, values, count));
    // SAFETY: the arguments pass to `real` unchanged; `image` holds its length by the hook's contract.
    unsafe {
        charged(library, UnloadForm::Library, image_size(image), |made| {
            real(made, image, jit.0, jit.1, jit.2, own.0, own.1, own.2)
        })
    }
}

#[allow(clippy::too_many_arguments, reason = "the driver's function has as many")]
pub(crate) unsafe fn load_library_file(
    real: LoadLibrary<c_char>,
    library: *mut u64,
    name: *const c_char,
    jit: *mut c_int,
    jit_values: *mut *mut c_void,
    jit_count: u32,
    options: *mut c_int,
    values: *mut *mut c_void,
    count: u32,
) -> c_int {
    let (jit, own): (Options, Options) = ((jit, jit_values, jit_count), (options, values, count));
    // SAFETY: the arguments pass to `real` unchanged; the name is terminated by the hook's contract.
    unsafe {
        charged(library, UnloadForm::Library, file_size(name), |made| {
            real(made, name, jit.0, jit.1, jit.2, own.0, own.1, own.2)
        })
    }
}

/// Charges an image of this size and lets `real` load it.
///
/// Without a size there is no image to load, which the driver reports.
///
/// # Safety
/// `handle` must be null or writable.
unsafe fn charged(
    handle: *mut u64,
    form: UnloadForm,
    size: Option<ImageSize>,
    real: impl Fn(*mut u64) -> c_int,
) -> c_int {
    let Some(size) = size.filter(|_| !handle.is_null()) else { return real(handle) };
    code(loaded(form, size, DriverCall::of(&number(real))).map(|made| {
        // SAFETY: not null, and writable by the hook's contract.
        unsafe { *handle = made }
    }))
}

#[inline(never)]
fn loaded(form: UnloadForm, size: ImageSize, real: DriverCall<'_, Result<u64, c_int>>) -> Result<u64, c_int> {
    if size.is_managed {
        attach::hinder(Hindrance::Managed);
    }
    let size = if is_lazy() { size.lazily() } else { size };
    if size.later().is_some_and(|later| later > Units::ZERO) {
        DEFERRED.store(true, Relaxed);
    }
    let undo = |made| drop_unseen(form, made);
    match form {
        UnloadForm::Module => {
            let place = current()?;
            let where_to = (place.device, place.owner);
            with_reclaim(&place.ledger, || {
                place.ledger.load_module(size, where_to, &DaemonLine, || real.make(), undo)
            })
        }
        // It belongs to no context, and is loaded into all of them.
        UnloadForm::Library => {
            let ledger = ledger()?;
            with_reclaim(&ledger, || ledger.load_library(size, &DaemonLine, || real.make(), undo))
        }
    }
}

fn drop_unseen(form: UnloadForm, made: u64) {
    // SAFETY: unloads what the driver has just made, whose handle no other code has received.
    let _ = unsafe {
        match form {
            UnloadForm::Module => driver::cuModuleUnload(made),
            UnloadForm::Library => driver::cuLibraryUnload(made),
        }
    };
}

/// True if the driver loads code when it is first used; false if it does not report that.
fn is_lazy() -> bool {
    let mut mode = 0;
    // SAFETY: the driver writes one value into a local.
    checked(unsafe { driver::cuModuleGetLoadingMode(&mut mode) }).is_ok() && mode == LAZY
}

/// Charges deferred code before handles of its functions are returned.
fn need(form: UnloadForm, handle: u64) -> c_int {
    if !DEFERRED.load(Relaxed) {
        return SUCCESS;
    }
    let Ok(ledger) = attach::ledger() else { return SUCCESS };
    let needed = || match form {
        UnloadForm::Module => Ok(ledger.need_module(handle, &DaemonLine)?),
        UnloadForm::Library => Ok(ledger.need_library(handle, &DaemonLine)?),
    };
    code(with_reclaim(&ledger, needed))
}

/// Type of functions that find a function or kernel by its name.
type Find = unsafe extern "C" fn(*mut u64, u64, *const c_char) -> c_int;
/// Type of functions that list functions or kernels.
type List = unsafe extern "C" fn(*mut u64, u32, u64) -> c_int;

pub(crate) unsafe fn function(real: Find, function: *mut u64, module: u64, name: *const c_char) -> c_int {
    match need(UnloadForm::Module, module) {
        // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
        SUCCESS => unsafe { real(function, module, name) },
        refused => refused,
    }
}

pub(crate) unsafe fn functions(real: List, functions: *mut u64, count: u32, module: u64) -> c_int {
    match need(UnloadForm::Module, module) {
        // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
        SUCCESS => unsafe { real(functions, count, module) },
        refused => refused,
    }
}

pub(crate) unsafe fn kernel(real: Find, kernel: *mut u64, library: u64, name: *const c_char) -> c_int {
    match need(UnloadForm::Library, library) {
        // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
        SUCCESS => unsafe { real(kernel, library, name) },
        refused => refused,
    }
}

pub(crate) unsafe fn kernels(real: List, kernels: *mut u64, count: u32, library: u64) -> c_int {
    match need(UnloadForm::Library, library) {
        // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
        SUCCESS => unsafe { real(kernels, count, library) },
        refused => refused,
    }
}

/// Charges deferred code before the library's module is returned: later look-ups name the module alone.
pub(crate) unsafe fn library_module(
    real: unsafe extern "C" fn(*mut u64, u64) -> c_int,
    module: *mut u64,
    library: u64,
) -> c_int {
    match need(UnloadForm::Library, library) {
        // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
        SUCCESS => unsafe { real(module, library) },
        refused => refused,
    }
}

pub(crate) unsafe fn unified_function(
    real: unsafe extern "C" fn(*mut *mut c_void, u64, *const c_char) -> c_int,
    function: *mut *mut c_void,
    library: u64,
    name: *const c_char,
) -> c_int {
    match need(UnloadForm::Library, library) {
        // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
        SUCCESS => unsafe { real(function, library, name) },
        refused => refused,
    }
}

pub(crate) unsafe fn unload(real: unsafe extern "C" fn(u64) -> c_int, module: u64) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    let driver = || checked(unsafe { real(module) });
    match attach::ledger() {
        Ok(ledger) => code(ledger.free(tranche_policy::EntryKind::Module, module, driver)),
        Err(attach::Outside) => code(driver()),
    }
}

pub(crate) unsafe fn unload_library(real: unsafe extern "C" fn(u64) -> c_int, library: u64) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    let driver = || checked(unsafe { real(library) });
    match attach::ledger() {
        Ok(ledger) => code(ledger.unload_library(library, driver)),
        Err(attach::Outside) => code(driver()),
    }
}

/// Address of a managed variable, also of an image that is compressed.
pub(crate) unsafe fn library_managed(
    real: unsafe extern "C" fn(*mut u64, *mut usize, u64, *const c_char) -> c_int,
    address: *mut u64,
    bytes: *mut usize,
    library: u64,
    name: *const c_char,
) -> c_int {
    attach::hinder(Hindrance::Managed);
    // SAFETY: the arguments pass to `real` unchanged, so they are valid by the hook's contract.
    unsafe { real(address, bytes, library, name) }
}

/// Size of an image in memory.
///
/// # Safety
/// `image` is null or points to an image, whose length stands in it.
unsafe fn image_size(image: *const c_void) -> Option<ImageSize> {
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
unsafe fn file_size(name: *const c_char) -> Option<ImageSize> {
    // SAFETY: not null here, and terminated by this function's contract.
    let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })?;
    sys::with_file(name, ImageSize::of)
}
