//! Device code that programs register, and the kernels behind their host functions.
//!
//! The compiler's host code calls the `__cuda...` functions; their shape is public in the code generators of LLVM
//! (`clang/lib/CodeGen/CGCUDANV.cpp`) and in the toolkit's `crt/host_runtime.h`. Nothing is loaded before the first
//! kernel or variable of a fat binary is used.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::ready;
use crate::driver;
use crate::status::{Outcome, Status};
use crate::wall::{In, Out, Text};

/// Code and variables of this process.
#[derive(Default)]
struct Registry {
    /// Fat binaries by their handle, which is the number of their registration.
    binaries: HashMap<u64, Binary>,
    /// Kernels by the address of their host function.
    kernels: HashMap<u64, Named>,
    /// Variables by the address of their host shadow.
    variables: HashMap<u64, Named>,
    registered: u64,
}

struct Binary {
    /// Address of the code.
    image: u64,
    /// The driver's handle, once it is loaded.
    library: Option<u64>,
}

/// A name in a fat binary.
struct Named {
    binary: u64,
    name: CString,
    /// The driver's handle, once it was looked up.
    handle: Option<u64>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

struct Locked(MutexGuard<'static, Option<Registry>>);

impl Locked {
    fn registry(&mut self) -> &mut Registry {
        self.0.get_or_insert_default()
    }
}

fn lock() -> Locked {
    Locked(REGISTRY.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Offset of the address of the code in the structure that the compiler wrote for it.
const CODE: u64 = 8;

/// `__cudaRegisterFatBinary`: the handle of the code, 0 for none.
pub(crate) fn register(wrapper: u64) -> u64 {
    let Ok(image) = In::at(wrapper + CODE).get() else { return 0 };
    let mut locked = lock();
    let registry = locked.registry();
    registry.registered += 1;
    registry.binaries.insert(registry.registered, Binary { image, library: None });
    registry.registered
}

/// `__cudaUnregisterFatBinary`.
pub(crate) fn unregister(binary: u64) {
    let mut locked = lock();
    let registry = locked.registry();
    registry.kernels.retain(|_, kernel| kernel.binary != binary);
    registry.variables.retain(|_, variable| variable.binary != binary);
    // The driver may be gone by now, as this runs while the process ends: what is loaded ends with it.
    registry.binaries.remove(&binary);
}

/// `__cudaRegisterFunction`.
pub(crate) fn register_kernel(binary: u64, host: u64, name: Text) {
    let Ok(name) = name.get() else { return };
    lock().registry().kernels.insert(host, Named { binary, name, handle: None });
}

/// `__cudaRegisterVar`.
pub(crate) fn register_variable(binary: u64, host: u64, name: Text) {
    let Ok(name) = name.get() else { return };
    lock().registry().variables.insert(host, Named { binary, name, handle: None });
}

impl Registry {
    fn library(&mut self, binary: u64) -> Outcome<u64> {
        let binary = self.binaries.get_mut(&binary).ok_or(Status::INVALID_FUNCTION)?;
        if let Some(library) = binary.library {
            return Ok(library);
        }
        let mut library = 0;
        let none = (In::NULL, In::NULL);
        driver::cuLibraryLoadData(Out::to(&mut library), binary.image, none.0, none.1, 0, none.0, none.1, 0)?;
        binary.library = Some(library);
        Ok(library)
    }
}

/// The driver's kernel of a host function. A handle that is none of those is taken for the driver's own, as
/// `cudaLaunchKernel` accepts a `cudaKernel_t`.
pub(crate) fn kernel(host: u64) -> Outcome<u64> {
    if host == 0 {
        return Err(Status::INVALID_FUNCTION);
    }
    ready()?;
    let mut locked = lock();
    let registry = locked.registry();
    let Some(known) = registry.kernels.get(&host) else { return Ok(host) };
    if let Some(handle) = known.handle {
        return Ok(handle);
    }
    let (binary, name) = (known.binary, known.name.clone());
    let library = registry.library(binary)?;
    let mut handle = 0;
    driver::cuLibraryGetKernel(Out::to(&mut handle), library, Text::of(&name))
        .map_err(|_| Status::INVALID_FUNCTION)?;
    if let Some(known) = registry.kernels.get_mut(&host) {
        known.handle = Some(handle);
    }
    Ok(handle)
}

/// Address and bytes of a variable on the current device.
pub(crate) fn variable(host: u64) -> Outcome<(u64, usize)> {
    ready()?;
    let mut locked = lock();
    let registry = locked.registry();
    let known = registry.variables.get(&host).ok_or(Status::INVALID_SYMBOL)?;
    let (binary, name) = (known.binary, known.name.clone());
    let library = registry.library(binary)?;
    let (mut address, mut bytes) = (0, 0);
    driver::cuLibraryGetGlobal(Out::to(&mut address), Out::to(&mut bytes), library, Text::of(&name))
        .map_err(|_| Status::INVALID_SYMBOL)?;
    Ok((address, bytes))
}

/// `cudaMemcpyToSymbol` and its like: the place of `bytes` of a variable, from an offset.
pub(crate) fn part_of_variable(host: u64, bytes: usize, offset: usize) -> Outcome<u64> {
    let (address, size) = variable(host)?;
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(address + offset as u64),
        _ => Err(Status::INVALID_VALUE),
    }
}
