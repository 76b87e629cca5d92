//! `cuGetProcAddress` in its versions, which returns the hooks of governed functions.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{self, null_mut};

use super::abi::{NOT_FOUND, SUCCESS, checked};
use crate::forms::Governed;
use crate::libraries::Library;

/// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`
const SYMBOL_NOT_FOUND: c_int = 1;

type LookUp = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> c_int;
type LookUpV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

pub(crate) unsafe fn look_up<H: Governed>(
    real: LookUp,
    name: *const c_char,
    slot: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, valid by the hook's contract; they are read after its success.
    unsafe {
        let result = real(name, slot, version, flags);
        if result != SUCCESS {
            return result;
        }
        let ask = |version| {
            let mut found = null_mut();
            checked(real(name, &mut found, version, flags)).ok().map(|()| found).filter(|it| !it.is_null())
        };
        if replace_answer::<H>(name, slot, (version, flags), ask) { SUCCESS } else { NOT_FOUND }
    }
}

pub(crate) unsafe fn look_up_v2<H: Governed>(
    real: LookUpV2,
    name: *const c_char,
    slot: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    // SAFETY: the arguments pass to `real` unchanged, valid by the hook's contract; they are read after its success.
    unsafe {
        let result = real(name, slot, version, flags, status);
        if result != SUCCESS {
            return result;
        }
        let ask = |version| {
            let (mut found, mut status) = (null_mut(), 0);
            let asked = checked(real(name, &mut found, version, flags, &mut status));
            asked.ok().map(|()| found).filter(|it| !it.is_null())
        };
        if !replace_answer::<H>(name, slot, (version, flags), ask) && !status.is_null() {
            *status = SYMBOL_NOT_FOUND;
        }
        SUCCESS
    }
}

/// Treatment of a result of `cuGetProcAddress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResultTreatment<H> {
    /// The driver's result stays.
    Pass,
    /// The hook of the function that the driver returned.
    Give(H),
    /// No function: the driver's is a governed function in a form that has no hook.
    Withhold,
}

/// The hook for the driver's result, by the function that it is and not by the request.
///
/// A driver may return addresses other than its exported ones, and forms that are newer than the hooks. `ask` is the
/// driver's result for the same name and flags at another version. A form's first version identifies it: the result
/// at that version is the form itself in each driver that has it, and an older form's address in all others.
fn resolve<H: Governed>(
    name: &CStr,
    (version, flags): (c_int, u64),
    found: *mut c_void,
    exported: impl Fn(H) -> Option<*mut c_void>,
    ask: impl Fn(c_int) -> Option<*mut c_void>,
) -> ResultTreatment<H> {
    let mut hooks = H::all().filter(|hook| hook.symbol().library() == Library::Cuda);
    if let Some(hook) = hooks.find(|hook| exported(*hook) == Some(found)) {
        return ResultTreatment::Give(hook);
    }
    if H::is_unknown_form(name) {
        return ResultTreatment::Withhold;
    }
    if !H::is_base(name) {
        return H::named(name).map_or(ResultTreatment::Pass, ResultTreatment::Give);
    }
    let forms = || H::forms(name, version, flags);
    let same = forms().filter(|(_, since)| ask(*since) == Some(found));
    if let Some((hook, _)) = same.min_by_key(|(hook, since)| (*since, !hook.is_per_thread())) {
        return ResultTreatment::Give(hook);
    }
    // Drivers of known versions have the forms of the table and no others, at whatever addresses.
    let there = forms().filter(|(hook, _)| version <= H::KNOWN_VERSION && exported(*hook).is_some());
    let newest = there.max_by_key(|(hook, since)| (*since, hook.is_per_thread()));
    newest.map_or(ResultTreatment::Withhold, |(hook, _)| ResultTreatment::Give(hook))
}

