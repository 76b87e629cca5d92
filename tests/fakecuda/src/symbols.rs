//! `cuGetProcAddress`: the symbol of a base name, by version and default-stream flag.
//!
//! The rows are facts read off driver 550.163.01's `cuGetProcAddress_v2` (see `data/procaddress.tsv`), for the base
//! names that this library has, and beyond that driver, facts of the public headers. Rows newer than the library's own
//! [personality] count as if they were not there. A row whose symbol is not here answers "not found", never an older
//! form, whose arguments would be other ones.

use simgpu::{LookUp, Personality};

use crate::personality;
use crate::status::{Outcome, Status};
use crate::wall::{Host, Out, Text};

/// Base name, lowest version, flag, symbol.
const ROWS: &str = include_str!("../data/procaddress.tsv");

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`; 1 is the legacy stream, like 0.
const PER_THREAD: u64 = 2;

/// Answers with the address of a symbol of this library.
pub(crate) type Address = fn(&str, LookUp) -> Option<Host>;

/// `CUdriverProcAddressQueryResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    At(&'static str),
    NoSuchName,
    VersionTooLow,
}

fn rows() -> impl Iterator<Item = (&'static str, i32, u64, &'static str)> {
    ROWS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (base, version) = (fields.next()?, fields.next()?.parse().ok()?);
        Some((base, version, fields.next()?.parse().ok()?, fields.next()?))
    })
}

/// The CUDA version that a symbol came with.
pub(crate) fn since(symbol: &str) -> Option<i32> {
    rows().filter(|(_, _, _, named)| *named == symbol).map(|(_, since, _, _)| since).min()
}

fn find(address: Address, driver: &Personality, name: &str, version: i32, per_thread: bool) -> Found {
    let flag = if per_thread { PER_THREAD } else { 0 };
    let mut known = false;
    let mut best: Option<(i32, &'static str)> = None;
    for (_, since, _, symbol) in
        rows().filter(|(base, since, flags, _)| *base == name && *flags == flag && driver.has(*since))
    {
        known = true;
        if since <= version && best.is_none_or(|(before, _)| before <= since) {
            best = Some((since, symbol));
        }
    }
    match best {
        Some((_, symbol)) if address(symbol, driver.look_up).is_some() => Found::At(symbol),
        Some(_) => Found::NoSuchName,
        None if known => Found::VersionTooLow,
        None => Found::NoSuchName,
    }
}

fn lookup(address: Address, name: Text, version: i32, flags: u64) -> Outcome<Found> {
    if flags > PER_THREAD {
        return Err(Status::InvalidValue);
    }
    Ok(find(address, personality::own(), &name.get()?, version, flags == PER_THREAD))
}

fn at(address: Address, symbol: &str) -> Host {
    address(symbol, personality::own().look_up).unwrap_or(Host::NULL)
}

/// The second form: succeeds for each valid request; the result of the look-up is in `status`.
pub(crate) fn get_v2(
    address: Address,
    name: Text,
    out: Out<Host>,
    version: i32,
    flags: u64,
    status: Out<i32>,
) -> Outcome {
    out.check()?;
    let (pointer, number) = match lookup(address, name, version, flags)? {
        Found::At(symbol) => (at(address, symbol), 0),
        Found::NoSuchName => (Host::NULL, 1),
        Found::VersionTooLow => (Host::NULL, 2),
    };
    status.offer(number);
    out.put(pointer)
}

/// The first form: what is not found is an error, and the place stays as it was.
pub(crate) fn get(address: Address, name: Text, out: Out<Host>, version: i32, flags: u64) -> Outcome {
    out.check()?;
    match lookup(address, name, version, flags)? {
        Found::At(symbol) => out.put(at(address, symbol)),
        Found::NoSuchName | Found::VersionTooLow => Err(Status::NotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, find, rows, since};
    use simgpu::{LookUp, Personality, personalities};

    use crate::exports;

    fn newest() -> Personality {
        personalities().last().unwrap()
    }

    #[test]
    fn a_name_newer_than_the_driver_is_not_found() {
        let old = personalities().next().unwrap();
        assert_eq!(
            find(exports::address, &old, "cuStreamGetCaptureInfo", 99999, false),
            Found::At("cuStreamGetCaptureInfo_v2")
        );
        assert_eq!(find(exports::address, &old, "cuGreenCtxCreate", 99999, false), Found::NoSuchName);
        assert_eq!(since("cuGreenCtxCreate"), Some(12040));
    }

    #[test]
    fn a_foreign_look_up_has_an_address_of_its_own_for_each_symbol() {
        let all =
            |look_up| exports::names().map(move |name| exports::address(name, look_up).unwrap().address());
        let mut addresses: Vec<u64> = all(LookUp::Exported).chain(all(LookUp::Foreign)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 2 * exports::names().count());
    }

    #[test]
    fn the_version_and_the_flag_decide() {
        assert_eq!(find(exports::address, &newest(), "cuMemAlloc", 2000, false), Found::At("cuMemAlloc"));
        assert_eq!(find(exports::address, &newest(), "cuMemAlloc", 12040, false), Found::At("cuMemAlloc_v2"));
        assert_eq!(find(exports::address, &newest(), "cuMemAlloc", 99999, true), Found::At("cuMemAlloc_v2"));
        assert_eq!(
            find(exports::address, &newest(), "cuLaunchKernel", 12040, true),
            Found::At("cuLaunchKernel_ptsz")
        );
        assert_eq!(find(exports::address, &newest(), "cuMemAlloc", 1000, false), Found::VersionTooLow);
        assert_eq!(find(exports::address, &newest(), "cuMemAlloc_v2", 12040, false), Found::NoSuchName);
        assert_eq!(find(exports::address, &newest(), "", 12040, false), Found::NoSuchName);
    }

    #[test]
    fn every_symbol_is_found_by_some_row_and_every_row_has_its_symbol() {
        let symbols: Vec<&str> = rows().map(|(_, _, _, symbol)| symbol).collect();
        let unnamed: Vec<_> = exports::names().filter(|name| !symbols.contains(name)).collect();
        assert_eq!(unnamed, NOT_BY_LOOKUP, "exported, but in no row of tests/fakecuda/data/procaddress.tsv");
        let missing: Vec<_> = symbols
            .into_iter()
            .filter(|symbol| exports::address(symbol, LookUp::Exported).is_none())
            .collect();
        assert_eq!(missing, [] as [&str; 0], "in a row, but not exported");
    }

    /// Exported by the real driver too, yet not in its look-up table.
    const NOT_BY_LOOKUP: [&str; 0] = [];
}
