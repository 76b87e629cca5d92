//! Facts: container edits for a set of GPUs, from any source.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::error::CdiFault;
use crate::hooks;
use crate::library::{GovernedLibrary, folder, within};
use crate::spec::{ContainerEdits, Mount};

/// Folder in which images bring a driver of their own; empty in a slice's containers.
pub(crate) const COMPAT_HOME: &str = "/usr/local/cuda/compat";
/// Folder for Tranche's files in containers.
pub(crate) const OUR_HOME: &str = "/run/tranche";
/// Preload list of glibc's loader.
pub(crate) const PRELOAD_LIST: &str = "/etc/ld.so.preload";
/// Variables that Tranche sets itself.
const OUR_VARIABLES: [&str; 3] = ["NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "TRANCHE_SLICE_SOCKET"];

/// A library of the driver that the shim replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryFile {
    /// The file on the node.
    pub file: String,
    /// Paths at which a container's loader may find it.
    pub places: BTreeSet<String>,
}

/// Container edits for a set of GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The driver's `libcuda`.
    pub cuda: LibraryFile,
    /// NVML library of the driver.
    pub nvml: LibraryFile,
    /// All other edits: device nodes, other libraries, hooks, variables.
    pub(crate) rest: ContainerEdits,
    /// All edits, with the driver's libraries and the links to them.
    pub(crate) whole: ContainerEdits,
    /// Version of the specification in the node's file.
    pub(crate) version: String,
}

impl Facts {
    /// Separates the governed libraries from the other edits.
    pub(crate) fn of(edits: ContainerEdits, version: &str) -> Result<Self, CdiFault> {
        let whole = passable(edits)?;
        let mut rest = whole.clone();
        let mut places = BTreeSet::new();
        rest.hooks = rest.hooks.drain(..).filter_map(|hook| hooks::harmless(hook, &mut places)).collect();
        let (governed, others) = rest.mounts.drain(..).partition(|mount| library(mount).is_some());
        rest.mounts = others;
        let governed: Vec<Mount> = governed;
        let mut cuda = driver(GovernedLibrary::Cuda, &governed, &places)?;
        let mut nvml = driver(GovernedLibrary::Nvml, &governed, &places)?;
        for driver in [&mut cuda, &mut nvml] {
            // A file under another name on the node may also be mounted under that name.
            rest.mounts.retain(|mount| mount.host_path != driver.file);
            driver.places.extend(rest.mounts.iter().filter_map(|mount| brought(mount, &driver.file)));
            driver.places.retain(|place| !within(place, COMPAT_HOME) && !within(place, OUR_HOME));
        }
        rest.mounts.retain(|mount| !cuda.places.contains(&mount.container_path));
        rest.mounts.retain(|mount| !nvml.places.contains(&mount.container_path));
        Ok(Self { cuda, nvml, rest, whole, version: version.to_owned() })
    }

    pub(crate) fn driver(&self, library: GovernedLibrary) -> &LibraryFile {
        match library {
            GovernedLibrary::Cuda => &self.cuda,
            GovernedLibrary::Nvml => &self.nvml,
        }
    }
}

/// Drops edits that slices do not get, and rejects those that conflict with a slice's own.
fn passable(mut edits: ContainerEdits) -> Result<ContainerEdits, CdiFault> {
    edits.mounts.retain(|mount| !within(&mount.container_path, COMPAT_HOME));
    let ours = |path: &str| within(path, OUR_HOME) || path == PRELOAD_LIST;
    if let Some(mount) = edits.mounts.iter().find(|mount| ours(&mount.container_path)) {
        return Err(CdiFault::Occupied(mount.container_path.clone()));
    }
    edits.env.retain(|entry| !OUR_VARIABLES.contains(&variable(entry)));
    edits.hooks.retain(|hook| !hooks::prefers_image(hook));
    // Of two mounts at one path, runtimes apply the later.
    let mounts = edits.mounts.drain(..).map(|mount| (mount.container_path.clone(), mount));
    edits.mounts = mounts.collect::<BTreeMap<_, _>>().into_values().collect();
    Ok(edits)
}

