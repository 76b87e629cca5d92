//! Promise 7: requirements and definitions of the files of the shim.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use e2e::Stage;
use object::LittleEndian;
use object::elf::{
    DF_SYMBOLIC, DT_FINI, DT_FINI_ARRAY, DT_FLAGS, DT_INIT, DT_INIT_ARRAY, DT_NEEDED, DT_SONAME,
    FileHeader64, SHN_UNDEF,
};
use object::read::elf::{Dyn, FileHeader, SectionHeader, Sym};

type Header = FileHeader64<LittleEndian>;

/// Contents of a library that the loader reads.
#[derive(Debug, Default)]
struct Loaded {
    needed: Vec<String>,
    soname: Option<String>,
    defines: BTreeSet<String>,
    /// True if code runs when it is loaded or unloaded.
    runs: bool,
    /// True if its references to symbols that it defines are bound to itself.
    symbolic: bool,
    /// Undefined symbols with their required versions.
    wants: BTreeSet<(String, Option<String>)>,
}

fn shim() -> Loaded {
    loaded(&Stage::find().shim())
}

/// The libraries that stand in the driver's place, each with its name and the one of the driver.
fn replacements() -> [(Loaded, &'static str, &'static str); 2] {
    [("libcuda.so.1", "libcuda-real.so.1"), ("libnvidia-ml.so.1", "libnvidia-ml-real.so.1")]
        .map(|(name, alias)| (loaded(&Stage::find().replacements().join(name)), name, alias))
}

fn loaded(path: &Path) -> Loaded {
    let data = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    read(&data).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read(data: &[u8]) -> object::read::Result<Loaded> {
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let symbols = sections.symbols(endian, data, object::elf::SHT_DYNSYM)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut loaded = Loaded::default();
    for section in sections.iter() {
        let Some((entries, strings)) = section.dynamic(endian, data)? else { continue };
        let strings = sections.strings(endian, data, strings)?;
        for entry in entries {
            let name = || entry.string(endian, strings).map(text);
            match entry.tag(endian) {
                DT_NEEDED => loaded.needed.push(name()?),
                DT_SONAME => loaded.soname = Some(name()?),
                DT_INIT | DT_FINI | DT_INIT_ARRAY | DT_FINI_ARRAY => loaded.runs = true,
                DT_FLAGS => loaded.symbolic = entry.val(endian) & DF_SYMBOLIC.0 != 0,
                _ => {}
            }
        }
    }
    let versions = sections.versions(endian, data)?;
    for (index, symbol) in symbols.enumerate() {
        let name = text(symbol.name(endian, symbols.strings())?);
        if symbol.st_shndx(endian) != SHN_UNDEF {
            loaded.defines.insert(name);
        } else if !name.is_empty() {
            let version = match &versions {
                Some(table) => table.version(table.version_index(endian, index).into())?,
                None => None,
            };
            loaded.wants.insert((name, version.map(|version| text(version.name()))));
        }
    }
    Ok(loaded)
}

/// Numbers of a version such as `GLIBC_2.3.4`.
fn glibc(version: &str) -> Option<Vec<u32>> {
    version.strip_prefix("GLIBC_")?.split('.').map(|part| part.parse().ok()).collect()
}

#[test]
fn the_shim_needs_libc_and_nothing_else() {
    assert_eq!(shim().needed, ["libc.so.6"]);
}

#[test]
fn the_shim_runs_on_a_glibc_of_2012() {
    let shim = shim();
    let versioned: Vec<_> = shim.wants.iter().filter(|(_, version)| version.is_some()).collect();
    assert!(!versioned.is_empty(), "no versions were read, so nothing was checked: {shim:#?}");
    for (name, version) in versioned {
        let version = version.as_deref().unwrap();
        let number = glibc(version).unwrap_or_else(|| panic!("{name} wants {version}, which is not glibc's"));
        assert!(number <= vec![2, 17], "{name} wants {version}");
    }
}

#[test]
fn the_shim_defines_the_drivers_names_and_the_lookup_doors_alone() {
    let shim = shim();
    let ours = |name: &&String| {
        let driver = ["cu", "nvml"].iter().any(|prefix| {
            name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
        });
        driver || ["dlsym", "dlvsym"].contains(&name.as_str())
    };
    let strange: Vec<_> = shim.defines.iter().filter(|name| !ours(name)).collect();
    assert!(strange.is_empty(), "these names would collide with the host program's: {strange:?}");
    for door in ["dlsym", "dlvsym", "cuGetProcAddress", "cuGetProcAddress_v2", "cuMemAlloc_v2", "nvmlInit_v2"]
    {
        assert!(shim.defines.contains(door), "{door} is not defined");
    }
}

#[test]
fn libraries_run_nothing_at_load_and_bind_symbolically() {
    for library in replacements().map(|(library, ..)| library).into_iter().chain([shim()]) {
        assert!(!library.runs && library.symbolic, "{library:#?}");
    }
}

#[test]
fn the_shim_has_a_name_of_its_own() {
    // With the name libcuda.so.1, the real library would never be loaded.
    // The libraries of releases with different versions of shared memory differ in it.
    let expected = format!("libtranche_preload.so.{}", tranche_shm::ABI);
    assert_eq!(shim().soname, Some(expected));
}

#[test]
fn a_library_in_the_drivers_place_has_its_name_and_needs_it_under_another() {
    for (library, name, alias) in replacements() {
        assert_eq!(library.soname.as_deref(), Some(name));
        assert_eq!(
            library.needed.iter().collect::<BTreeSet<_>>(),
            BTreeSet::from([&alias.into(), &"libc.so.6".into()])
        );
    }
}

#[test]
fn a_library_in_the_drivers_place_defines_its_names_and_no_others() {
    let preloaded = shim().defines;
    let ours = |prefix: &str| {
        let names = preloaded.iter().filter(|name| name.starts_with(prefix)).cloned();
        names.chain(["tranche_root_2".to_string()]).collect::<BTreeSet<_>>()
    };
    for ((library, name, _), prefix) in replacements().into_iter().zip(["cu", "nvml"]) {
        assert_eq!(library.defines, ours(prefix), "{name}");
    }
}

#[test]
fn a_library_in_the_drivers_place_runs_on_a_glibc_of_2012() {
    for (library, name, _) in replacements() {
        for (wanted, version) in &library.wants {
            let number = version.as_deref().and_then(glibc);
            assert!(number.is_none_or(|number| number <= vec![2, 17]), "{name}: {wanted} {version:?}");
        }
        assert!(library.wants.contains(&("dlopen".into(), Some("GLIBC_2.2.5".into()))), "{name}");
    }
}

#[test]
fn undefined_names_are_all_libc_functions() {
    // An undefined weak or unversioned name would be bound to a definition of the program, if it has one.
    let libraries = replacements().map(|(library, ..)| library).into_iter().chain([shim()]);
    let wanted = libraries.flat_map(|library| library.wants);
    let unversioned: Vec<_> = wanted.filter(|(_, version)| version.is_none()).collect();
    let tolerated =
        ["__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize"];
    let strange: Vec<_> =
        unversioned.iter().filter(|(name, _)| !tolerated.contains(&name.as_str())).collect();
    assert!(strange.is_empty(), "{strange:?}");
}
