//! What was found on a node that no file describes.

use serde::{Deserialize, Serialize};

use crate::error::{BadSpec, Fault};
use crate::facts::Facts;
use crate::spec::{ContainerEdits, DeviceNode, Mount};

/// Where loaders look without being told, in the images of Debian's kin and of others. There is no hook that would
/// bring a container's cache up to date, so every library goes to each of them.
#[cfg(target_arch = "aarch64")]
const FOLDERS: [&str; 2] = ["/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
#[cfg(not(target_arch = "aarch64"))]
const FOLDERS: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"];

/// How a file of the node is put into a container: to be read and run, and nothing else.
const BOUND: [&str; 4] = ["ro", "nosuid", "nodev", "bind"];
/// How one is that is written, too.
const WRITTEN: [&str; 5] = ["rw", "nosuid", "nodev", "noexec", "bind"];

/// A library of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLibrary {
    /// The file on the node, all links followed.
    pub file: String,
    /// The names by which it is loaded, such as its soname.
    pub names: Vec<String>,
}

/// What was found. A simulated node has libraries, no device nodes, and variables that say where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Device files for the GPUs at hand and for all GPUs.
    pub device_nodes: Vec<String>,
    /// The driver's libraries.
    pub libraries: Vec<FoundLibrary>,
    /// Other files and folders, which a container finds where the node has them.
    pub files: Vec<String>,
    /// The same, but the container's programs write them: the node of the simulator.
    pub shared: Vec<String>,
    /// Files and folders that a container finds at another place than the node has them: where, and then there.
    pub elsewhere: Vec<(String, String)>,
    /// Variables, `NAME=text`.
    pub env: Vec<String>,
}

impl Found {
    /// What a container needs.
    ///
    /// # Errors
    /// A governed library is missing, or a path or name cannot be mounted.
    pub fn facts(&self) -> Result<Facts, BadSpec> {
        let origin = "what was found on this node";
        self.edits().and_then(|edits| Facts::of(edits, "0.5.0")).map_err(|fault| fault.of(origin))
    }

    fn edits(&self) -> Result<ContainerEdits, Fault> {
        let node = |path: &String| DeviceNode { path: path.clone(), ..DeviceNode::default() };
        let mut mounts: Vec<Mount> = self.files.iter().map(|file| bound(file, file.clone())).collect();
        mounts.extend(self.shared.iter().map(|file| written(file)));
        mounts.extend(self.elsewhere.iter().map(|(file, place)| bound(file, place.clone())));
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

/// Every name of a library, in every folder.
fn places(library: &FoundLibrary) -> impl Iterator<Item = String> {
    FOLDERS.into_iter().flat_map(|folder| library.names.iter().map(move |name| format!("{folder}/{name}")))
}

/// A file of the node that the container's programs write.
fn written(file: &str) -> Mount {
    let options = WRITTEN.map(str::to_owned).into();
    Mount { options, ..bound(file, file.to_owned()) }
}

/// A file of the node at a place in the container.
pub(crate) fn bound(file: &str, place: String) -> Mount {
    let options = BOUND.map(str::to_owned).into();
    Mount { host_path: file.to_owned(), container_path: place, options, ..Mount::default() }
}
