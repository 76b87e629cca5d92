//! Slices in containers. A CDI document for each persistent slice, in a directory that container runtimes read, and a
//! folder with its attach socket.
//!
//! Ephemeral slices have no document, since they end before a container could use them.
//!
//! The node is described once at the start, with the privileges of that time. Documents and folders are written by
//! the privileged helper where there is one.

mod discovery;
mod libraries;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tranche_cdi::{CdiGpu, Preload, names};
use tranche_domain::id::SliceName;
use tranche_domain::request::Share;
use tranche_domain::slice::Slice;
use tranche_inventory::Driver;
use tranche_privileged::{Account, Containers as Writer, Description, MOST_GPUS};

use crate::ownership;
use crate::sockets::{self, DaemonPaths, FilesError, Locks};
use tranche_linux::privileges;

use libraries::Libraries;

/// Parameters of the documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documents {
    /// Directory of the documents.
    pub directory: PathBuf,
    /// Document that describes the node's GPUs; `None` to search for one.
    pub node: Option<PathBuf>,
    /// Preloads the shim in containers, in addition to replacing the driver's libraries.
    pub preload: bool,
    /// Gives containers the shim with whole GPUs as well, because it obtains the permission to open them.
    pub with_whole: bool,
}

/// Description of the node for documents.
#[derive(Debug)]
pub struct Described {
    directory: PathBuf,
    description: Result<Description, String>,
    notes: Vec<String>,
}

impl Documents {
    /// Creates the directory, which others use as well, and locks this daemon's part of it.
    ///
    /// # Errors
    /// Another daemon holds the lock. Failure to create or write the directory is no error here: it is noted for each
    /// slice whose document is missing.
    pub fn occupy(&self) -> Result<Option<Locks>, FilesError> {
        match sockets::share(&self.directory) {
            Ok(locks) => Ok(Some(locks)),
            Err(taken @ FilesError::Taken { .. }) => Err(taken),
            Err(_) => Ok(None),
        }
    }

    /// Discovers what containers need, and installs the shim's libraries for them.
    /// Both need the privileges that this process still has.
    pub(crate) fn describe(
        self,
        driver: &dyn Driver,
        shim: &Path,
        state: &Path,
        account: Option<&Account>,
    ) -> Described {
        let mut notes = Vec::new();
        let taken = self.take_back(account);
        let description = taken.and_then(|()| self.find(driver, shim, &state.join("lib"), &mut notes));
        Described { directory: self.directory, description, notes }
    }

    fn take_back(&self, account: Option<&Account>) -> Result<(), String> {
        let Some(account) = account.filter(|_| self.directory.is_dir()) else { return Ok(()) };
        ownership::take_back_documents(&self.directory, account).map_err(|error| {
            format!("cannot take {} back from user {}: {error}", self.directory.display(), account.name)
        })
    }

    fn find(
        &self,
        driver: &dyn Driver,
        shim: &Path,
        copies: &Path,
        notes: &mut Vec<String>,
    ) -> Result<Description, String> {
        let node = driver.facts().map_err(|_| "there is no driver")?;
        let gpus = driver.gpus().map_err(|error| error.to_string())?;
        let source = discovery::discover(self.node.as_deref(), &node, &gpus, notes)?;
        let libraries = Libraries::install(shim, copies).map_err(|error| error.to_string())?;
        if let Err(error) = libraries.remove_others() {
            notes.push(format!("cannot remove older copies of the shim in {}: {error}", copies.display()));
        }
        let preload = || Preload { library: text(&libraries.preload), list: text(&libraries.preload_list) };
        Ok(Description {
            source,
            gpus: gpus.iter().map(|gpu| CdiGpu { uuid: gpu.uuid, index: gpu.index }).collect(),
            libcuda: text(&libraries.libcuda),
            libnvml: text(&libraries.libnvml),
            preload: self.preload.then(preload),
            with_whole: self.with_whole,
        })
    }
}

impl Described {
    fn description(&self) -> Option<&Description> {
        self.description.as_ref().ok()
    }

    /// Directory of the documents, and the description that the helper is started with.
    pub(crate) fn for_helper(&self) -> (&Path, Option<&Description>) {
        (&self.directory, self.description())
    }

    fn path(&self, slice: &SliceName) -> PathBuf {
        self.directory.join(names::file_name(slice))
    }
}

/// Documents and folders of this node's slices.
#[derive(Debug)]
pub(crate) struct SliceContainers {
    layout: DaemonPaths,
    /// `None` if documents are off.
    described: Option<Described>,
    /// Writes where there is no helper.
    writer: Writer,
}

