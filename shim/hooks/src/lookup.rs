//! Hooks of look-up functions: `dlsym`, `dlvsym` and `cuGetProcAddress`.
//!
//! `dlsym` and `dlvsym` jump to the real ones with the caller's return address in place, so that RTLD_NEXT and
//! RTLD_DEFAULT refer to the caller. Only a governed name with a handle, and these functions' own names, take another
//! path: the real one is called first, and only a function that exists, in the driver or in libc, is replaced.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

use crate::elf;
use crate::hooks::{Hook, KNOWN_VERSION};
use crate::libraries::{Library, Provider, provider};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static REAL_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Name that is looked up in place of a governed function's form that this release does not know.
const UNKNOWN_FORM: &CStr = c"a form of a governed function that this release does not know";

/// Decision of the filter, in the two registers in which a pair is returned.
#[repr(C)]
struct Verdict {
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

unsafe extern "C" fn filter_dlsym(handle: *mut c_void, name: *const c_char) -> Verdict {
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
) -> Verdict {
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
) -> Verdict {
    let pass = Verdict { address: real, jump: 1 };
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

const fn give(address: *mut c_void) -> Verdict {
    Verdict { address, jump: 0 }
}

/// Address to return instead of `found`; `None` to return the real function's result.
fn replace(hook: Hook, found: *mut c_void) -> Option<*mut c_void> {
    if found.is_null() {
        return None;
    }
    if found == hook.address() {
        // Found in the global scope, where the shim's export stands even if the driver is not loaded.
        return (!hook.symbol().library.is_loaded()).then_some(null_mut());
    }
    match (provider(hook.symbol(), found), hook.symbol().library) {
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

/// Treatment of a result of `cuGetProcAddress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The driver's result stays.
    Pass,
    /// The hook of the function that the driver returned.
    Give(Hook),
    /// No function: the driver's is a governed function in a form that has no hook.
    Withhold,
}

/// The hook for the driver's result, by the function that it is and not by the request.
///
/// A driver may return addresses other than its exported ones, and forms that are newer than the hooks. `ask` is the
/// driver's result for the same name and flags at another version. A form's first version identifies it: the result
/// at that version is the form itself in each driver that has it, and an older form's address in all others.
pub(crate) fn resolve(
    name: &CStr,
    (version, flags): (c_int, u64),
    found: *mut c_void,
    exported: impl Fn(Hook) -> Option<*mut c_void>,
    ask: impl Fn(c_int) -> Option<*mut c_void>,
) -> Answer {
    let mut hooks = Hook::all().filter(|hook| hook.symbol().library == Library::Cuda);
    if let Some(hook) = hooks.find(|hook| exported(*hook) == Some(found)) {
        return Answer::Give(hook);
    }
    if Hook::is_unknown_form(name) {
        return Answer::Withhold;
    }
    if !Hook::is_base(name) {
        return Hook::named(name).map_or(Answer::Pass, Answer::Give);
    }
    let forms = || Hook::forms(name, version, flags);
    let same = forms().filter(|(_, since)| ask(*since) == Some(found));
    if let Some((hook, _)) = same.min_by_key(|(hook, since)| (*since, !hook.is_per_thread())) {
        return Answer::Give(hook);
    }
    // Drivers of known versions have the forms of the table and no others, at whatever addresses.
    let there = forms().filter(|(hook, _)| version <= KNOWN_VERSION && exported(*hook).is_some());
    let newest = there.max_by_key(|(hook, since)| (*since, hook.is_per_thread()));
    newest.map_or(Answer::Withhold, |(hook, _)| Answer::Give(hook))
}

/// Replaces the result that the driver has written to `slot`; false if the function is withheld.
///
/// The caller then reports that as its look-up function does.
///
/// # Safety
/// `name` must be null or end with a zero, and `slot` valid for writes if the driver succeeded.
pub(crate) unsafe fn replace_answer(
    name: *const c_char,
    slot: *mut *mut c_void,
    request: (c_int, u64),
    ask: impl Fn(c_int) -> Option<*mut c_void>,
) -> bool {
    // SAFETY: null is checked first; otherwise `name` is terminated and `slot` is writable by this function's
    // contract.
    unsafe {
        if slot.is_null() || name.is_null() || (*slot).is_null() {
            return true;
        }
        let exported = |hook: Hook| hook.symbol().real();
        match resolve(CStr::from_ptr(name), request, *slot, exported, ask) {
            Answer::Pass => true,
            Answer::Give(hook) => {
                ptr::write(slot, hook.address());
                true
            }
            Answer::Withhold => {
                ptr::write(slot, null_mut());
                false
            }
        }
    }
}

const _: () = assert!(size_of::<Verdict>() == 16, "a verdict comes back in two registers");

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::string::{String, ToString};
    use std::vec::Vec;

    /// A driver whose functions lie where the test puts them, with its table of forms.
    ///
    /// A form is base name, version, flags and symbol.
    struct Driver {
        rows: Vec<(String, c_int, u64, String)>,
        /// True if its results are its exported addresses.
        plain: bool,
    }

    impl Driver {
        /// All forms of the table up to a version.
        fn of(newest: u32) -> Self {
            let rows = tranche_symbols::versions().filter(|row| row.since <= newest);
            let since = |since: u32| c_int::try_from(since).expect("versions are small");
            let rows =
                rows.map(|row| (row.base.to_string(), since(row.since), row.flags, row.symbol.to_string()));
            Self { rows: rows.collect(), plain: false }
        }

        fn with(mut self, base: &str, since: c_int, flags: u64, symbol: &str) -> Self {
            self.rows.push((base.to_string(), since, flags, symbol.to_string()));
            self
        }

        fn number(&self, symbol: &str) -> Option<usize> {
            self.rows.iter().position(|row| row.3 == symbol)
        }

        fn exported(&self, hook: Hook) -> Option<*mut c_void> {
            let symbol = hook.symbol().name.to_str().ok()?;
            self.number(symbol).map(|number| (0x10_000 + number * 16) as *mut c_void)
        }

        fn answer(&self, name: &str, version: c_int, flags: u64) -> Option<*mut c_void> {
            let rows = self.rows.iter().filter(|row| row.0 == name && row.1 <= version && row.2 == flags);
            let symbol = &rows.max_by_key(|row| row.1)?.3;
            let base = if self.plain { 0x10_000 } else { 0x90_000 };
            self.number(symbol).map(|number| (base + number * 16) as *mut c_void)
        }

        fn resolve(&self, name: &str, version: c_int, flags: u64) -> Option<Answer> {
            let found = self.answer(name, version, flags)?;
            let named = std::ffi::CString::new(name).ok()?;
            let exported = |hook| self.exported(hook);
            let ask = |version| self.answer(name, version, flags);
            Some(resolve(&named, (version, flags), found, exported, ask))
        }
    }

    fn governed() -> BTreeMap<(String, u64), Vec<(c_int, Hook)>> {
        let mut forms: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for row in tranche_symbols::versions() {
            let symbol = std::ffi::CString::new(row.symbol).expect("names hold no zero byte");
            if let Some(hook) = Hook::named(&symbol) {
                let since = c_int::try_from(row.since).expect("versions are small");
                forms.entry((row.base.to_string(), row.flags)).or_default().push((since, hook));
            }
        }
        forms
    }

    #[test]
    fn every_governed_request_gets_its_form_at_any_version() {
        for plain in [true, false] {
            let driver = Driver { plain, ..Driver::of(13_050) };
            for ((name, flags), forms) in governed() {
                for version in [2000, 3020, 7000, 11_040, 12_040, 13_050, 13_060, 14_000, c_int::MAX] {
                    let right = forms.iter().filter(|(since, _)| *since <= version).max_by_key(|form| form.0);
                    let answer = driver.resolve(&name, version, flags);
                    let right = right.map(|(_, hook)| Answer::Give(*hook));
                    assert_eq!(answer, right, "{name} {version} {flags} {plain}");
                }
            }
        }
    }

    #[test]
    fn older_driver_gives_its_own_form() {
        let driver = Driver::of(11_030);
        let answer = driver.resolve("cuCtxCreate", 12_050, 0);
        assert_eq!(answer, Some(Answer::Give(Hook::cuCtxCreate_v2)));
    }

    #[test]
    fn form_newer_than_known_is_withheld() {
        for plain in [true, false] {
            for flags in [0, 2] {
                let newer = Driver::of(13_050).with("cuMemAlloc", 14_000, flags, "cuMemAlloc_v3");
                let driver = Driver { plain, ..newer };
                assert_eq!(driver.resolve("cuMemAlloc", 14_000, flags), Some(Answer::Withhold));
                let before = driver.resolve("cuMemAlloc", 13_050, flags);
                assert_eq!(before, Some(Answer::Give(Hook::cuMemAlloc_v2)));
                let driver = driver.with("cuMemAlloc_v3", 14_000, flags, "cuMemAlloc_v3");
                assert_eq!(driver.resolve("cuMemAlloc_v3", 14_000, flags), Some(Answer::Withhold));
            }
        }
    }

    #[test]
    fn names_with_their_suffix_get_the_hook() {
        let driver = Driver::of(13_050).with("cuMemAlloc_v2", 3020, 0, "cuMemAlloc_v2");
        assert_eq!(driver.resolve("cuMemAlloc_v2", 99_000, 0), Some(Answer::Give(Hook::cuMemAlloc_v2)));
    }

    #[test]
    fn names_that_are_not_governed_pass() {
        let driver = Driver::of(13_050).with("cuNews", 14_000, 0, "cuNews_v7");
        assert_eq!(driver.resolve("cuNews", 14_000, 0), Some(Answer::Pass));
        assert_eq!(driver.resolve("cuDriverGetVersion", 14_000, 0), Some(Answer::Pass));
    }
}
