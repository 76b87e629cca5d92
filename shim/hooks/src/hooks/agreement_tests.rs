//! Agreement of the hooks with the table of the driver's exports (`shim/symbols/data`).

use std::collections::BTreeSet;
use std::ffi::CString;
use std::string::String;
use std::vec::Vec;

use super::tests::newest;
use super::{Hook, KNOWN_VERSION};
use crate::forms::{Governed, base};
use crate::libraries::Library;

fn hooked(library: Library) -> BTreeSet<&'static str> {
    let hooks = Hook::all().filter(|hook| hook.symbol().library() == library);
    hooks.map(|hook| hook.symbol().name().to_str().expect("C identifiers are ASCII")).collect()
}

#[track_caller]
fn assert_agree(hooks: &BTreeSet<&str>, table: impl Iterator<Item = tranche_symbols::Row>) {
    let promised: BTreeSet<_> = table.filter(|row| row.class.is_hooked()).map(|row| row.name).collect();
    let unpromised: Vec<_> = hooks.difference(&promised).collect();
    let unkept: Vec<_> = promised.difference(hooks).collect();
    assert!(
        unpromised.is_empty(),
        "hooked: make these `governed` or `observed` in the table: {unpromised:?}"
    );
    assert!(unkept.is_empty(), "`governed` or `observed` in the table, and not hooked: {unkept:?}");
}

#[test]
fn hooked_functions_are_those_of_the_table() {
    assert_agree(&hooked(Library::Cuda), tranche_symbols::cuda());
    assert_agree(&hooked(Library::Nvml), tranche_symbols::nvml());
}

#[test]
fn request_means_the_function_that_the_driver_answers() {
    let versions: Vec<_> = tranche_symbols::versions().collect();
    for version in &versions {
        let name = CString::new(version.base).expect("the table holds no zero byte");
        let symbol = CString::new(version.symbol).expect("the table holds no zero byte");
        // A result holds until the next row of the same request; its last version is as good as its first.
        let next = versions.iter().filter(|other| {
            (other.base, other.flags) == (version.base, version.flags) && other.since > version.since
        });
        let last = next.map(|other| other.since - 1).min();
        for asked in [Some(version.since), last].into_iter().flatten() {
            let asked = i32::try_from(asked).expect("versions are small");
            assert_eq!(newest(&name, asked, version.flags), Hook::named(&symbol), "{asked}: {version:?}");
        }
    }
}

#[test]
fn base_names_agree_with_the_table() {
    for hook in Hook::all() {
        let name = hook.symbol().name().to_str().expect("C identifiers are ASCII");
        let here = String::from_utf8_lossy(base(name.as_bytes())).into_owned();
        assert_eq!(here, tranche_symbols::base(name));
    }
}

#[test]
fn hooks_know_every_version_of_the_table() {
    let newest = tranche_symbols::versions().map(|version| version.since).max();
    assert!(newest.is_some_and(|newest| newest <= KNOWN_VERSION.unsigned_abs()), "{newest:?}");
}