/// Replaces the result that the driver has written to `slot`; false if the function is withheld.
///
/// The caller then reports that as its look-up function does.
///
/// # Safety
/// `name` must be null or end with a zero, and `slot` valid for writes if the driver succeeded.
unsafe fn replace_answer<H: Governed>(
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
        let exported = |hook: H| hook.symbol().real();
        match resolve(CStr::from_ptr(name), request, *slot, exported, ask) {
            ResultTreatment::Pass => true,
            ResultTreatment::Give(hook) => {
                ptr::write(slot, hook.address());
                true
            }
            ResultTreatment::Withhold => {
                ptr::write(slot, null_mut());
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::Hook;
    use std::collections::BTreeMap;
    use std::string::{String, ToString};
    use std::vec::Vec;

    /// A driver whose functions lie where the test puts them, with its table of forms.
    ///
    /// A form is base name, version, flags and symbol.
    struct FakeDriver {
        rows: Vec<(String, c_int, u64, String)>,
        /// True if its results are its exported addresses.
        plain: bool,
    }

    impl FakeDriver {
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
            let symbol = hook.symbol().name().to_str().ok()?;
            self.number(symbol).map(|number| (0x10_000 + number * 16) as *mut c_void)
        }

        fn answer(&self, name: &str, version: c_int, flags: u64) -> Option<*mut c_void> {
            let rows = self.rows.iter().filter(|row| row.0 == name && row.1 <= version && row.2 == flags);
            let symbol = &rows.max_by_key(|row| row.1)?.3;
            let base = if self.plain { 0x10_000 } else { 0x90_000 };
            self.number(symbol).map(|number| (base + number * 16) as *mut c_void)
        }

        fn resolve(&self, name: &str, version: c_int, flags: u64) -> Option<ResultTreatment<Hook>> {
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
            let driver = FakeDriver { plain, ..FakeDriver::of(13_050) };
            for ((name, flags), forms) in governed() {
                for version in [2000, 3020, 7000, 11_040, 12_040, 13_050, 13_060, 14_000, c_int::MAX] {
                    let right = forms.iter().filter(|(since, _)| *since <= version).max_by_key(|form| form.0);
                    let answer = driver.resolve(&name, version, flags);
                    let right = right.map(|(_, hook)| ResultTreatment::Give(*hook));
                    assert_eq!(answer, right, "{name} {version} {flags} {plain}");
                }
            }
        }
    }

    #[test]
    fn older_driver_gives_its_own_form() {
        let driver = FakeDriver::of(11_030);
        let answer = driver.resolve("cuCtxCreate", 12_050, 0);
        assert_eq!(answer, Some(ResultTreatment::Give(Hook::cuCtxCreate_v2)));
    }

    #[test]
    fn form_newer_than_known_is_withheld() {
        for plain in [true, false] {
            for flags in [0, 2] {
                let newer = FakeDriver::of(13_050).with("cuMemAlloc", 14_000, flags, "cuMemAlloc_v3");
                let driver = FakeDriver { plain, ..newer };
                assert_eq!(driver.resolve("cuMemAlloc", 14_000, flags), Some(ResultTreatment::Withhold));
                let before = driver.resolve("cuMemAlloc", 13_050, flags);
                assert_eq!(before, Some(ResultTreatment::Give(Hook::cuMemAlloc_v2)));
                let driver = driver.with("cuMemAlloc_v3", 14_000, flags, "cuMemAlloc_v3");
                assert_eq!(driver.resolve("cuMemAlloc_v3", 14_000, flags), Some(ResultTreatment::Withhold));
            }
        }
    }

    #[test]
    fn names_with_their_suffix_get_the_hook() {
        let driver = FakeDriver::of(13_050).with("cuMemAlloc_v2", 3020, 0, "cuMemAlloc_v2");
        assert_eq!(
            driver.resolve("cuMemAlloc_v2", 99_000, 0),
            Some(ResultTreatment::Give(Hook::cuMemAlloc_v2))
        );
    }

    #[test]
    fn names_that_are_not_governed_pass() {
        let driver = FakeDriver::of(13_050).with("cuNews", 14_000, 0, "cuNews_v7");
        assert_eq!(driver.resolve("cuNews", 14_000, 0), Some(ResultTreatment::Pass));
        assert_eq!(driver.resolve("cuDriverGetVersion", 14_000, 0), Some(ResultTreatment::Pass));
    }
}
