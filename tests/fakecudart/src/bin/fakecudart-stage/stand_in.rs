//! Shared libraries made of this crate for what a program imports.
//!
//! A library has every function of its name that is here, and beyond those each that the program imports: of cuBLAS
//! they take time, of any other they answer an error. All have the version that the program requires.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use object::read::archive::ArchiveFile;
use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{Object, ObjectSymbol, elf};
use thiserror::Error;

/// Reason why the libraries cannot be made.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("can't {action} {path}: {source}")]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("can't read {path} as ELF: {source}")]
    Elf { path: PathBuf, source: object::Error },
    #[error("can't link {name}: {complaint}")]
    Link { name: String, complaint: String },
}

/// A family of libraries: beginning of the file's name, and beginnings of the names of its functions.
const FAMILIES: &[(&str, &[&str])] = &[
    ("libcudart.so.", &["cuda", "__cuda"]),
    ("libcublas.so.", &["cublas"]),
    ("libcublasLt.so.", &["cublasLt"]),
    ("libcufft.so.", &["cufft"]),
    ("libcudnn.so.", &["cudnn"]),
    ("libcusparse.so.", &["cusparse"]),
    ("libcusparseLt.so.", &["cusparseLt"]),
    ("libcusolver.so.", &["cusolver"]),
    ("libcufile.so.", &["cuFile"]),
    ("libcupti.so.", &["cupti"]),
    ("libnvrtc.so.", &["nvrtc"]),
    ("libnccl.so.", &["nccl"]),
    ("libnvshmem_host.so.", &["nvshmem"]),
    ("libnvJitLink.so.", &["nvJitLink"]),
    ("libcurand.so.", &["curand"]),
    ("libnvToolsExt.so.", &["nvtx"]),
];

/// One library to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Names with the required version, which is empty for none.
    names: BTreeMap<String, String>,
}

/// Libraries by file name.
pub(crate) type Plan = BTreeMap<String, Wanted>;

fn family(library: &str) -> Option<&'static [&'static str]> {
    FAMILIES.iter().find(|(start, _)| library.starts_with(start)).map(|(_, names)| *names)
}

/// Tests if a library's functions have names like this one.
///
/// The longest beginning decides between two libraries.
fn owns(library: &str, name: &str) -> bool {
    let length = |names: &[&str]| {
        names.iter().filter(|start| name.starts_with(**start)).map(|start| start.len()).max()
    };
    let ours = family(library).and_then(length);
    ours.is_some() && ours == FAMILIES.iter().filter_map(|(_, names)| length(names)).max()
}

/// The runtimes alone, as programs that link nothing else need them.
pub(crate) fn runtimes() -> Plan {
    ["libcudart.so.12", "libcudart.so.13"].map(|name| (name.to_owned(), Wanted::default())).into()
}

/// Adds a library of the known families by its bare file name; `false` for any other word.
pub(crate) fn add_named(plan: &mut Plan, word: &Path) -> bool {
    let name = word.to_str().filter(|name| family(name).is_some());
    let named = name.map(|name| plan.entry(name.to_owned()).or_default());
    named.is_some()
}

/// Adds what a program or library imports of the known families.
pub(crate) fn add_imports(plan: &mut Plan, path: &Path) -> Result<(), Failure> {
    let bytes =
        fs::read(path).map_err(|source| Failure::File { action: "read", path: path.into(), source })?;
    let failed = |source| Failure::Elf { path: path.into(), source };
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).map_err(failed)?;
    let (endian, header) = (file.endian(), file.elf_header());
    let sections = header.sections(endian, &*bytes).map_err(failed)?;
    let needed = needed(&sections, endian, &bytes).map_err(failed)?;
    let ours: Vec<&String> = needed.iter().filter(|library| family(library).is_some()).collect();
    for library in &ours {
        plan.entry((*library).clone()).or_default();
    }
    let versions = sections.versions(endian, &*bytes).map_err(failed)?;
    let symbols = sections.symbols(endian, &*bytes, elf::SHT_DYNSYM).map_err(failed)?;
    for (index, symbol) in
        symbols.enumerate().filter(|(_, symbol)| symbol.st_shndx.get(endian) == elf::SHN_UNDEF)
    {
        let name = symbols.symbol_name(endian, symbol).map_err(failed)?;
        let name = String::from_utf8_lossy(name).into_owned();
        let version = versions.as_ref().and_then(|versions| {
            versions.version(versions.version_index(endian, index).index()).ok().flatten()
        });
        let version =
            version.map_or_else(String::new, |found| String::from_utf8_lossy(found.name()).into_owned());
        if let Some(library) = ours.iter().find(|library| owns(library, &name)) {
            plan.entry((**library).clone()).or_default().names.insert(name, version);
        }
    }
    Ok(())
}

