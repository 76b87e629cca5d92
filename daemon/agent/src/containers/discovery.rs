//! Discovery of what containers on this node need for a GPU. From a file of NVIDIA's tools, or by inspection.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use tranche_cdi::{CdiGpu, FactSource, FoundLibrary, GovernedLibrary, NodeFindings, NodeSpec};
use tranche_inventory::{GpuFacts, NodeFacts};

/// Directories of NVIDIA's tools, in the order of precedence of container runtimes.
const HOMES: [&str; 2] = ["/var/run/cdi", "/etc/cdi"];
/// Device files that programs need for any GPU.
const COMMON_NODES: [&str; 4] =
    ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];
/// Programs that are expected beside the libraries.
const PROGRAMS: [&str; 2] = ["/usr/bin/nvidia-smi", "/usr/bin/nvidia-debugdump"];
/// Path of the machine's `/proc` in containers on a simulated node.
/// Through it the simulated driver sees processes of other pid namespaces, as a real one does.
const SIMULATED_PROC: &str = "/run/simgpu/proc";

/// Selects the source of the description. The configured file if there is one, else the first usable file of NVIDIA's
/// tools, else inspection. Unusable files are noted.
pub(crate) fn discover(
    named: Option<&Path>,
    node: &NodeFacts,
    gpus: &[GpuFacts],
    notes: &mut Vec<String>,
) -> Result<FactSource, String> {
    if let Some(file) = named {
        return described(file, gpus);
    }
    if !node.simulated {
        for file in HOMES.into_iter().flat_map(|home| documents(Path::new(home))) {
            match described(&file, gpus) {
                Ok(source) => return Ok(source),
                Err(why) if is_nvidias(&file) => {
                    notes.push(format!("{why}; looking for the driver without it"));
                }
                Err(_) => {}
            }
        }
    }
    let library =
        mapped_nvml().ok_or("NVML is not loaded, so the place of the driver's libraries is unknown")?;
    let folder = library.parent().unwrap_or(Path::new("/"));
    if !is_on_the_node(&library) {
        return Err(format!(
            "the daemon is in a container that has NVML at {}, where the node has none: write a description of the \
             node with `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` on the node itself",
            library.display()
        ));
    }
    let libraries = libraries(folder, &node.driver_version);
    if !libraries.iter().any(|found| GovernedLibrary::named(&found.file) == Some(GovernedLibrary::Cuda)) {
        return Err(format!(
            "there is no libcuda of version {} beside NVML in {}: write a description of the node with `nvidia-ctk \
             cdi generate --output=/etc/cdi/nvidia.yaml`",
            node.driver_version,
            folder.display()
        ));
    }
    if node.simulated { simulated(libraries) } else { Ok(real(libraries, gpus)) }
}

/// Reads and validates a file. Every GPU and the libraries that the shim replaces must be listed and exist on disk.
fn described(file: &Path, gpus: &[GpuFacts]) -> Result<FactSource, String> {
    let bytes = read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let node = NodeSpec::parse(&file.display().to_string(), &bytes).map_err(|bad| bad.to_string())?;
    for gpu in gpus {
        let gpu = CdiGpu { uuid: gpu.uuid, index: gpu.index };
        let facts = node.facts(&[gpu], gpus.len()).map_err(|bad| bad.to_string())?;
        for library in [&facts.cuda.file, &facts.nvml.file] {
            if !is_on_the_node(Path::new(library)) {
                return Err(format!(
                    "{}: it names {library}, which is not there: it may be older than the driver; write it again with \
                     `nvidia-ctk cdi generate`",
                    file.display()
                ));
            }
        }
    }
    Ok(FactSource::Described(node))
}

/// Content of a file written by root or this daemon's user: root's container runtimes trust it.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    if !is_trusted(&file.metadata()?) {
        let why = "others than root and the daemon's user can write it (`chown root`, `chmod go-w`)";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

fn is_trusted(file: &Metadata) -> bool {
    let is_shared = file.mode() & 0o002 != 0 || file.mode() & 0o020 != 0 && file.gid() != 0;
    [0, geteuid().as_raw()].contains(&file.uid()) && !is_shared
}

