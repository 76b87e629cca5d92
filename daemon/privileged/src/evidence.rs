//! Evidence from the kernel that a process belongs to a slice or uses a GPU.
//! Also access to memory that a process maps.
//!
//! The helper signals only such processes, whatever the main process requests: the main process cannot make
//! another program open a GPU, map a slice's region, or start with a slice's variable.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::major;

use crate::bounds::Bounds;
use crate::protocol::Refusal;

/// Reason for which the daemon may end a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It maps a region of a slice.
    Region,
    /// It has a GPU open or mapped.
    Gpu,
    /// Its initial environment has the variable of a slice.
    Variable,
    /// It runs the job runner.
    JobRunner,
}

/// Variable with the attach socket of a slice.
const VARIABLE: &[u8] = b"TRANCHE_SLICE_SOCKET=";
/// Maximum number of threads inspected; the first may have ended before the others.
const MOST_THREADS: usize = 256;
/// Maximum number of bytes of an environment searched.
const MOST_ENVIRONMENT: u64 = 8 << 20;

/// Folder in `/proc` of the process of a pidfd.
/// The open folder stays that process's if its pid is reused.
pub(crate) struct Subject(File);

impl Subject {
    pub(crate) fn of(pidfd: BorrowedFd<'_>) -> Result<Self, Refusal> {
        let pid = pid_of(pidfd).ok_or(Refusal::NotAProcess)?;
        if pid == 1 {
            return Err(Refusal::FirstProcess);
        }
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC);
        let folder = options.open(format!("/proc/{pid}")).map_err(|_| Refusal::NotAProcess)?;
        // The pid is unchanged, so the folder opened in between is that of the process.
        if pid_of(pidfd) == Some(pid) { Ok(Self(folder)) } else { Err(Refusal::NotAProcess) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()).into()
    }

    /// The first evidence found.
    pub(crate) fn evidence(&self, bounds: &Bounds) -> Option<Evidence> {
        if self.runs(&bounds.job_runner) {
            return Some(Evidence::JobRunner);
        }
        let gpus = Gpus::now(bounds);
        for file in self.mappings().filter_map(|mapping| fs::metadata(mapping).ok()) {
            if bounds.is_ours(&file) {
                return Some(Evidence::Region);
            }
            if gpus.holds(&file) {
                return Some(Evidence::Gpu);
            }
        }
        self.threads().find_map(|thread| of_thread(&thread, &gpus))
    }

    /// An O_PATH descriptor of anonymous memory of `user` that the process maps, by inode number.
    /// Only the owner of the memory can open it for access.
    fn memory(&self, inode: u64, user: u32) -> io::Result<OwnedFd> {
        let is_it = |file: &fs::Metadata| {
            let private = file.uid() == user && file.mode() & 0o777 == 0o600;
            file.is_file() && file.ino() == inode && file.nlink() == 0 && private
        };
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC);
        for mapping in self.mappings().filter(|mapping| fs::metadata(mapping).is_ok_and(|file| is_it(&file)))
        {
            let Ok(named) = options.open(mapping) else { continue };
            // The mapping may have been replaced meanwhile.
            if is_it(&named.metadata()?) {
                return Ok(named.into());
            }
        }
        Err(Errno::ENOENT.into())
    }

    /// Mapped files. Threads share them, so those of the first live thread are complete.
    fn mappings(&self) -> impl Iterator<Item = PathBuf> {
        let folders = self.threads().map(|thread| thread.join("map_files"));
        folders.filter(|folder| entries(folder.clone()).next().is_some()).take(1).flat_map(entries)
    }

    /// Folders of its threads in `/proc`. The folder of a thread by its own id has entries that `task` lacks.
    fn threads(&self) -> impl Iterator<Item = PathBuf> {
        let threads = fs::read_dir(self.path("task")).into_iter().flatten().flatten();
        threads.take(MOST_THREADS).map(|thread| Path::new("/proc").join(thread.file_name()))
    }

    /// Tests if it runs root's program at this path, even if the file was replaced since.
    fn runs(&self, program: &Path) -> bool {
        let exe = self.path("exe");
        let Ok(named) = fs::read_link(&exe) else { return false };
        let named = named.as_os_str().as_bytes();
        let is_named = named.strip_suffix(b" (deleted)").unwrap_or(named) == program.as_os_str().as_bytes();
        is_named
            && fs::metadata(&exe)
                .is_ok_and(|file| file.uid() == 0 || file.uid() == nix::unistd::geteuid().as_raw())
    }
}

