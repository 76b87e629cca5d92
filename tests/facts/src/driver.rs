//! The driver's libraries, called by name: the only unsafe code of this crate.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::script::ARGUMENTS;

type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> c_int;
const _: () = assert!(ARGUMENTS == 12);

/// The loaded libraries and the functions found so far.
pub(crate) struct Driver {
    cuda: *mut c_void,
    nvml: *mut c_void,
    found: BTreeMap<String, Option<Function>>,
}

impl Driver {
    /// Loads `libcuda.so.1`, and `libnvidia-ml.so.1` where it is there.
    ///
    /// # Errors
    /// The loader's message if there is no `libcuda.so.1`.
    pub(crate) fn load() -> Result<Self, String> {
        let cuda = open(c"libcuda.so.1")?;
        let nvml = open(c"libnvidia-ml.so.1").unwrap_or(std::ptr::null_mut());
        Ok(Self { cuda, nvml, found: BTreeMap::new() })
    }

    /// Tests if the library exports the function.
    pub(crate) fn has(&mut self, name: &str) -> bool {
        self.function(name).is_some()
    }

    /// Calls a function with up to [`ARGUMENTS`] integers or pointers; nothing if it does not exist.
    pub(crate) fn call(&mut self, name: &str, arguments: &[u64; ARGUMENTS]) -> Option<i32> {
        let function = self.function(name)?;
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *arguments;
        // SAFETY: on the System V ABIs of x86-64 and aarch64 a function of integers and pointers may be called with
        // more of them than it takes. Rows pass addresses of variables of this process that are larger than any
        // structure of these interfaces; each row runs in a process of its own, which a wrong row ends.
        Some(unsafe { function(a, b, c, d, e, f, g, h, i, j, k, l) })
    }

    fn function(&mut self, name: &str) -> Option<Function> {
        if let Some(found) = self.found.get(name) {
            return *found;
        }
        let library = if name.starts_with("nvml") { self.nvml } else { self.cuda };
        let symbol = CString::new(name).ok()?;
        let address = if library.is_null() {
            std::ptr::null_mut()
        } else {
            // SAFETY: the library was opened by us and is never closed; the name ends with a zero.
            unsafe { libc::dlsym(library, symbol.as_ptr()) }
        };
        // SAFETY: both are pointers to code of the same size, and a null address becomes `None`; the names are those
        // of functions.
        let function = unsafe { std::mem::transmute::<*mut c_void, Option<Function>>(address) };
        self.found.insert(name.to_owned(), function);
        function
    }
}

fn open(name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the name ends with a zero; loading runs the library's constructors, which is what is wanted.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() { Err(loader_message()) } else { Ok(library) }
}

fn loader_message() -> String {
    // SAFETY: dlerror returns null or a string of this thread that is good until the next call of the loader.
    let message = unsafe { libc::dlerror() };
    if message.is_null() { "no reason given".to_owned() } else { text_at(message) }
}

fn text_at(address: *const c_char) -> String {
    // SAFETY: the caller got the address as one of a string, from the loader or from the driver.
    unsafe { CStr::from_ptr(address) }.to_string_lossy().into_owned()
}

/// The string that the driver gave the address of; nothing for a null one.
pub(crate) fn text(address: u64) -> Option<String> {
    let address = address as *const c_char;
    (!address.is_null()).then(|| text_at(address))
}

// SAFETY: handles of the loader and addresses of code may be used by any thread.
unsafe impl Send for Driver {}