impl SliceContainers {
    pub(crate) fn new(layout: &DaemonPaths, described: Option<Described>) -> Self {
        let user = nix::unistd::geteuid().as_raw();
        let directory = described.as_ref().map(|described| described.directory.as_path());
        let description = described.as_ref().and_then(|described| described.description().cloned());
        let writer = Writer::new(&layout.runtime, user, directory, description);
        Self { layout: layout.clone(), described, writer }
    }

    /// Reasons why containers cannot use slices, or not as configured.
    pub(crate) fn limitations(&self) -> Vec<String> {
        let described = self.described.iter();
        let failed = |described: &Described| {
            let why = described.description.as_ref().err()?;
            Some(format!("no slice can be used in containers: {why}"))
        };
        described.flat_map(|described| described.notes.iter().cloned().chain(failed(described))).collect()
    }

    /// Listens in the folder that a slice's containers mount, which outlives the daemon.
    ///
    /// # Errors
    /// See [`FilesError`].
    pub(crate) fn listen(&self, name: &SliceName) -> Result<UnixListener, FilesError> {
        let listener = self.directory(name).and_then(|slice| privileges::listen(&self.writer, slice.as_fd()));
        listener.map_err(|cause| FilesError::Io { doing: "listen at", path: self.layout.mount(name), cause })
    }

    /// Writes a slice's document, unless it is up to date or documents are off.
    ///
    /// # Errors
    /// The reason why containers cannot use the slice, as a sentence. An older document has been removed.
    pub(crate) fn write(&self, slice: &Slice) -> Result<(), String> {
        let Some(described) = self.described.as_ref().filter(|_| !slice.ephemeral) else { return Ok(()) };
        let written = self.try_write(described, slice);
        written.map_err(|why| {
            self.withdraw(&slice.name);
            format!("{} {why}", unusable(&slice.name))
        })
    }

    /// Path of a slice's document, if documents are on.
    pub(crate) fn document(&self, name: &SliceName) -> Option<PathBuf> {
        self.described.as_ref().map(|described| described.path(name))
    }

    /// Removes a slice's document, if it has one.
    pub(crate) fn withdraw(&self, name: &SliceName) {
        let Some(described) = &self.described else { return };
        let withdrawn =
            self.directory(name).and_then(|slice| privileges::withdraw(&self.writer, slice.as_fd()));
        if let Err(error) = withdrawn {
            let path = described.path(name);
            tracing::warn!(path = %path.display(), %error, "cannot remove a CDI document");
        }
    }

    fn try_write(&self, described: &Described, slice: &Slice) -> Result<(), String> {
        let description = described.description.as_ref()?;
        let known = description.gpus.iter().take(MOST_GPUS).enumerate();
        let named: Vec<_> = known.filter(|(_, gpu)| slice.part_of(gpu.uuid).is_some()).collect();
        if named.len() != slice.parts.len() {
            return Err(format!("not all of its GPUs are among the first {MOST_GPUS} of the node"));
        }
        let mask = named.iter().fold(0, |mask, (place, _)| mask | 1 << place);
        let gpus: Vec<CdiGpu> = named.into_iter().map(|(_, gpu)| *gpu).collect();
        // Jobs have it with whole GPUs too, as their programs are counted to the slice.
        let with_shim = slice.job.is_some() || !matches!(slice.share, Share::Whole(_));
        // The helper replies with numbers; here the reason is available as text.
        let composed = description.document(&slice.name, &gpus, &self.layout.mount(&slice.name), with_shim);
        composed.map_err(|bad| bad.to_string())?;
        let written = self.directory(&slice.name).and_then(|directory| {
            privileges::write_document(&self.writer, directory.as_fd(), mask, with_shim)
        });
        written.map_err(|cause| format!("cannot write {}: {cause}", described.path(&slice.name).display()))
    }

    /// Removes documents and folders of slices that no longer exist.
    pub(crate) fn sweep(&self) {
        if let Err(error) = privileges::sweep(&self.writer) {
            tracing::warn!(%error, "cannot remove what containers had of slices that are no more");
        }
    }

    /// The slice's directory, by which the helper identifies the slice.
    fn directory(&self, name: &SliceName) -> io::Result<File> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        File::options().read(true).custom_flags(flags).open(self.layout.slice(name))
    }
}

/// Prefix of the message about a slice without a document.
fn unusable(name: &SliceName) -> String {
    format!("slice {name} cannot be used in containers:")
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