/// Pid of a pidfd, from the kernel; `None` once the process has ended.
pub fn pid_of(pidfd: BorrowedFd<'_>) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    pid.trim().parse().ok().filter(|pid| *pid > 0)
}

/// Entries of a folder; empty if it is unreadable.
fn entries(folder: PathBuf) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// An O_PATH descriptor of anonymous memory of `user`, by inode number, from a process that maps it.
/// A mapping or a descriptor is the only path to such memory. Needs CAP_SYS_ADMIN, and for processes of other users
/// CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH. The owner opens it through `/proc/self/fd`.
///
/// # Errors
/// `NotFound` if the process does not map it or has ended; errors of the kernel.
pub fn mapped_memory(process: BorrowedFd<'_>, inode: u64, user: u32) -> io::Result<OwnedFd> {
    let subject = Subject::of(process).map_err(|gone| io::Error::new(io::ErrorKind::NotFound, gone))?;
    subject.memory(inode, user)
}

/// Pid of the process of a pidfd, if it belongs to a slice or uses a GPU by the kernel's evidence.
///
/// # Errors
/// See [`Refusal`].
pub fn process_of_a_slice(process: BorrowedFd<'_>, bounds: &Bounds) -> Result<u32, Refusal> {
    let subject = Subject::of(process)?;
    subject.evidence(bounds).ok_or(Refusal::NotOfASlice)?;
    pid_of(process).ok_or(Refusal::NotAProcess)
}

fn of_thread(thread: &Path, gpus: &Gpus) -> Option<Evidence> {
    let mut files = entries(thread.join("fd")).filter_map(|entry| fs::metadata(entry).ok());
    if files.any(|file| gpus.holds(&file)) {
        return Some(Evidence::Gpu);
    }
    let environment = File::open(thread.join("environ")).ok()?;
    has_variable(environment).unwrap_or(false).then_some(Evidence::Variable)
}

/// True if an environment contains the variable with a value.
fn has_variable(environment: impl Read) -> io::Result<bool> {
    let mut environment = BufReader::new(environment.take(MOST_ENVIRONMENT));
    let mut entry = Vec::new();
    while environment.read_until(0, &mut entry)? > 0 {
        if entry.strip_prefix(VARIABLE).is_some_and(|value| value.len() > 1) {
            return Ok(true);
        }
        entry.clear();
    }
    Ok(false)
}

/// Device numbers and files that identify GPUs.
struct Gpus {
    majors: Vec<u64>,
    simulated: Option<(u64, u64)>,
}

impl Gpus {
    /// The current device numbers; the driver may have been loaded after the helper's start.
    fn now(bounds: &Bounds) -> Self {
        let devices = fs::read_to_string("/proc/devices").unwrap_or_default();
        let simulated = bounds.simulated_node.as_ref().and_then(|path| fs::metadata(path).ok());
        Self { majors: majors(&devices), simulated: simulated.map(|file| (file.dev(), file.ino())) }
    }

    fn holds(&self, file: &fs::Metadata) -> bool {
        let is_device = file.file_type().is_char_device() && self.majors.contains(&major(file.rdev()));
        is_device || self.simulated == Some((file.dev(), file.ino()))
    }
}

/// Majors of NVIDIA's character devices in `/proc/devices`.
pub(crate) fn majors(devices: &str) -> Vec<u64> {
    let characters = devices.lines().take_while(|line| !line.starts_with("Block"));
    let nvidias = characters.filter_map(|line| {
        let (number, name) = line.trim().split_once(' ')?;
        name.starts_with("nvidia").then(|| number.parse().ok())?
    });
    nvidias.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidia_majors_are_recognised_by_name() {
        let devices = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n236 nvidia-uvm\n\nBlock devices:\n  8 sd\n 99 nvidia-disk\n";
        assert_eq!(majors(devices), [195, 195, 236]);
        assert_eq!(majors(""), Vec::<u64>::new());
    }

    #[test]
    fn variable_needs_a_value_and_exact_name() {
        let has = |text: &[u8]| has_variable(text).is_ok_and(|has| has);
        assert!(has(b"A=1\0TRANCHE_SLICE_SOCKET=/run/x\0B=2\0"));
        assert!(has(b"TRANCHE_SLICE_SOCKET=/run/x\0"));
        for text in [
            &b"XTRANCHE_SLICE_SOCKET=/x\0"[..],
            b"TRANCHE_SLICE_SOCKET=\0",
            b"A=TRANCHE_SLICE_SOCKET=/x\0",
            b"",
        ] {
            assert!(!has(text), "{}", text.escape_ascii());
        }
    }
}