/// Returns true if the file exists on the machine. The daemon may itself run in a container with other files at these
/// paths, while container runtimes mount the machine's: those that pid 1 sees.
fn is_on_the_node(path: &Path) -> bool {
    const MACHINE: &str = "/proc/1/root";
    let inside = path.strip_prefix("/").unwrap_or(path);
    match fs::symlink_metadata(Path::new(MACHINE).join(inside)) {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        // Only root may look there. Without permission, the daemon's own view of the path decides.
        Err(_) => path.exists(),
    }
}

/// Possible documents in a folder, in the order of their names.
fn documents(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let known =
        |path: &PathBuf| path.extension().is_some_and(|extension| extension == "yaml" || extension == "json");
    let ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tranche.dev-"))
    };
    entries.filter(|path| known(path) && !ours(path)).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns true if the file name suggests a description of this node.
fn is_nvidias(file: &Path) -> bool {
    file.file_stem().is_some_and(|stem| stem.to_string_lossy().starts_with("nvidia"))
}

/// Path of the NVML library that this process has loaded. The driver's other libraries are in the same folder.
fn mapped_nvml() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let files = maps.lines().filter_map(|line| line.split_once('/').map(|(_, path)| format!("/{path}")));
    let mut nvml = files.filter(|path| GovernedLibrary::named(path) == Some(GovernedLibrary::Nvml));
    Some(nvml.next()?.trim_end_matches(" (deleted)").into())
}

/// The driver's libraries in a folder, each with all its names there. Those of the driver's version, or without
/// versions, as on a simulated node, the two that the shim replaces.
fn libraries(folder: &Path, version: &str) -> Vec<FoundLibrary> {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(file) = entry.path().canonicalize() else { continue };
        if name.starts_with("lib") && name.contains(".so") {
            files.entry(file.display().to_string()).or_default().push(name);
        }
    }
    let suffix = format!(".so.{version}");
    let versioned = files.keys().any(|file| file.ends_with(&suffix));
    let wanted =
        |file: &str| if versioned { file.ends_with(&suffix) } else { GovernedLibrary::named(file).is_some() };
    let found = files.into_iter().filter(|(file, _)| wanted(file));
    found
        .map(|(file, mut names)| {
            names.sort();
            FoundLibrary { file, names }
        })
        .collect()
}

fn real(libraries: Vec<FoundLibrary>, gpus: &[GpuFacts]) -> FactSource {
    let programs = PROGRAMS.iter().filter(|path| Path::new(path).exists());
    let rest = NodeFindings {
        device_nodes: COMMON_NODES.map(Into::into).into(),
        libraries,
        files: programs.map(ToString::to_string).collect(),
        ..NodeFindings::default()
    };
    let nodes = gpus.iter().map(|gpu| (gpu.index, format!("/dev/nvidia{}", minor(gpu)))).collect();
    FactSource::Found { rest, nodes }
}

/// Minor number of a GPU's device file, from the driver by bus id. Without it, NVML's index, which has
/// the same order.
fn minor(gpu: &GpuFacts) -> u32 {
    let told = || {
        let address = gpu.pci_bus_id.to_lowercase();
        let address = address.strip_prefix("0000").filter(|rest| rest.len() == 12).unwrap_or(&address);
        let text = fs::read_to_string(format!("/proc/driver/nvidia/gpus/{address}/information")).ok()?;
        device_minor(&text)
    };
    told().unwrap_or(gpu.index)
}

fn device_minor(information: &str) -> Option<u32> {
    let line = information.lines().find_map(|line| line.strip_prefix("Device Minor:"))?;
    line.trim().parse().ok()
}

