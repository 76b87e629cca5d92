//! Description of a node without a CDI file, from what was found on it.

use serde::{Deserialize, Serialize};

use crate::error::{BadSpec, CdiFault};
use crate::facts::Facts;
use crate::spec::{ContainerEdits, DeviceNode, Mount};

/// Default folders of loaders in images of Debian and of others. No hook updates the container's loader
/// cache, so every library is mounted in each of them.
#[cfg(target_arch = "aarch64")]
const FOLDERS: [&str; 2] = ["/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
#[cfg(not(target_arch = "aarch64"))]
const FOLDERS: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"];

/// Mount options of files for reading and executing.
const BOUND: [&str; 4] = ["ro", "nosuid", "nodev", "bind"];
/// Mount options of a tree of mounts, as a user namespace takes only whole ones.
const TREE: [&str; 4] = ["ro", "nosuid", "nodev", "rbind"];
/// Mount options of files that are also written.
const WRITTEN: [&str; 5] = ["rw", "nosuid", "nodev", "noexec", "bind"];

/// A library of the driver on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLibrary {
    /// Path of the file, with all links resolved.
    pub file: String,
    /// Names under which it is loaded, such as its soname.
    pub names: Vec<String>,
}

/// Findings. A simulated node has libraries, no device nodes, and variables with its path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFindings {
    /// Device files of these GPUs and of all GPUs.
    pub device_nodes: Vec<String>,
    /// Libraries of the driver.
    pub libraries: Vec<FoundLibrary>,
    /// Other files and folders, mounted at the same paths.
    pub files: Vec<String>,
    /// The same, writable: the folder of the simulator.
    pub shared: Vec<String>,
    /// Files and folders mounted at other paths, with what is mounted below: source and destination.
    pub elsewhere: Vec<(String, String)>,
    /// Variables, as `NAME=value`.
    pub env: Vec<String>,
}

impl NodeFindings {
    /// Container edits for these findings.
    ///
    /// # Errors
    /// If a governed library is missing, or a path or name cannot be mounted.
    pub fn facts(&self) -> Result<Facts, BadSpec> {
        let origin = "what was found on this node";
        self.edits().and_then(|edits| Facts::of(edits, "0.5.0")).map_err(|fault| fault.of(origin))
    }

    fn edits(&self) -> Result<ContainerEdits, CdiFault> {
        let node = |path: &String| DeviceNode { path: path.clone(), ..DeviceNode::default() };
        let mut mounts: Vec<Mount> = self.files.iter().map(|file| bound(file, file.clone())).collect();
        mounts.extend(self.shared.iter().map(|file| written(file)));
        mounts.extend(self.elsewhere.iter().map(|(file, place)| with(&TREE, file, place.clone())));
        for library in &self.libraries {
            mounts.extend(places(library).map(|place| bound(&library.file, place)));
        }
        let device_nodes = self.device_nodes.iter().map(node).collect();
        let edits =
            ContainerEdits { env: self.env.clone(), device_nodes, mounts, ..ContainerEdits::default() };
        edits.check()?;
        Ok(edits)
    }
}

/// All paths of a library in containers.
fn places(library: &FoundLibrary) -> impl Iterator<Item = String> {
    FOLDERS.into_iter().flat_map(|folder| library.names.iter().map(move |name| format!("{folder}/{name}")))
}

/// A writable mount at the same path.
fn written(file: &str) -> Mount {
    with(&WRITTEN, file, file.to_owned())
}

/// A read-only mount at this path.
pub(crate) fn bound(file: &str, place: String) -> Mount {
    with(&BOUND, file, place)
}

fn with(options: &[&str], file: &str, place: String) -> Mount {
    let options = options.iter().map(|option| (*option).to_owned()).collect();
    Mount { host_path: file.to_owned(), container_path: place, options, ..Mount::default() }
}
