//! Every name that the driver exports and the shim's treatment of it: data, and a reader for it.
//!
//! Law: nothing is left out. A name without a decision is [`Class::Unclassified`], and a test of this crate fails
//! until it has one. The tests of `tranche-hooks` compare the hooks with the rows.
#![forbid(unsafe_code)]

pub mod header;

use std::collections::BTreeSet;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

/// Treatment of a name by the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The call is charged, refused, or its result is rewritten for the slice.
    Governed,
    /// The call passes, and the allocation ledger follows it.
    Observed,
    /// The call passes untouched, for the reason of this key (see [`reason`]).
    Alone(&'static str),
    /// No decision yet; a test fails.
    Unclassified,
}

impl Class {
    /// True if the shim has a function of this name.
    pub const fn is_hooked(self) -> bool {
        matches!(self, Self::Governed | Self::Observed)
    }

    fn read(word: &str, key: Option<&'static str>) -> Option<Self> {
        match (word, key) {
            ("governed", None) => Some(Self::Governed),
            ("observed", None) => Some(Self::Observed),
            ("alone", Some(key)) => Some(Self::Alone(key)),
            ("unclassified", None) => Some(Self::Unclassified),
            _ => None,
        }
    }
}

/// A name that a library of the driver exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the symbol, as `nm -D` lists it.
    pub name: &'static str,
    /// Treatment of the symbol by the shim.
    pub class: Class,
}

/// Result of `cuGetProcAddress` for one name, version and set of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Name that a program passes to it.
    pub base: &'static str,
    /// Lowest CUDA version with this result, such as 12040.
    pub since: u32,
    /// Flags that a program passes: 0, or 2 for per-thread default streams.
    pub flags: u64,
    /// Symbol whose address is returned.
    pub symbol: &'static str,
}

/// An enumerator that decides about a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enumerator {
    /// Name of its C type.
    pub kind: &'static str,
    /// Name of the enumerator in the header.
    pub name: &'static str,
    /// Number of the enumerator in the header.
    pub number: u32,
    /// Treatment by the shim, in the words that the head of the table explains.
    pub meaning: &'static str,
}

/// Treatments that the table may name.
pub const MEANINGS: [&str; 14] = [
    "device", "host", "located", "worst", "charged", "nested", "mapped", "shared", "layers", "bytes1",
    "bytes2", "bytes4", "free", "refused",
];

/// The enumerators of types that governed functions read.
pub fn enumerators() -> impl Iterator<Item = Enumerator> {
    lines(include_str!("../data/enumerators.tsv")).filter_map(enumerator)
}

/// Exports of `libcuda.so.1`. A malformed line becomes a row without a class, on which a test fails.
pub fn cuda() -> impl Iterator<Item = Row> {
    lines(include_str!("../data/cuda.tsv")).filter_map(row)
}

/// The exports of `libnvidia-ml.so.1`.
pub fn nvml() -> impl Iterator<Item = Row> {
    lines(include_str!("../data/nvml.tsv")).filter_map(row)
}

/// Results of `cuGetProcAddress`, in the order of the table.
pub fn versions() -> impl Iterator<Item = Version> {
    lines(include_str!("../data/versions.tsv")).filter_map(version)
}

/// Why names with this key are left alone: the rest of a sentence that begins "because it".
pub fn reason(key: &str) -> Option<&'static str> {
    reasons().find(|(known, _)| *known == key).map(|(_, sentence)| sentence)
}

/// All reasons, with their keys.
pub fn reasons() -> impl Iterator<Item = (&'static str, &'static str)> {
    lines(include_str!("../data/reasons.tsv")).filter_map(|line| line.split_once('\t'))
}

/// A name without the endings of its variants.
///
/// `cuMemAlloc` of `cuMemAlloc_v2`, `cuLaunchKernel` of `cuLaunchKernel_ptsz`.
pub fn base(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            base
        }
        _ => name,
    }
}

/// Names of the functions and variables that a shared library exports.
///
/// # Errors
/// If `library` is not a 64-bit shared library.
pub fn exports(library: &[u8]) -> Result<BTreeSet<String>, object::Error> {
    let file: ElfFile64<'_> = ElfFile64::parse(library)?;
    let exported = file.dynamic_symbols().filter(|symbol| !symbol.is_undefined() && symbol.is_global());
    exported.map(|symbol| Ok(String::from_utf8_lossy(symbol.name_bytes()?).into_owned())).collect()
}

