//! Files that container runtimes use as root: each slice's CDI document, and the folder of its socket.
//!
//! Both belong to root. A request gives a slice by its directory, whose name comes from the kernel, and GPUs
//! by their positions in the description made at the daemon's start as root. All else in a document comes
//! from that description.

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
use tranche_cdi::{BadSpec, CdiGpu, FactSource, Injection, Preload, Shim, names};
use tranche_domain::id::SliceName;

use crate::protocol::{Denied, Refusal};

/// Folder of the slices' directories in the runtime directory; belongs to the main process.
pub const SLICES: &str = "slices";
/// Folder of the folders that containers mount, in the runtime directory; belongs to root.
pub const MOUNTS: &str = "mounts";
/// Name of the attach sockets.
pub const ATTACH: &str = "attach.sock";
/// Maximum number of GPUs that a request can address.
pub const MOST_GPUS: usize = u64::BITS as usize;

/// Description of the node, made at the start as root.
/// It has all content of documents that is not specific to a slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Device files, driver libraries, hooks.
    pub source: FactSource,
    /// GPUs of the node; requests address them by position.
    pub gpus: Vec<CdiGpu>,
    /// Path of the library in libcuda's place.
    pub libcuda: String,
    /// Path of the library in NVML's place.
    pub libnvml: String,
    /// Preloaded library, if any.
    pub preload: Option<Preload>,
    /// True if slices of whole GPUs get the library too.
    pub with_whole: bool,
}

impl Description {
    /// GPUs of a mask; `None` if it is empty or contains unknown GPUs.
    fn gpus(&self, mask: u64) -> Option<Vec<CdiGpu>> {
        let all = u32::try_from(self.gpus.len()).ok().and_then(|count| 1u64.checked_shl(count));
        let known = all.map_or(u64::MAX, |all| all - 1);
        let named = self.gpus.iter().take(MOST_GPUS).enumerate().filter(|(place, _)| mask >> place & 1 == 1);
        (mask != 0 && mask & !known == 0).then(|| named.map(|(_, gpu)| *gpu).collect())
    }

    /// Document of a slice; `folder` contains its socket.
    ///
    /// # Errors
    /// If the source lacks a GPU, or a path cannot be mounted.
    pub fn document(
        &self,
        slice: &SliceName,
        gpus: &[CdiGpu],
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

    /// Writes the description to an anonymous file for the helper's start.
    pub(crate) fn file(&self) -> io::Result<File> {
        let mut file = File::from(memfd_create(c"tranche-node", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.rewind()?;
        Ok(file)
    }

    /// Reads such a file; `None` if it is empty.
    pub(crate) fn read(mut file: impl Read) -> io::Result<Option<Self>> {
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(if text.is_empty() { None } else { Some(serde_json::from_slice(&text)?) })
    }
}

/// Writes documents and creates folders, with the privileges of its process.
/// The process is the privileged helper, or the daemon of a single user.
#[derive(Debug)]
pub struct Containers {
    runtime: PathBuf,
    user: u32,
    /// Directory of the documents; `None` disables them.
    documents: Option<PathBuf>,
    description: Option<Description>,
}

impl Containers {
    /// For slices of `user` in a runtime directory, with documents in the given directory if any.
    pub fn new(
        runtime: &Path,
        user: u32,
        documents: Option<&Path>,
        description: Option<Description>,
    ) -> Self {
        Self { runtime: runtime.to_owned(), user, documents: documents.map(Path::to_owned), description }
    }

    /// Folder that a slice's containers mount.
    fn folder(&self, slice: &SliceName) -> PathBuf {
        self.runtime.join(MOUNTS).join(slice.as_str())
    }

    /// Creates the folder of a slice if necessary, and listens at a new socket in it.
    ///
    /// # Errors
    /// If the descriptor is not a slice's directory, or the kernel fails.
    pub fn listen(&self, slice: BorrowedFd<'_>) -> Result<UnixListener, Denied> {
        let folder = self.folder(&self.slice(slice)?);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        Ok(listen(&folder.join(ATTACH), 0o666)?)
    }

    /// Writes a slice's document, unless it is up to date.
    ///
    /// # Errors
    /// If the descriptor is not a slice's directory, a GPU is unknown, there is no description, or writing
    /// fails.
    pub fn write(&self, slice: BorrowedFd<'_>, gpus: u64, with_shim: bool) -> Result<(), Denied> {
        let slice = self.slice(slice)?;
        let text = self.compose(&slice, gpus, with_shim)?;
        Ok(replace(&self.path(&slice)?, &text)?)
    }

    /// Removes a slice's document.
    ///
    /// # Errors
    /// If the descriptor is not a slice's directory, or removing fails.
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

    /// Removes documents and folders of slices without a directory.
    ///
    /// # Errors
    /// The first failure, after all else is removed.
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

    /// Name of the slice whose directory this is, from the kernel.
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

/// Binds a socket at `path` with this mode, in the place of an earlier daemon's.
/// It is renamed from a temporary name once it has its mode, so that there is always a socket with the right mode.
///
/// # Errors
/// If the kernel fails.
pub fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let unfinished = path.with_extension("new");
    remove(&unfinished)?;
    let listener = UnixListener::bind(&unfinished)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&unfinished, Permissions::from_mode(mode))?;
    fs::rename(&unfinished, path)?;
    Ok(listener)
}

/// Replaces a file atomically. The temporary name is one that readers of the directory ignore.
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

/// Prefix and suffix of the temporary name of a document.
const BEGINS: &str = ".";
const ENDS: &str = ".new";

fn is_unfinished(name: &str) -> bool {
    let document = name.strip_prefix(BEGINS).and_then(|name| name.strip_suffix(ENDS));
    document.and_then(names::slice_of).is_some()
}

/// Removes a file, if it is there.
///
/// # Errors
/// If the kernel fails.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Paths and names of a directory's entries; empty if it is unreadable.
fn entries(directory: &Path) -> impl Iterator<Item = (PathBuf, String)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| (entry.path(), entry.file_name().to_string_lossy().into_owned()))
}
