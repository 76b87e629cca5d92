//! Every name that the driver exports, and what the shim makes of it: data, and a reader for it.
//!
//! Law: nothing is left out. A name that nobody has decided about is [`Class::Unclassified`], and a test of this
//! crate fails until somebody has. The hooks are compared with the rows in `tranche-hooks`.
#![forbid(unsafe_code)]

pub mod header;

use std::collections::BTreeSet;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

/// What the shim makes of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It is charged, refused, or answered as the slice wants it.
    Governed,
    /// It passes, and the books follow it.
    Observed,
    /// It is not touched, because it ... (see [`reason`]).
    Alone(&'static str),
    /// Nobody has decided yet.
    Unclassified,
}

impl Class {
    /// Whether the shim has a function of this name.
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
    /// The name.
    pub name: &'static str,
    /// What the shim makes of it.
    pub class: Class,
}

/// What a name means to `cuGetProcAddress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The name that is asked for.
    pub base: &'static str,
    /// The lowest CUDA version that has the answer, such as 12040.
    pub since: u32,
    /// The flags: 0, or 2 for per-thread default streams.
    pub flags: u64,
    /// The function that is answered.
    pub symbol: &'static str,
}

/// An enumerator that decides about a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enumerator {
    /// Its type.
    pub kind: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its number.
    pub number: u32,
    /// What the shim makes of it, as the table's head explains.
    pub meaning: &'static str,
}

/// Meanings that an enumerator can have.
pub const MEANINGS: [&str; 14] = [
    "device", "host", "located", "worst", "charged", "nested", "mapped", "shared", "layers", "bytes1",
    "bytes2", "bytes4", "free", "refused",
];

/// The enumerators of types that governed functions read.
pub fn enumerators() -> impl Iterator<Item = Enumerator> {
    lines(include_str!("../data/enumerators.tsv")).filter_map(enumerator)
}

/// The exports of `libcuda.so.1`. A line that is no row has no class, which a test notices.
pub fn cuda() -> impl Iterator<Item = Row> {
    lines(include_str!("../data/cuda.tsv")).filter_map(row)
}

/// The exports of `libnvidia-ml.so.1`.
pub fn nvml() -> impl Iterator<Item = Row> {
    lines(include_str!("../data/nvml.tsv")).filter_map(row)
}

/// What `cuGetProcAddress` answers.
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

/// A name without what its variants append: `cuMemAlloc` of `cuMemAlloc_v2`, `cuLaunchKernel` of
/// `cuLaunchKernel_ptsz`.
pub fn base(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            base
        }
        _ => name,
    }
}

/// What a shared library exports: the names of its functions and variables.
///
/// # Errors
/// If these are not the bytes of a 64-bit shared library.
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
    fn whatever_is_left_alone_has_a_reason_and_no_reason_stands_for_nothing() {
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
    fn the_table_holds_all_that_the_drivers_of_its_sources_export() {
        // The counts of `nm -D` for 550.163.01, and the header's newer names.
        assert!(cuda().count() >= 656 + 82, "{}", cuda().count());
        assert!(nvml().count() >= 350, "{}", nvml().count());
    }

    #[test]
    fn whatever_the_driver_answers_is_in_the_table() {
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
