//! Kernel evidence about a process: that it belongs to a slice or is on a GPU, and which memory it maps.
//!
//! Only such processes are signalled, whatever the main process asks for: it cannot make another program open a GPU, map a
//! slice's region, or have been started with a slice's variable.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::major;

use crate::protocol::Refusal;
use crate::serve::Bounds;

/// How a process is known to be one that the daemon may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It maps a region of a slice.
    Region,
    /// It has a GPU open or mapped.
    Gpu,
    /// It was started with the variable that leads to a slice.
    Variable,
    /// It runs the job runner.
    JobRunner,
}

/// What leads a program to its slice, in its environment.
const VARIABLE: &[u8] = b"TRANCHE_SLICE_SOCKET=";
/// Threads that are looked at: the first may have ended while others go on.
const MOST_THREADS: usize = 256;
/// Bytes of an environment that are searched.
const MOST_ENVIRONMENT: u64 = 8 << 20;

/// The process that a pidfd names, in `/proc`: the folder stays that process's even when its pid is used again.
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
        // It has had that pid all the time, hence the folder is its own.
        if pid_of(pidfd) == Some(pid) { Ok(Self(folder)) } else { Err(Refusal::NotAProcess) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()).into()
    }

    /// The first evidence that is found.
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

    /// A descriptor that names memory of the daemon's user which the process maps and which has no other name, by its inode
    /// number. It opens nothing: for that it takes the right of the memory's owner.
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
            // The mapping may have become another's meanwhile.
            if is_it(&named.metadata()?) {
                return Ok(named.into());
            }
        }
        Err(Errno::ENOENT.into())
    }

    /// The files that it maps. Its threads share them: those of the first that has not ended are all.
    fn mappings(&self) -> impl Iterator<Item = PathBuf> {
        let folders = self.threads().map(|thread| thread.join("map_files"));
        folders.filter(|folder| entries(folder.clone()).next().is_some()).take(1).flat_map(entries)
    }

    /// Its threads, in `/proc`: the folder of a thread by its own number has what `task` leaves out.
    fn threads(&self) -> impl Iterator<Item = PathBuf> {
        let threads = fs::read_dir(self.path("task")).into_iter().flatten().flatten();
        threads.take(MOST_THREADS).map(|thread| Path::new("/proc").join(thread.file_name()))
    }

    /// Whether it runs root's program of that path, replaced since or not.
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

/// By the kernel's word; a process that has ended has none.
pub(crate) fn pid_of(pidfd: BorrowedFd<'_>) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    pid.trim().parse().ok().filter(|pid| *pid > 0)
}

/// What a folder has in it; nothing where it cannot be read.
fn entries(folder: PathBuf) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// A descriptor that names memory of `user`'s, by its inode number, from a process that maps it. The file system knows no
/// name of such memory: a mapping or a descriptor is the only way to it. Needs CAP_SYS_ADMIN, and for
/// processes of other users CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH. The owner opens it by `/proc/self/fd`.
///
/// # Errors
/// `NotFound` if the process does not map it or has ended; the kernel's.
pub fn mapped_memory(process: BorrowedFd<'_>, inode: u64, user: u32) -> io::Result<OwnedFd> {
    let subject = Subject::of(process).map_err(|gone| io::Error::new(io::ErrorKind::NotFound, gone))?;
    subject.memory(inode, user)
}

fn of_thread(thread: &Path, gpus: &Gpus) -> Option<Evidence> {
    let mut files = entries(thread.join("fd")).filter_map(|entry| fs::metadata(entry).ok());
    if files.any(|file| gpus.holds(&file)) {
        return Some(Evidence::Gpu);
    }
    let environment = File::open(thread.join("environ")).ok()?;
    has_variable(environment).unwrap_or(false).then_some(Evidence::Variable)
}

/// Whether an environment has the variable, with a value.
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

/// What a GPU is, among files.
struct Gpus {
    majors: Vec<u64>,
    simulated: Option<(u64, u64)>,
}

impl Gpus {
    /// The driver may have been loaded since the helper was started.
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

/// Numbers of NVIDIA's character devices, from `/proc/devices`.
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
    fn devices_of_nvidia_are_known_by_the_drivers_names() {
        let devices = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n236 nvidia-uvm\n\nBlock devices:\n  8 sd\n 99 nvidia-disk\n";
        assert_eq!(majors(devices), [195, 195, 236]);
        assert_eq!(majors(""), Vec::<u64>::new());
    }

    #[test]
    fn variable_counts_with_a_value_and_by_its_whole_name() {
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