/// Names of the libraries that an ELF file needs.
fn needed<'data>(
    sections: &object::read::elf::SectionTable<'data, elf::FileHeader64<object::Endianness>>,
    endian: object::Endianness,
    bytes: &'data [u8],
) -> object::Result<Vec<String>> {
    let mut found = Vec::new();
    for section in sections.iter() {
        let Some((entries, link)) = section.dynamic(endian, bytes)? else { continue };
        let strings = sections.strings(endian, bytes, link)?;
        for entry in entries.iter().filter(|entry| entry.d_tag.get(endian) == elf::DT_NEEDED) {
            if let Ok(name) = strings.get(entry.d_val.get(endian) as u32) {
                found.push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    Ok(found)
}

/// Functions that an archive of this crate has of the known families.
pub(crate) fn functions(archive: &Path) -> Result<BTreeSet<String>, Failure> {
    let bytes =
        fs::read(archive).map_err(|source| Failure::File { action: "read", path: archive.into(), source })?;
    let failed = |source| Failure::Elf { path: archive.into(), source };
    let mut found = BTreeSet::new();
    for member in ArchiveFile::parse(&*bytes).map_err(failed)?.members() {
        let Ok(file) = object::File::parse(member.map_err(failed)?.data(&*bytes).map_err(failed)?) else {
            continue;
        };
        let names = file.symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
        let names = names.filter_map(|symbol| symbol.name().ok().map(str::to_owned));
        found.extend(names.filter(|name| FAMILIES.iter().any(|(library, _)| owns(library, name))));
    }
    Ok(found)
}

/// Code and names of one library, for compiler and linker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// C code of the functions that are not in the archive.
    pub(crate) code: String,
    /// The linker's version script.
    pub(crate) script: String,
    /// Functions that are taken from the archive.
    pub(crate) taken: Vec<String>,
}

/// Describes a library, from what is wanted and the functions of the archive.
pub(crate) fn source(library: &str, wanted: &Wanted, functions: &BTreeSet<String>) -> Source {
    let mut names = wanted.names.clone();
    let usual = wanted.names.values().find(|version| !version.is_empty()).cloned();
    // NVIDIA's libraries have one version, mostly the name of the file.
    let usual =
        usual.unwrap_or_else(|| if wanted.names.is_empty() { library.to_owned() } else { String::new() });
    let taken: Vec<String> = functions.iter().filter(|name| owns(library, name)).cloned().collect();
    for name in &taken {
        names.entry(name.clone()).or_insert_with(|| usual.clone());
    }
    let mut code =
        String::from("extern int fakecudart_missing(const char *);\nextern int fakecudart_work(void *);\n");
    for name in names.keys().filter(|name| !functions.contains(*name)) {
        let _ = writeln!(code, "{}", definition(library, name));
    }
    if let Some(major) = library.strip_prefix("libcudart.so.") {
        let begin = "__attribute__((constructor)) static void begin(void)";
        let _ = writeln!(code, "extern void fakecudart_is(int);\n{begin} {{ fakecudart_is({major}000); }}");
    }
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    names.iter().for_each(|(name, version)| versions.entry(version).or_default().push(name));
    Source { code, script: script(versions), taken }
}

/// C code of a function that is not in the archive.
fn definition(library: &str, name: &str) -> String {
    let is_text = ["ErrorString", "StatusString", "ErrorName", "LastErrorMessage", "GetLastError"];
    let is_address = ["nvshmem_malloc", "nvshmem_ptr", "nvshmemx_mc_ptr"].contains(&name);
    if is_text.iter().any(|end| name.ends_with(end)) {
        format!("const char *{name}(int code) {{ return \"not supported by a simulated library\"; }}")
    } else if library.starts_with("libcublas.so.") {
        format!("int {name}(void *handle) {{ return fakecudart_work(handle); }}")
    } else if is_address {
        format!("void *{name}(void) {{ fakecudart_missing(\"{name}\"); return 0; }}")
    } else if library.starts_with("libcudart.so.") {
        format!("int {name}(void) {{ return fakecudart_missing(\"{name}\"); }}")
    } else {
        // Some answer a number of bytes, or a structure of two numbers: less than nothing is a failure of all.
        format!("long {name}(void) {{ fakecudart_missing(\"{name}\"); return -1; }}")
    }
}

fn script(versions: BTreeMap<&str, Vec<&str>>) -> String {
    let mut script = String::new();
    let named = versions.keys().any(|version| !version.is_empty());
    for (version, names) in versions {
        // An unversioned name cannot stand beside versioned ones: it is in a version of its own, which serves as well.
        let version = if version.is_empty() && named { "PLAIN" } else { version };
        let _ = writeln!(script, "{version} {{ global:");
        for name in names {
            let _ = writeln!(script, "  {name};");
        }
        let _ = writeln!(script, "}};");
    }
    // Everything else stays inside.
    let Some(at) = script.rfind("};") else { return "{ local: *; };\n".into() };
    script.insert_str(at, "  local: *;\n");
    script
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Plan, Wanted, add_named, owns, runtimes, source};

    fn wanted(names: &[(&str, &str)]) -> Wanted {
        Wanted { names: names.iter().map(|(name, version)| ((*name).into(), (*version).into())).collect() }
    }

    #[test]
    fn the_longest_beginning_decides_whose_a_function_is() {
        assert!(owns("libcublasLt.so.13", "cublasLtMatmul") && !owns("libcublas.so.13", "cublasLtMatmul"));
        assert!(owns("libcusparse.so.12", "cusparseCreate") && !owns("libcusparseLt.so.0", "cusparseCreate"));
        assert!(owns("libcudart.so.12", "__cudaRegisterVar") && !owns("libcudart.so.12", "cuInit"));
        assert!(!owns("libcudart.so.12", "cudnnCreate") && !owns("libm.so.6", "cudaMalloc"));
    }

    #[test]
    fn a_bare_name_of_a_family_adds_a_library_and_a_path_does_not() {
        let mut plan = Plan::new();
        assert!(add_named(&mut plan, Path::new("libcublas.so.13")));
        assert!(!add_named(&mut plan, Path::new("/lib/libcublas.so.13")));
        assert!(!add_named(&mut plan, Path::new("libm.so.6")));
        assert_eq!(plan, Plan::from([("libcublas.so.13".into(), Wanted::default())]));
    }

    #[test]
    fn what_is_here_is_taken_and_the_rest_answers_an_error() {
        let functions = ["cudaFree", "cublasCreate_v2"].map(String::from).into();
        let made = source("libcudart.so.13", &wanted(&[("cudaOther", "V"), ("cudaFree", "V")]), &functions);
        assert_eq!(made.taken, ["cudaFree"]);
        assert!(made.code.contains("fakecudart_missing(\"cudaOther\")") && !made.code.contains("cudaFree"));
        assert!(made.code.contains("fakecudart_is(13000)"));
        assert_eq!(made.script, "V { global:\n  cudaFree;\n  cudaOther;\n  local: *;\n};\n");
    }

    #[test]
    fn a_library_with_one_versioned_name_has_a_version_for_each() {
        let made = source("libnccl.so.2", &wanted(&[("ncclSend", "")]), &[].into());
        assert_eq!(made.script, " { global:\n  ncclSend;\n  local: *;\n};\n");
        let made = source(
            "libnvshmem_host.so.3",
            &wanted(&[("nvshmem_init", ""), ("nvshmem_ptr", "N")]),
            &[].into(),
        );
        assert_eq!(
            made.script,
            "PLAIN { global:\n  nvshmem_init;\n};\nN { global:\n  nvshmem_ptr;\n  local: *;\n};\n"
        );
        assert!(made.code.contains("void *nvshmem_ptr(void)"));
    }

    #[test]
    fn a_library_of_which_no_function_is_wanted_exports_none() {
        assert_eq!(source("libcudnn.so.9", &wanted(&[]), &[].into()).script, "{ local: *; };\n");
    }

    #[test]
    fn without_a_program_there_are_the_runtimes() {
        let plan: Plan = runtimes();
        let names = ["cudaFree".to_owned()].into();
        let made = source("libcudart.so.12", &plan["libcudart.so.12"], &names);
        assert_eq!(made.script, "libcudart.so.12 { global:\n  cudaFree;\n  local: *;\n};\n");
    }
}
