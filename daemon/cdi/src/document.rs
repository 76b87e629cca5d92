//! The document for one slice.

use serde::{Deserialize, Serialize};
use tranche_domain::id::{GpuUuid, SliceName};

use crate::error::{BadSpec, Fault};
use crate::facts::{COMPAT_HOME, Driver, Facts, PRELOAD_LIST};
use crate::found::bound;
use crate::library::{Governed, is_clean};
use crate::names;
use crate::spec::{ContainerEdits, Device, Mount, Spec};

/// Where a container finds the folder that the slice's socket is in.
const SOCKET_FOLDER: &str = "/run/tranche/slice";
/// The oldest version of the specification that knows all that is written here. Container runtimes refuse a newer one
/// than they know, so no newer one is claimed than is needed.
const VERSION: &str = "0.5.0";

/// The shim's files on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shim {
    /// What stands in libcuda's place.
    pub libcuda: String,
    /// What stands in NVML's place.
    pub libnvml: String,
    /// The folder that the slice's socket is in, and nothing that its tenants must not read. A folder, because the
    /// socket is made anew when the daemon starts again; so the folder itself must stay as long as the slice does.
    pub socket_folder: String,
    /// For containers in which a driver can be where nobody expects it.
    pub preload: Option<Preload>,
}

/// The second form: besides, the shim is loaded into every program that glibc's loader starts.
///
/// Both can meet in one process, which then has one slice all the same. An image's own list is not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preload {
    /// The library.
    pub library: String,
    /// A file that holds [`Preload::LIST`], to be the container's `/etc/ld.so.preload`.
    pub list: String,
}

impl Shim {
    /// Whether all of it can be mounted.
    fn check(&self) -> Result<(), Fault> {
        let preload = self.preload.as_ref();
        let places = [
            ("the library for libcuda's place", Some(&self.libcuda)),
            ("the library for NVML's place", Some(&self.libnvml)),
            ("the folder of the slice's socket", Some(&self.socket_folder)),
            ("the library to preload", preload.map(|preload| &preload.library)),
            ("the list of what to preload", preload.map(|preload| &preload.list)),
        ];
        let odd = places.into_iter().find(|(_, path)| path.is_some_and(|path| !is_clean(path)));
        match odd {
            Some((what, Some(path))) => Err(Fault::Place { what, path: path.clone() }),
            _ => Ok(()),
        }
    }
}

impl Preload {
    /// What the list says: where the container has the library.
    pub const LIST: &str = "/run/tranche/lib/libtranche_preload.so\n";
}

/// A slice, as its containers need to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    /// The device's name.
    pub slice: SliceName,
    /// Its GPUs.
    pub gpus: Vec<GpuUuid>,
    /// What keeps its programs to their part; nothing for a slice of whole GPUs.
    pub shim: Option<Shim>,
}

impl Injection {
    /// What a container runtime is told.
    ///
    /// An image with a driver of its own is governed like any other: the folder in which such images have it is empty
    /// in the container, and the hook that would lead the loader there is left out, so the loader goes on to the places
    /// where the shim is. A driver that hides elsewhere in an image is reached by the second form alone.
    ///
    /// # Errors
    /// A path of the shim or the socket is not absolute and clean.
    pub fn document(&self, facts: &Facts) -> Result<Spec, BadSpec> {
        self.write(facts).map_err(|fault| fault.of(&names::qualified(&self.slice)))
    }

    fn write(&self, facts: &Facts) -> Result<Spec, Fault> {
        let mut edits = match &self.shim {
            None => facts.whole.clone(),
            Some(shim) => {
                shim.check()?;
                self.governed(shim, facts)
            }
        };
        // Without this NVIDIA's runtime, where it is the default, would mount the driver's own libraries over ours.
        edits.env.push("NVIDIA_VISIBLE_DEVICES=void".into());
        edits.mounts.sort_by(|a, b| order(a).cmp(&order(b)));
        let spec = Spec {
            cdi_version: version(&edits, &facts.version).to_owned(),
            kind: names::KIND.into(),
            devices: vec![Device { name: self.slice.to_string(), container_edits: edits }],
            container_edits: ContainerEdits::default(),
        };
        spec.check()?;
        Ok(spec)
    }

    /// With the shim where the driver would be, and the driver where the shim looks for it.
    fn governed(&self, shim: &Shim, facts: &Facts) -> ContainerEdits {
        let mut edits = facts.rest.clone();
        for (library, file) in [(Governed::Cuda, &shim.libcuda), (Governed::Nvml, &shim.libnvml)] {
            edits.mounts.extend(replaced(library, file, facts.driver(library)));
        }
        edits.mounts.push(nothing(COMPAT_HOME));
        edits.mounts.push(bound(&shim.socket_folder, SOCKET_FOLDER.into()));
        if let Some(preload) = &shim.preload {
            edits.mounts.push(bound(&preload.library, Preload::LIST.trim_end().into()));
            edits.mounts.push(bound(&preload.list, PRELOAD_LIST.into()));
        }
        let gpus: Vec<String> = self.gpus.iter().map(GpuUuid::to_string).collect();
        edits.env.push(format!("CUDA_VISIBLE_DEVICES={}", gpus.join(",")));
        edits.env.push(format!("TRANCHE_SLICE_SOCKET={SOCKET_FOLDER}/attach.sock"));
        edits
    }
}

impl Spec {
    /// As it is written to a file: the same document is always the same text.
    pub fn to_json(&self) -> String {
        // What is written was read as JSON or made of texts, so there is nothing in it that JSON cannot say.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{text}\n")
    }
}

fn replaced<'a>(library: Governed, file: &'a str, driver: &'a Driver) -> impl Iterator<Item = Mount> + 'a {
    let places = driver.places.iter().map(|place| bound(file, place.clone()));
    places.chain([bound(&driver.file, library.alias())])
}

/// A folder with nothing in it.
fn nothing(place: &str) -> Mount {
    let options = ["ro", "nosuid", "nodev", "noexec", "size=4k"].map(str::to_owned).into();
    Mount {
        host_path: "tmpfs".into(),
        container_path: place.into(),
        kind: Some("tmpfs".into()),
        options,
        ..Mount::default()
    }
}

/// Folders before what is mounted inside them, as runtimes sort mounts, too.
fn order(mount: &Mount) -> (usize, &str) {
    (mount.container_path.matches('/').count(), &mount.container_path)
}

/// What nobody here has read may be newer than the rest.
fn version<'a>(edits: &ContainerEdits, node: &'a str) -> &'a str {
    let numbers = |text: &str| text.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
    if !edits.unread.is_empty() && numbers(node) > numbers(VERSION) { node } else { VERSION }
}
