//! Slices for containers: a CDI document for each, in a directory that container runtimes read.
//!
//! A slice that ends with whoever entered it has none: a container comes later, and needs one that stays.

mod discovery;
pub(crate) mod identity;
mod libraries;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tranche_cdi::{Gpu, Injection, Preload, Shim, names};
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::request::Share;
use tranche_domain::slice::Slice;
use tranche_inventory::{GpuFacts, NodeFacts};

use crate::sockets::{self, FilesError, Locks};
use crate::whole::{PUBLIC, Survives, replace};

use discovery::Source;
use libraries::Libraries;

/// What is written where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documents {
    /// The directory.
    pub directory: PathBuf,
    /// What describes the node's GPUs, if it is not to be looked for.
    pub node: Option<PathBuf>,
    /// Whether the shim is preloaded in containers, besides standing in the driver's place.
    pub preload: bool,
    /// Whether containers get the shim with whole GPUs, too, as it is what lets them open those.
    pub with_whole: bool,
}

impl Documents {
    /// Makes the directory, which others use as well, and takes what is ours in it for this daemon alone.
    ///
    /// # Errors
    /// Another daemon has it. A directory that cannot be made or written is no error yet: it is said of each slice whose
    /// document is missing for that.
    pub fn occupy(&self) -> Result<Option<Locks>, FilesError> {
        match sockets::share(&self.directory) {
            Ok(locks) => Ok(Some(locks)),
            Err(taken @ FilesError::Taken { .. }) => Err(taken),
            Err(_) => Ok(None),
        }
    }

    /// Installs the libraries for containers as the calling user, and removes those of earlier versions.
    pub(crate) fn install_libraries(&self, shim: &Path, state: &Path) -> Result<(), String> {
        let folder = copies(state);
        let libraries = Libraries::install(shim, &folder).map_err(|error| error.to_string())?;
        let opened = fs::set_permissions(&folder, Permissions::from_mode(0o755));
        opened
            .and_then(|()| libraries.remove_others())
            .map_err(|error| format!("cannot tidy {}: {error}", folder.display()))
    }
}

/// Where containers' copies of the shim are kept.
fn copies(state: &Path) -> PathBuf {
    state.join("lib")
}

/// The documents of this node's slices.
#[derive(Debug)]
pub(crate) struct Containers {
    documents: Documents,
    shim: PathBuf,
    /// Where containers' copies of the shim are kept.
    copies: PathBuf,
    /// Nothing where there is no driver.
    node: Option<NodeFacts>,
    gpus: Vec<GpuFacts>,
    /// Once it is known.
    known: Mutex<Option<(Source, Libraries)>>,
}

impl Containers {
    pub(crate) fn new(
        documents: Documents,
        shim: &Path,
        state: &Path,
        node: Option<NodeFacts>,
        gpus: Vec<GpuFacts>,
    ) -> Self {
        let (shim, copies) = (shim.to_owned(), copies(state));
        Self { documents, shim, copies, node, gpus, known: Mutex::default() }
    }

    /// Writes a slice's document, unless it is there as it should be.
    ///
    /// # Errors
    /// Why it cannot be used in containers, in words. An older document is gone then.
    pub(crate) fn tell(&self, slice: &Slice, mount: &Path) -> Result<(), String> {
        if slice.ephemeral {
            return Ok(());
        }
        let told = self.document(slice, mount).and_then(|text| {
            let path = self.path(&slice.name);
            write(&path, &text).map_err(|cause| format!("cannot write {}: {cause}", path.display()))
        });
        told.map_err(|why| {
            self.forget(&slice.name);
            format!("{} {why}", untold(&slice.name))
        })
    }

    /// Removes a slice's document.
    pub(crate) fn forget(&self, name: &SliceName) {
        remove(&self.path(name));
    }

    /// Removes documents of slices that are no more, and what earlier versions of the shim left.
    pub(crate) fn tidy(&self, known: &BTreeSet<SliceName>) {
        let entries = fs::read_dir(&self.documents.directory).into_iter().flatten().flatten();
        let strays = entries.filter(|entry| {
            let slice = names::slice_of(&entry.file_name().to_string_lossy());
            slice.is_some_and(|slice| !known.contains(&slice))
        });
        strays.for_each(|entry| remove(&entry.path()));
        let libraries = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = libraries.as_ref().map(|(_, libraries)| libraries.remove_others()) {
            tracing::warn!(%error, "cannot remove older copies of the shim");
        }
    }

    /// Finds out what containers need, if that is not known yet; says what was noticed on the way.
    pub(crate) fn look(&self) -> (Result<(), String>, Vec<String>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes = Vec::new();
        if known.is_none() {
            match self.find(&mut notes) {
                Ok(found) => *known = Some(found),
                Err(why) => return (Err(why), notes),
            }
        }
        (Ok(()), notes)
    }

    fn find(&self, notes: &mut Vec<String>) -> Result<(Source, Libraries), String> {
        let node = self.node.as_ref().ok_or("there is no driver")?;
        let source = Source::discover(self.documents.node.as_deref(), node, &self.gpus, notes)?;
        let libraries = Libraries::install(&self.shim, &self.copies).map_err(|error| error.to_string())?;
        Ok((source, libraries))
    }

    fn document(&self, slice: &Slice, mount: &Path) -> Result<String, String> {
        self.look().0?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (source, libraries) = known.as_ref().ok_or("what containers need is not known")?;
        let gpus: Vec<Gpu> = slice.parts.iter().filter_map(|part| self.gpu(part.gpu)).collect();
        let facts = source.facts(&gpus, self.gpus.len())?;
        let preload = self
            .documents
            .preload
            .then(|| Preload { library: text(&libraries.preload), list: text(&libraries.preload_list) });
        let shim = || Shim {
            libcuda: text(&libraries.libcuda),
            libnvml: text(&libraries.libnvml),
            socket_folder: text(mount),
            preload,
        };
        let injection = Injection {
            slice: slice.name.clone(),
            gpus: gpus.iter().map(|gpu| gpu.uuid).collect(),
            shim: (self.documents.with_whole || !matches!(slice.share, Share::Whole(_))).then(shim),
        };
        injection.document(&facts).map(|spec| spec.to_json()).map_err(|bad| bad.to_string())
    }

    fn gpu(&self, uuid: GpuUuid) -> Option<Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == uuid).map(|gpu| Gpu { uuid, index: gpu.index })
    }

    fn path(&self, name: &SliceName) -> PathBuf {
        self.documents.directory.join(names::file_name(name))
    }
}

/// How it is said of a slice that containers cannot be told of it.
pub(crate) fn untold(name: &SliceName) -> String {
    format!("slice {name} cannot be used in containers:")
}

/// In one step: whoever reads the directory finds the old document or the new one, whole. While it is being written, it
/// has a name that readers pass over.
fn write(path: &Path, content: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    replace(path, content.as_bytes(), PUBLIC, Survives::Us)
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "cannot remove a CDI document");
        }
        _ => {}
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