/// The library of a mount, by the name of its file or of its path.
fn library(mount: &Mount) -> Option<GovernedLibrary> {
    GovernedLibrary::named(&mount.container_path).or_else(|| GovernedLibrary::named(&mount.host_path))
}

fn driver(
    wanted: GovernedLibrary,
    mounts: &[Mount],
    linked: &BTreeSet<(GovernedLibrary, String)>,
) -> Result<LibraryFile, CdiFault> {
    let mounts: Vec<&Mount> = mounts.iter().filter(|mount| library(mount) == Some(wanted)).collect();
    let file = file(wanted, &mounts)?.to_owned();
    let mut places: BTreeSet<String> = mounts.iter().map(|mount| mount.container_path.clone()).collect();
    for folder in mounts.iter().map(|mount| folder(&mount.container_path)) {
        places.extend([wanted.soname(), wanted.plain()].map(|name| format!("{folder}/{name}")));
    }
    places.extend(linked.iter().filter(|(library, _)| *library == wanted).map(|(_, place)| place.clone()));
    Ok(LibraryFile { file, places })
}

/// Path of the file in the container, if its folder is mounted as a whole.
fn brought(mount: &Mount, file: &str) -> Option<String> {
    let inside = file.strip_prefix(&mount.host_path).filter(|inside| inside.starts_with('/'))?;
    Some(format!("{}{inside}", mount.container_path))
}

/// The driver's file for this machine's word size. Programs of another word size find no driver, since the
/// shim that hides theirs cannot be loaded.
fn file<'a>(wanted: GovernedLibrary, mounts: &[&'a Mount]) -> Result<&'a str, CdiFault> {
    let narrow = |path: &str| path.contains("/i386-linux-gnu/") || path.contains("/lib32/");
    let mut files: Vec<&str> = mounts
        .iter()
        .filter(|mount| !narrow(&mount.host_path) && !narrow(&mount.container_path))
        .map(|mount| mount.host_path.as_str())
        .collect();
    files.sort_unstable_by_key(|file| (version(wanted, file).is_none(), *file));
    let first = *files.first().ok_or(CdiFault::NoLibrary(wanted.soname()))?;
    let other = files.iter().find(|file| {
        version(wanted, file)
            .is_some_and(|other| version(wanted, first).is_some_and(|version| version != other))
    });
    other.map_or(Ok(first), |other| Err(CdiFault::TwoDrivers(first.to_owned(), (*other).to_owned())))
}

/// Driver version in a file name: `550.163.01` of `libcuda.so.550.163.01`; `None` for shorter names.
fn version(wanted: GovernedLibrary, file: &str) -> Option<&str> {
    let name = file.rsplit('/').next()?;
    name.strip_prefix(wanted.plain())?.strip_prefix('.').filter(|version| version.contains('.'))
}

fn variable(entry: &str) -> &str {
    entry.split_once('=').map_or(entry, |(name, _)| name)
}

/// Adds edits as a runtime does: later ones replace earlier ones.
pub(crate) fn merge(into: &mut ContainerEdits, from: &ContainerEdits) -> Result<(), CdiFault> {
    into.env.retain(|old| !from.env.iter().any(|new| variable(new) == variable(old)));
    into.env.extend(from.env.iter().cloned());
    into.device_nodes.retain(|old| !from.device_nodes.iter().any(|new| new.path == old.path));
    into.device_nodes.extend(from.device_nodes.iter().cloned());
    into.mounts.retain(|old| !from.mounts.iter().any(|new| new.container_path == old.container_path));
    into.mounts.extend(from.mounts.iter().cloned());
    into.hooks.retain(|old| !from.hooks.contains(old));
    into.hooks.extend(from.hooks.iter().cloned());
    from.unread.iter().try_for_each(|(field, value)| match (into.unread.get_mut(field), value) {
        (None, _) => {
            into.unread.insert(field.clone(), value.clone());
            Ok(())
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            old.extend(new.iter().cloned());
            Ok(())
        }
        (Some(old), _) if old == value => Ok(()),
        _ => Err(CdiFault::Disagree(field.clone())),
    })
}