/// Source for the simulator, which has no device files; its programs find the node through a variable.
fn simulated(libraries: Vec<FoundLibrary>) -> Result<FactSource, String> {
    /// Defined by the simulator.
    const NODE: &str = "SIMGPU_NODE";
    let node = env::var(NODE)
        .map_err(|_| format!("the GPUs are simulated, and {NODE} does not say where they are"))?;
    let env = vec![format!("{NODE}={node}"), format!("SIMGPU_PROC={SIMULATED_PROC}")];
    let elsewhere = vec![("/proc".into(), SIMULATED_PROC.into())];
    let rest = NodeFindings { libraries, shared: vec![node], env, elsewhere, ..NodeFindings::default() };
    Ok(FactSource::Found { rest, nodes: BTreeMap::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tranche_inventory::scripted::v100;

    const VERSION: &str = "550.163.01";

    /// A folder as a driver's package leaves it, with a library of an older version.
    fn installed() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libcuda.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so"] {
            let file = format!("{name}.{VERSION}");
            fs::write(folder.path().join(&file), "").unwrap();
            symlink(&file, folder.path().join(format!("{name}.1"))).unwrap();
        }
        symlink("libcuda.so.1", folder.path().join("libcuda.so")).unwrap();
        for other in ["libcuda.so.535.1", "libz.so.1", "nvidia.txt"] {
            fs::write(folder.path().join(other), "").unwrap();
        }
        folder
    }

    #[test]
    fn driver_libraries_have_its_version_and_all_names() {
        let folder = installed();
        let found = libraries(folder.path(), VERSION);
        let cuda = format!("libcuda.so.{VERSION}");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].file.ends_with(&cuda));
        assert_eq!(found[0].names, ["libcuda.so", "libcuda.so.1", cuda.as_str()]);
        let FactSource::Found { rest, .. } = real(found, &[]) else { panic!("it was found") };
        assert!(rest.facts().is_ok());
    }

    #[test]
    fn unversioned_libraries_are_the_replaced_ones() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libcuda.so.1", "libnvidia-ml.so.1", "libz.so.1"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        symlink("libcuda.so.1", folder.path().join("libcuda.so")).unwrap();
        let found = libraries(folder.path(), VERSION);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].names, ["libcuda.so", "libcuda.so.1"]);
    }

    #[test]
    fn file_is_searched_in_the_machines_root() {
        let folder = installed();
        assert!(is_on_the_node(&folder.path().join("libcuda.so")) && is_on_the_node(folder.path()));
        assert!(!is_on_the_node(&folder.path().join("libcuda.so.9")));
    }

    #[test]
    fn device_minor_comes_from_the_driver() {
        assert_eq!(
            device_minor("Model: \t\t V100\nIRQ:   \t\t 1\nDevice Minor: \t 5\nBlacklisted:\t No\n"),
            Some(5)
        );
        assert_eq!(device_minor("Model: V100\n"), None);
        let FactSource::Found { nodes, .. } = real(Vec::new(), &[v100(0), v100(3)]) else {
            panic!("it was found")
        };
        assert_eq!(nodes[&3], "/dev/nvidia3", "where the driver does not say, it is its index");
    }

    #[test]
    fn file_naming_missing_paths_is_rejected() {
        let folder = installed();
        let file = folder.path().join("nvidia.yaml");
        let library = |name: &str| {
            let path = folder.path().join(format!("{name}.{VERSION}"));
            format!("{{hostPath: {0}, containerPath: {0}}}", path.display())
        };
        let text = format!(
            "{{cdiVersion: 0.5.0, kind: nvidia.com/gpu, devices: [{{name: '0', containerEdits: {{}}}}], \
             containerEdits: {{mounts: [{}, {}]}}}}",
            library("libcuda.so"),
            library("libnvidia-ml.so")
        );
        fs::write(&file, text).unwrap();
        assert_eq!(documents(folder.path()), std::slice::from_ref(&file));
        assert!(described(&file, &[v100(0)]).is_ok());
        assert!(described(&file, &[v100(0), v100(1)]).unwrap_err().contains("no device for GPU"));
        fs::remove_file(folder.path().join(format!("libcuda.so.{VERSION}"))).unwrap();
        let refused = described(&file, &[v100(0)]).unwrap_err();
        assert!(refused.contains("older than the driver"), "{refused}");
    }
}
