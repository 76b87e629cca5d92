//! Slices for containers: a CDI document for each, in a directory that container runtimes read, and a folder with its socket.
//!
//! A slice that ends with its last process has no document: a container comes later, and needs one that stays.
//!
//! What a document says of the node is found out at the start, with the powers that the daemon was started with, and is the
//! same until the next start. Documents and folders are written by the privileged helper where there is one.

mod discovery;
pub(crate) mod identity;
mod libraries;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tranche_cdi::{Gpu, Preload, names};
use tranche_domain::id::SliceName;
use tranche_domain::request::Share;
use tranche_domain::slice::Slice;
use tranche_inventory::Driver;
use tranche_privileged::{Account, Containers as Writer, Description, MOST_GPUS};

use crate::ownership;
use crate::privileges;
use crate::sockets::{self, FilesError, Layout, Locks};

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

/// The node, as documents describe it.
#[derive(Debug)]
pub struct Described {
    pub(crate) directory: PathBuf,
    description: Result<Description, String>,
    notes: Vec<String>,
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

    /// Finds out what containers need, and installs the libraries for them, with the powers of this process.
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
            gpus: gpus.iter().map(|gpu| Gpu { uuid: gpu.uuid, index: gpu.index }).collect(),
            libcuda: text(&libraries.libcuda),
            libnvml: text(&libraries.libnvml),
            preload: self.preload.then(preload),
            with_whole: self.with_whole,
        })
    }
}

impl Described {
    /// What the helper is started with.
    pub(crate) fn description(&self) -> Option<&Description> {
        self.description.as_ref().ok()
    }

    fn path(&self, slice: &SliceName) -> PathBuf {
        self.directory.join(names::file_name(slice))
    }
}

/// The documents and folders of this node's slices.
#[derive(Debug)]
pub(crate) struct Containers {
    layout: Layout,
    /// Nothing where there are no documents.
    described: Option<Described>,
    /// Writes where there is no helper.
    writer: Writer,
}

impl Containers {
    pub(crate) fn new(layout: &Layout, described: Option<Described>) -> Self {
        let user = nix::unistd::geteuid().as_raw();
        let directory = described.as_ref().map(|described| described.directory.as_path());
        let description = described.as_ref().and_then(|described| described.description().cloned());
        let writer = Writer::new(&layout.runtime, user, directory, description);
        Self { layout: layout.clone(), described, writer }
    }

    /// What was noticed when the node was described.
    pub(crate) fn notes(&self) -> Vec<String> {
        let described = self.described.iter();
        let failed = |described: &Described| {
            let why = described.description.as_ref().err()?;
            Some(format!("no slice can be used in containers: {why}"))
        };
        described.flat_map(|described| described.notes.iter().cloned().chain(failed(described))).collect()
    }

    /// Listens in the folder that a slice's containers mount, which stays while daemons come and go.
    ///
    /// # Errors
    /// See [`FilesError`].
    pub(crate) fn listen(&self, name: &SliceName) -> Result<UnixListener, FilesError> {
        let listener = self.directory(name).and_then(|slice| privileges::listen(&self.writer, slice.as_fd()));
        listener.map_err(|cause| FilesError::Io { doing: "listen at", path: self.layout.mount(name), cause })
    }

    /// Writes a slice's document, unless it is there as it should be or there are none.
    ///
    /// # Errors
    /// Why it cannot be used in containers, in words. An older document is gone then.
    pub(crate) fn write(&self, slice: &Slice) -> Result<(), String> {
        let Some(described) = self.described.as_ref().filter(|_| !slice.ephemeral) else { return Ok(()) };
        let written = self.try_write(described, slice);
        written.map_err(|why| {
            self.withdraw(&slice.name);
            format!("{} {why}", unusable(&slice.name))
        })
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
        let gpus: Vec<Gpu> = named.into_iter().map(|(_, gpu)| *gpu).collect();
        let with_shim = !matches!(slice.share, Share::Whole(_));
        // The helper answers in numbers; here the reason has words.
        let composed = description.document(&slice.name, &gpus, &self.layout.mount(&slice.name), with_shim);
        composed.map_err(|bad| bad.to_string())?;
        let written = self.directory(&slice.name).and_then(|directory| {
            privileges::write_document(&self.writer, directory.as_fd(), mask, with_shim)
        });
        written.map_err(|cause| format!("cannot write {}: {cause}", described.path(&slice.name).display()))
    }

    /// Removes documents and folders of slices that are no more.
    pub(crate) fn sweep(&self) {
        if let Err(error) = privileges::sweep(&self.writer) {
            tracing::warn!(%error, "cannot remove what containers had of slices that are no more");
        }
    }

    /// The slice's own directory, by which the helper knows the slice.
    fn directory(&self, name: &SliceName) -> io::Result<File> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        File::options().read(true).custom_flags(flags).open(self.layout.slice(name))
    }
}

/// The beginning of what is noted of a slice without a document.
pub(crate) fn unusable(name: &SliceName) -> String {
    format!("slice {name} cannot be used in containers:")
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
