//! The driver's two libraries, and the addresses of the real functions in them.

use core::ffi::{CStr, c_int, c_void};
use core::iter;
use core::mem::zeroed;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

#[cfg(not(feature = "preload"))]
use crate::alias;
use crate::elf::{self, Object};
use crate::link_map::LinkMap;
use crate::root::SHARED;

/// A library of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// `libcuda.so.1`
    Cuda,
    /// `libnvidia-ml.so.1`
    Nvml,
}

/// Last known place of each library: load address, then dynamic section, which is null until known.
static PLACES: [(AtomicUsize, AtomicPtr<c_void>); 2] =
    [const { (AtomicUsize::new(0), AtomicPtr::new(ptr::null_mut())) }; 2];

/// True for a library that is the shim itself.
static OURS: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

impl Library {
    /// SONAME of the library, whatever its file is called.
    pub(crate) const fn soname(self) -> &'static CStr {
        match self {
            Self::Cuda => c"libcuda.so.1",
            Self::Nvml => c"libnvidia-ml.so.1",
        }
    }

    /// SONAME of the driver's file where the shim's library is mounted over it.
    #[cfg(not(feature = "preload"))]
    const fn alias(self) -> &'static CStr {
        match self {
            Self::Cuda => c"libcuda-real.so.1",
            Self::Nvml => c"libnvidia-ml-real.so.1",
        }
    }

    /// Result of a hook whose real function is missing.
    pub(crate) const fn absent(self) -> c_int {
        match self {
            Self::Cuda => crate::cuda::abi::NOT_FOUND,
            Self::Nvml => crate::nvml::abi::FUNCTION_NOT_FOUND,
        }
    }

    /// True while the library is loaded.
    pub(crate) fn is_loaded(self) -> bool {
        elf::search(|object| (object.soname() == self.soname()).then_some(())).is_some()
    }

    /// True if the loaded library is the shim in the driver's place.
    ///
    /// A shim that is preloaded besides passes every call on to it, so that nothing is charged twice.
    #[inline(always)]
    pub(crate) fn is_ours(self) -> bool {
        cfg!(feature = "preload") && OURS[self as usize].load(Relaxed)
    }

    /// Address of the function in the library at its last known place, or else where it is loaded now.
    fn function(self, name: &CStr) -> Option<*mut c_void> {
        let (base, dynamic) = &PLACES[self as usize];
        let known = dynamic.load(Acquire);
        // SAFETY: `adopt` stored the place of a loaded object. A program that unloads the driver while calling into
        // it violates the driver's own contract; one that loads it again comes by `adopt`.
        match unsafe { Object::at(base.load(Acquire), known) } {
            Some(object) => object.function(name),
            None => {
                // There was no library before, or another thread drops its addresses at this instant.
                let object = self.loaded()?;
                self.adopt(object, iter::empty());
                object.function(name)
            }
        }
    }

    /// The driver's library as it is loaded now.
    #[cfg(feature = "preload")]
    fn loaded(self) -> Option<Object> {
        elf::search(|object| (object.soname() == self.soname()).then_some(object))
    }

    /// The driver's library as it is loaded now.
    ///
    /// Under its other name, or else under its own in a program that has the driver itself. The shim's has the same
    /// name, and exports [`SHARED`](crate::root::SHARED).
    #[cfg(not(feature = "preload"))]
    fn loaded(self) -> Option<Object> {
        let named = |object: &Object| object.soname() == self.soname();
        let theirs = |object: &Object| object.function(SHARED).is_none();
        let anywhere = || elf::search(|object| Some(object).filter(|it| named(it) && theirs(it)));
        alias::loaded(self.alias()).or_else(anywhere)
    }

    /// Makes this object the library, and drops the addresses of `known` that were found in another.
    fn adopt(self, object: Object, known: impl Iterator<Item = Symbol>) {
        let (base, dynamic) = &PLACES[self as usize];
        if dynamic.load(Acquire) == object.dynamic() {
            return;
        }
        dynamic.store(ptr::null_mut(), Release);
        known.filter(|symbol| symbol.library() == self).for_each(Symbol::forget);
        OURS[self as usize].store(object.function(SHARED).is_some(), Relaxed);
        base.store(object.base(), Release);
        dynamic.store(object.dynamic(), Release);
    }
}

/// Name of a function of the driver, stored in place.
///
/// A pointer to it would be relocated in every program that starts.
pub(crate) struct SymbolName {
    library: Library,
    length: u8,
    name: [u8; LONGEST_NAME + 1],
}

