//! The driver's installed libraries and their exported functions.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exports {
    pub(super) soname: &'static str,
    pub(super) path: PathBuf,
    pub(super) names: BTreeSet<String>,
}

/// Libraries that Tranche replaces, with the path of the original beside a replacement.
const LIBRARIES: [(&str, &str); 2] = [
    ("libcuda.so.1", "/run/tranche/driver/libcuda-real.so.1"),
    ("libnvidia-ml.so.1", "/run/tranche/driver/libnvidia-ml-real.so.1"),
];

/// Fallback paths of drivers, if the loader's cache has none.
///
/// Braces stand for Debian's name of the machine.
const PLACES: [&str; 7] = [
    "/usr/lib/{}",
    "/usr/lib64",
    "/usr/lib",
    "/lib/{}",
    "/lib64",
    "/run/nvidia/driver/usr/lib/{}",
    "/usr/lib/wsl/lib",
];

/// The libraries that are installed.
pub(super) fn installed() -> Vec<Exports> {
    let named = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&named).filter(|folder| folder.is_absolute()).collect();
    let (cache, machine) = (cache(), format!("{}-linux-gnu", env::consts::ARCH));
    let found = LIBRARIES.into_iter().filter_map(|(soname, alias)| {
        let cached = cached(&cache, soname);
        let usual = PLACES.map(|place| Path::new(&place.replace("{}", &machine)).join(soname));
        let named = folders.iter().map(|folder| folder.join(soname));
        named.chain([alias.into()]).chain(cached).chain(usual).find_map(|path| read(soname, path))
    });
    found.collect()
}

/// Reads a library; `None` for Tranche's own.
fn read(soname: &'static str, path: PathBuf) -> Option<Exports> {
    let names = tranche_symbols::exports(&fs::read(&path).ok()?).ok()?;
    (!names.iter().any(|name| name.starts_with("tranche_root"))).then_some(Exports { soname, path, names })
}

/// Content of the loader's cache, as `ldconfig -p` prints it.
fn cache() -> String {
    let asked = ["/sbin/ldconfig", "/usr/sbin/ldconfig"].into_iter().find_map(|program| {
        Command::new(program).arg("-p").output().ok().filter(|output| output.status.success())
    });
    asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

fn cached(cache: &str, soname: &str) -> Vec<PathBuf> {
    let entries = cache.lines().filter_map(|line| line.split_once(" => "));
    let ours = entries.filter(|(name, _)| name.split_whitespace().next() == Some(soname));
    ours.map(|(_, path)| PathBuf::from(path.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_cache_is_parsed() {
        let printed = "2 libs found in cache `/etc/ld.so.cache'\n\
            \tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1\n\
            \tlibcuda.so (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so\n";
        assert_eq!(cached(printed, "libcuda.so.1"), [Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.1")]);
        assert!(cached(printed, "libnvidia-ml.so.1").is_empty());
    }

    #[test]
    fn exports_of_a_library_are_read() {
        let libc = fs::read_to_string("/proc/self/maps").unwrap();
        let libc =
            libc.split_whitespace().find(|word| word.contains("/libc.so.6") || word.contains("/libc-2"));
        let libc =
            read("libc.so.6", libc.expect("this program uses libc").into()).expect("libc is a library");
        assert!(libc.names.contains("malloc"));
        assert_eq!(read("libcuda.so.1", "/etc/hostname".into()), None);
        assert_eq!(read("libcuda.so.1", "/nonexistent".into()), None);
    }
}
