//! Files that container runtimes follow as root: the CDI document of each slice, and the folder with its socket.
//!
//! Both are root's. A request names a slice by its directory, whose name the kernel says, and GPUs by their places in the list
//! that root's start described. All else in a document comes from that description.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use tranche_cdi::{BadSpec, Gpu, Injection, Preload, Shim, Source, names};
use tranche_domain::id::SliceName;

use crate::protocol::Refusal;
use crate::serve::Denied;

/// Folder of the slices' directories, below the runtime directory: the main process's.
pub const SLICES: &str = "slices";
/// Folder of the folders that containers mount, below the runtime directory: root's.
pub const MOUNTS: &str = "mounts";
/// Name of the sockets at which processes attach.
pub const ATTACH: &str = "attach.sock";
/// GPUs of a node that a request can name.
pub const MOST_GPUS: usize = u64::BITS as usize;

/// The node, as root's start found it: everything in a document that is not of one slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Device files, driver libraries, hooks.
    pub source: Source,
    /// The node's GPUs; requests name them by their places here.
    pub gpus: Vec<Gpu>,
    /// The library in libcuda's place.
    pub libcuda: String,
    /// The library in NVML's place.
    pub libnvml: String,
    /// The library that is preloaded besides.
    pub preload: Option<Preload>,
    /// Containers get the library with whole GPUs, too.
    pub with_whole: bool,
}

impl Description {
    /// The GPUs of a mask; nothing if it has none, or others than the node's.
    fn gpus(&self, mask: u64) -> Option<Vec<Gpu>> {
        let all = u32::try_from(self.gpus.len()).ok().and_then(|count| 1u64.checked_shl(count));
        let known = all.map_or(u64::MAX, |all| all - 1);
        let named = self.gpus.iter().take(MOST_GPUS).enumerate().filter(|(place, _)| mask >> place & 1 == 1);
        (mask != 0 && mask & !known == 0).then(|| named.map(|(_, gpu)| *gpu).collect())
    }

    /// The text of a slice's document; `folder` is the one with its socket.
    ///
    /// # Errors
    /// The source does not have all of these GPUs, or a path cannot be mounted.
    pub fn document(
        &self,
        slice: &SliceName,
        gpus: &[Gpu],
        folder: &Path,
        with_shim: bool,
    ) -> Result<String, BadSpec> {
        let facts = self.source.facts(gpus, self.gpus.len(), |path| Path::new(path).exists())?;
        let shim = || Shim {
            libcuda: self.libcuda.clone(),
            libnvml: self.libnvml.clone(),
            socket_folder: folder.display().to_string(),
            preload: self.preload.clone(),
        };
        let injection = Injection {
            slice: slice.clone(),
            gpus: gpus.iter().map(|gpu| gpu.uuid).collect(),
            shim: (with_shim || self.with_whole).then(shim),
        };
        Ok(injection.document(&facts)?.to_json())
    }