/// Greatest length of a function's name.
const LONGEST_NAME: usize = 63;

impl SymbolName {
    pub(crate) const fn new(library: Library, name: &str) -> Self {
        let mut bytes = [0; LONGEST_NAME + 1];
        assert!(name.len() <= LONGEST_NAME, "a name ends with a zero byte");
        bytes.split_at_mut(name.len()).0.copy_from_slice(name.as_bytes());
        Self { library, length: name.len() as u8, name: bytes }
    }
}

/// Address of a function of the driver, null until it is resolved.
pub(crate) type RealAddress = AtomicPtr<c_void>;

/// Addresses that are not resolved.
pub(crate) const fn unresolved<const COUNT: usize>() -> [RealAddress; COUNT] {
    [const { AtomicPtr::new(ptr::null_mut()) }; COUNT]
}

/// A function of the driver, and its address once it was resolved.
#[derive(Clone, Copy)]
pub(crate) struct Symbol {
    name: &'static SymbolName,
    real: &'static RealAddress,
}

impl Symbol {
    #[inline(always)]
    pub(crate) const fn new(name: &'static SymbolName, real: &'static RealAddress) -> Self {
        Self { name, real }
    }

    /// Library that has the function.
    pub(crate) const fn library(self) -> Library {
        self.name.library
    }

    /// Name under which the library exports it.
    pub(crate) fn name(self) -> &'static CStr {
        CStr::from_bytes_until_nul(&self.name.name).unwrap_or_default()
    }

    /// The name, without the final zero.
    pub(crate) fn name_bytes(self) -> &'static [u8] {
        self.name.name.get(..usize::from(self.name.length)).unwrap_or_default()
    }

    /// Address of the real function, resolved on first use; `None` if it is missing.
    #[inline(always)]
    pub(crate) fn real(self) -> Option<*mut c_void> {
        let known = self.real.load(Acquire);
        if !known.is_null() {
            return Some(known);
        }
        self.find()
    }

    #[cold]
    fn find(self) -> Option<*mut c_void> {
        let found = self.library().function(self.name())?;
        self.real.store(found, Release);
        Some(found)
    }

    fn forget(self) {
        self.real.store(ptr::null_mut(), Release);
    }
}

/// Owner of a function that the dynamic linker found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    /// The driver's function, and the one that hooks call.
    Driver,
    /// Another copy of the driver, in a namespace of its own.
    OtherCopy,
    /// Another function of the same name.
    Stranger,
}

/// Owner of `found`, the dynamic linker's result for `symbol`.
///
/// If it lies in an object other than the library so far, that becomes the library. `known` are all symbols whose
/// address may have been resolved.
pub(crate) fn provider(
    symbol: Symbol,
    found: *mut c_void,
    known: impl Iterator<Item = Symbol> + Clone,
) -> Provider {
    if symbol.real.load(Acquire) == found {
        return Provider::Driver;
    }
    let soname = symbol.library().soname();
    let ours = elf::search(|object| {
        let it = object.soname() == soname && object.function(symbol.name()) == Some(found);
        it.then(|| symbol.library().adopt(object, known.clone()))
    });
    match ours {
        Some(()) => Provider::Driver,
        None if soname_of(found, |name| name == soname) => Provider::OtherCopy,
        None => Provider::Stranger,
    }
}

type Dladdr1 = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info, *mut *mut c_void, c_int) -> c_int;

/// Tests the SONAME of the object around an address, in any namespace; false where libc finds none.
fn soname_of(address: *const c_void, test: impl Fn(&CStr) -> bool) -> bool {
    const RTLD_DL_LINKMAP: c_int = 2;
    let Some(function) = elf::in_libc(c"dladdr1") else { return false };
    let mut map: *mut c_void = ptr::null_mut();
    // SAFETY: the function is libc's dladdr1, which has had this type since 2.3.3. It fills the local `info` and,
    // with RTLD_DL_LINKMAP, `map`, which stays valid while the object is loaded.
    unsafe {
        let dladdr1: Dladdr1 = core::mem::transmute(function);
        let mut info: libc::Dl_info = zeroed();
        if dladdr1(address, &mut info, &mut map, RTLD_DL_LINKMAP) == 0 || map.is_null() {
            return false;
        }
        let map = &*map.cast::<LinkMap>();
        Object::at(map.base, map.dynamic).is_some_and(|object| test(object.soname()))
    }
}