fn row(line: &'static str) -> Option<Row> {
    let mut words = line.split('\t');
    let (name, word) = (words.next()?, words.next()?);
    Some(Row { name, class: Class::read(word, words.next())? })
}

fn version(line: &'static str) -> Option<Version> {
    let mut words = line.split('\t');
    Some(Version {
        base: words.next()?,
        since: words.next()?.parse().ok()?,
        flags: words.next()?.parse().ok()?,
        symbol: words.next()?,
    })
}

fn enumerator(line: &'static str) -> Option<Enumerator> {
    let mut words = line.split('\t');
    Some(Enumerator {
        kind: words.next()?,
        name: words.next()?,
        number: words.next()?.parse().ok()?,
        meaning: words.next()?,
    })
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn all() -> Vec<Row> {
        cuda().chain(nvml()).collect()
    }

    #[test]
    fn every_line_of_the_data_is_understood() {
        let count = |text: &'static str| lines(text).count();
        assert_eq!(count(include_str!("../data/cuda.tsv")), cuda().count());
        assert_eq!(count(include_str!("../data/nvml.tsv")), nvml().count());
        assert_eq!(count(include_str!("../data/versions.tsv")), versions().count());
        assert_eq!(count(include_str!("../data/reasons.tsv")), reasons().count());
        assert_eq!(count(include_str!("../data/enumerators.tsv")), enumerators().count());
    }

    #[test]
    fn every_name_is_classified() {
        let open: Vec<_> = all().into_iter().filter(|row| row.class == Class::Unclassified).collect();
        assert!(open.is_empty(), "decide about these in shim/symbols/data: {open:#?}");
    }

    #[test]
    fn every_enumerator_is_classified_once() {
        let open: Vec<_> = enumerators().filter(|row| !MEANINGS.contains(&row.meaning)).collect();
        assert!(open.is_empty(), "decide about these in shim/symbols/data/enumerators.tsv: {open:#?}");
        let mut numbers = BTreeMap::new();
        for row in enumerators() {
            let before = *numbers.entry((row.kind, row.number)).or_insert(row.meaning);
            assert_eq!(before, row.meaning, "{} has the number of another", row.name);
        }
    }

    #[test]
    fn no_name_is_classified_twice() {
        let mut seen = BTreeSet::new();
        for row in all() {
            assert!(seen.insert(row.name), "{} has two rows", row.name);
        }
    }

    #[test]
    fn untouched_names_have_reasons_and_reasons_have_names() {
        let used: BTreeSet<_> = all().iter().filter_map(|row| key(row.class)).collect();
        let known: BTreeSet<_> = reasons().map(|(key, _)| key).collect();
        assert_eq!(used, known);
        assert_eq!(reasons().count(), known.len(), "a key stands twice");
    }

    fn key(class: Class) -> Option<&'static str> {
        match class {
            Class::Alone(key) => Some(key),
            _ => None,
        }
    }

    #[test]
    fn the_variants_of_a_function_are_treated_alike() {
        let mut families: BTreeMap<&str, Row> = BTreeMap::new();
        for row in all() {
            let first = *families.entry(base(row.name)).or_insert(row);
            assert_eq!(row.class, first.class, "{} and {} differ", row.name, first.name);
        }
    }

    #[test]
    fn table_holds_every_export_of_its_sources() {
        // The counts of `nm -D` for 550.163.01, and the header's newer names.
        assert!(cuda().count() >= 656 + 82, "{}", cuda().count());
        assert!(nvml().count() >= 350, "{}", nvml().count());
    }

    #[test]
    fn results_of_look_up_are_in_the_table() {
        let names: BTreeSet<_> = cuda().map(|row| row.name).collect();
        for version in versions() {
            assert!(names.contains(version.symbol), "{version:?}");
            assert_eq!(base(version.symbol), version.base, "{version:?}");
        }
    }

    #[test]
    fn a_base_name_lacks_only_what_variants_append() {
        assert_eq!(
            ["cuMemAlloc_v2", "cuMemcpyBatchAsync_v2_ptsz", "cuMemcpy_ptds"].map(base),
            ["cuMemAlloc", "cuMemcpyBatchAsync", "cuMemcpy"]
        );
        assert_eq!(base("nvmlDeviceGetGpuFabricInfoV"), "nvmlDeviceGetGpuFabricInfoV");
    }
}