    /// A nameless file that holds it, for the helper to start with.
    pub(crate) fn file(&self) -> io::Result<File> {
        let mut file = File::from(memfd_create(c"tranche-node", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.rewind()?;
        Ok(file)
    }

    /// What such a file holds; nothing of an empty one.
    pub(crate) fn read(mut file: impl Read) -> io::Result<Option<Self>> {
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(if text.is_empty() { None } else { Some(serde_json::from_slice(&text)?) })
    }
}

/// Writes documents and makes folders, with the powers of the process that it is in: those of the privileged helper, or of
/// a daemon that serves one user.
#[derive(Debug)]
pub struct Containers {
    runtime: PathBuf,
    user: u32,
    /// Directory of the documents; nothing where there are none.
    documents: Option<PathBuf>,
    description: Option<Description>,
}

impl Containers {
    /// For slices of `user`, with the directories of a runtime directory, and documents in that directory if anywhere.
    pub fn new(
        runtime: &Path,
        user: u32,
        documents: Option<&Path>,
        description: Option<Description>,
    ) -> Self {
        Self { runtime: runtime.to_owned(), user, documents: documents.map(Path::to_owned), description }
    }

    /// The folder that a slice's container mounts.
    fn folder(&self, slice: &SliceName) -> PathBuf {
        self.runtime.join(MOUNTS).join(slice.as_str())
    }

    /// Makes the folder that containers of a slice mount, unless it is there, and listens at a new socket in it.
    ///
    /// # Errors
    /// The descriptor is of no slice's directory; the kernel's.
    pub fn listen(&self, slice: BorrowedFd<'_>) -> Result<UnixListener, Denied> {
        let folder = self.folder(&self.slice(slice)?);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        Ok(listen(&folder.join(ATTACH), 0o666)?)
    }

    /// Writes a slice's document, unless it is there as it should be.
    ///
    /// # Errors
    /// The descriptor is of no slice's directory; a GPU is not of the node; the node was not described; the file system's.
    pub fn write(&self, slice: BorrowedFd<'_>, gpus: u64, with_shim: bool) -> Result<(), Denied> {
        let slice = self.slice(slice)?;
        let text = self.compose(&slice, gpus, with_shim)?;
        Ok(replace(&self.path(&slice)?, &text)?)
    }

    /// Removes a slice's document.
    ///
    /// # Errors
    /// The descriptor is of no slice's directory; the file system's.
    pub fn withdraw(&self, slice: BorrowedFd<'_>) -> Result<(), Denied> {
        let slice = self.slice(slice)?;
        Ok(remove(&self.path(&slice)?)?)
    }

    fn path(&self, slice: &SliceName) -> Result<PathBuf, Denied> {
        let directory = self.documents.as_ref().ok_or(Denied::Refused(Refusal::NotDescribed))?;
        Ok(directory.join(names::file_name(slice)))
    }

    fn compose(&self, slice: &SliceName, gpus: u64, with_shim: bool) -> Result<String, Denied> {
        let description = self.description.as_ref().ok_or(Denied::Refused(Refusal::NotDescribed))?;
        let gpus = description.gpus(gpus).ok_or(Denied::Refused(Refusal::NoSuchGpus))?;
        description.document(slice, &gpus, &self.folder(slice), with_shim).map_err(|bad| {
            eprintln!("tranched: the document of slice {slice} cannot be composed: {bad}");
            Denied::Refused(Refusal::NotComposed)
        })
    }

    /// Removes documents and folders of slices that have no directory.
    ///
    /// # Errors
    /// The file system's, after all else is removed.
    pub fn sweep(&self) -> io::Result<()> {
        let mut swept = Ok(());
        for (path, name) in self.documents.iter().flat_map(|directory| entries(directory)) {
            let is_old = names::slice_of(&name).is_some_and(|slice| !self.has_directory(&slice));
            if is_old || is_unfinished(&name) {
                swept = swept.and(fs::remove_file(path));
            }
        }
        for (path, name) in entries(&self.runtime.join(MOUNTS)) {
            if name.parse().is_ok_and(|slice| !self.has_directory(&slice)) {
                swept = swept.and(fs::remove_dir_all(path));
            }
        }
        swept
    }

    /// The name of the slice whose directory a descriptor names, by the kernel's word.
    fn slice(&self, directory: BorrowedFd<'_>) -> Result<SliceName, Denied> {
        let is = File::from(directory.try_clone_to_owned()?).metadata()?;
        let path = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))?;
        let slices = fs::canonicalize(&self.runtime)?.join(SLICES);
        let there = fs::symlink_metadata(&path);
        let is_there = there.is_ok_and(|there| (there.dev(), there.ino()) == (is.dev(), is.ino()));
        let is_a_slice = is_there && is.is_dir() && is.uid() == self.user && path.parent() == Some(&slices);
        let name = path.file_name().filter(|_| is_a_slice).and_then(|name| name.to_str()?.parse().ok());
        name.ok_or(Denied::Refused(Refusal::NotASlice))
    }

    fn has_directory(&self, slice: &SliceName) -> bool {
        let directory = fs::symlink_metadata(self.runtime.join(SLICES).join(slice.as_str()));
        directory.is_ok_and(|directory| directory.is_dir())
    }
}

/// Binds under another name, sets the mode, then replaces the socket that an earlier daemon left: at no instant is there a
/// socket with the wrong mode, or none.
///
/// # Errors
/// The kernel's.
pub fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let unfinished = path.with_extension("new");
    remove(&unfinished)?;
    let listener = UnixListener::bind(&unfinished)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&unfinished, Permissions::from_mode(mode))?;
    fs::rename(&unfinished, path)?;
    Ok(listener)
}

/// In one step: a reader of the directory finds the old document or the new one, whole. Until then it has a name that readers
/// pass over.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let is_own = fs::symlink_metadata(path)
        .is_ok_and(|is| is.is_file() && is.uid() == geteuid().as_raw() && is.mode() & 0o777 == 0o644);
    if is_own && fs::read(path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(());
    }
    let mut name = OsString::from(BEGINS);
    name.push(path.file_name().unwrap_or_default());
    name.push(ENDS);
    let fresh = path.with_file_name(name);
    remove(&fresh)?;
    let write = || {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        fs::rename(&fresh, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&fresh)))
}

/// Around the name of a document that is being written.
const BEGINS: &str = ".";
const ENDS: &str = ".new";

fn is_unfinished(name: &str) -> bool {
    let document = name.strip_prefix(BEGINS).and_then(|name| name.strip_suffix(ENDS));
    document.and_then(names::slice_of).is_some()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What a directory has in it, with its name; nothing where it cannot be read.
fn entries(directory: &Path) -> impl Iterator<Item = (PathBuf, String)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| (entry.path(), entry.file_name().to_string_lossy().into_owned()))
}
