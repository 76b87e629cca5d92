//! Composition of the CDI document for one slice.

use serde::{Deserialize, Serialize};
use tranche_domain::id::{GpuUuid, SliceName};

use crate::error::{BadSpec, CdiFault};
use crate::facts::{COMPAT_HOME, Facts, LibraryFile, PRELOAD_LIST};
use crate::found::bound;
use crate::library::{GovernedLibrary, is_clean};
use crate::names;
use crate::spec::{CdiDevice, ContainerEdits, Mount, Spec};

/// Folder of the slice's socket in its containers.
pub const SOCKET_FOLDER: &str = "/run/tranche/slice";
/// Minimum version of the specification for everything written here. Runtimes reject newer versions than they
/// know, so no higher one is declared than needed.
const VERSION: &str = "0.5.0";

/// Paths of the shim on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shim {
    /// Path on the host of the library mounted over libcuda.
    pub libcuda: String,
    /// Path on the host of the library mounted over NVML.
    pub libnvml: String,
    /// Folder with the slice's socket and nothing that its tenants must not read. A folder rather than the
    /// socket, because the daemon recreates the socket at each start; the folder has to exist as long as the
    /// slice.
    pub socket_folder: String,
    /// Preloading, for containers with a driver at an unexpected path.
    pub preload: Option<Preload>,
}

/// The second form: the shim is also loaded into every program by glibc's loader.
///
/// Both forms may load into one process, which still has one slice. The image's own preload list is hidden.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preload {
    /// Path of the library.
    pub library: String,
    /// File with the content [`Preload::LIST`], to be mounted as `/etc/ld.so.preload`.
    pub list: String,
}

impl Shim {
    /// Checks that all paths can be mounted.
    fn check(&self) -> Result<(), CdiFault> {
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
            Some((what, Some(path))) => Err(CdiFault::Place { what, path: path.clone() }),
            _ => Ok(()),
        }
    }
}

impl Preload {
    /// Content of the list: the library's path in the container.
    pub const LIST: &str = "/run/tranche/lib/libtranche_preload.so\n";
}

/// A slice with the data that its containers need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    /// Name of the device.
    pub slice: SliceName,
    /// GPUs of the slice.
    pub gpus: Vec<GpuUuid>,
    /// The shim; `None` for a slice of whole GPUs.
    pub shim: Option<Shim>,
}

impl Injection {
    /// The CDI document.
    ///
    /// An image with a driver of its own is governed as well: the folder in which such images have it is
    /// empty in the container, and the hook that would point the loader there is left out, so that the loader
    /// finds the shim. A driver elsewhere in an image requires the second form.
    ///
    /// # Errors
    /// If a path of the shim or the socket is not absolute and normalised.
    pub fn document(&self, facts: &Facts) -> Result<Spec, BadSpec> {
        self.write(facts).map_err(|fault| fault.of(&names::qualified(&self.slice)))
    }

    fn write(&self, facts: &Facts) -> Result<Spec, CdiFault> {
        let mut edits = match &self.shim {
            None => facts.whole.clone(),
            Some(shim) => {
                shim.check()?;
                self.governed(shim, facts)
            }
        };
        // Otherwise NVIDIA's runtime, where it is the default, would mount the driver's libraries over the
        // shim.
        edits.env.push("NVIDIA_VISIBLE_DEVICES=void".into());
        edits.mounts.sort_by(|a, b| order(a).cmp(&order(b)));
        let spec = Spec {
            cdi_version: version(&edits, &facts.version).to_owned(),
            kind: names::KIND.into(),
            devices: vec![CdiDevice { name: self.slice.to_string(), container_edits: edits }],
            container_edits: ContainerEdits::default(),
        };
        spec.check()?;
        Ok(spec)
    }

    /// Edits with the shim in the driver's places, and the driver where the shim expects it.
    fn governed(&self, shim: &Shim, facts: &Facts) -> ContainerEdits {
        let mut edits = facts.rest.clone();
        for (library, file) in
            [(GovernedLibrary::Cuda, &shim.libcuda), (GovernedLibrary::Nvml, &shim.libnvml)]
        {
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
    /// Content of the document's file, the same bytes for the same document.
    pub fn to_json(&self) -> String {
        // All values come from JSON or are strings, so serialisation cannot fail.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{text}\n")
    }
}

fn replaced<'a>(
    library: GovernedLibrary,
    file: &'a str,
    driver: &'a LibraryFile,
) -> impl Iterator<Item = Mount> + 'a {
    let places = driver.places.iter().map(|place| bound(file, place.clone()));
    places.chain([bound(&driver.file, library.alias())])
}

/// A mount of an empty folder.
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

/// Sort key that puts folders before mounts inside them, as runtimes do.
fn order(mount: &Mount) -> (usize, &str) {
    (mount.container_path.matches('/').count(), &mount.container_path)
}

/// Version of the document: the node's, if unread fields could require it.
fn version<'a>(edits: &ContainerEdits, node: &'a str) -> &'a str {
    let numbers = |text: &str| text.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
    if !edits.unread.is_empty() && numbers(node) > numbers(VERSION) { node } else { VERSION }
}
