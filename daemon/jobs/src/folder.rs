//! Job folders: the log of each member, and the status file of each of its starts.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use tranche_domain::jobs::{JobId, MemberId};
use tranche_domain::slice::ProcessId;

use crate::record::Run;
use crate::reserve::{disk_size, room_for_logs};
use crate::runner_protocol::{CommandOutcome, RunnerSetup, StatusLine};

/// The parent folder of all job folders.
#[derive(Clone, Debug)]
pub(crate) struct Folders(PathBuf);

/// One start of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) member: MemberId,
    /// Number of the start, from 1.
    pub(crate) start: u32,
}

impl Folders {
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        make(&path)?;
        Ok(Self(path))
    }

    fn of(&self, job: JobId) -> PathBuf {
        self.0.join(job.0.to_string())
    }

    /// Path of a member's log.
    pub(crate) fn log(&self, member: MemberId) -> PathBuf {
        self.of(member.job).join(format!("{}.log", member.index))
    }

    /// Path of the status file of a start.
    pub(crate) fn attempt(&self, attempt: Attempt) -> PathBuf {
        let Attempt { member, start } = attempt;
        self.of(member.job).join(format!("{}.{start}", member.index))
    }

    /// Creates the files of a start, and removes the status file of the one before.
    pub(crate) fn prepare(&self, attempt: Attempt) -> io::Result<()> {
        make(&self.of(attempt.member.job))?;
        for path in [self.log(attempt.member), self.attempt(attempt)] {
            OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        }
        let before = Attempt { start: attempt.start.saturating_sub(1), ..attempt };
        let _ = fs::remove_file(self.attempt(before));
        if attempt.start > 1 {
            self.note(attempt.member, &format!("start {}", attempt.start));
        }
        Ok(())
    }

    /// Appends a line of the daemon's to a member's log while no runner writes there. Without room on the disk the log
    /// lacks the line.
    pub(crate) fn note(&self, member: MemberId, text: &str) {
        let line = format!("\n[tranche: {text}]\n");
        let Ok(mut log) = OpenOptions::new().append(true).open(self.log(member)) else { return };
        if room_for_logs(&log).is_none_or(|room| room >= line.len() as u64) {
            let _ = log.write_all(line.as_bytes());
        }
    }

    /// Size of the file system in bytes.
    pub(crate) fn disk_size(&self) -> io::Result<u64> {
        disk_size(&self.0)
    }

    /// Removes the folder of a job.
    pub(crate) fn remove(&self, job: JobId) {
        match fs::remove_dir_all(self.of(job)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(job = job.0, %error, "cannot remove what it printed");
            }
            _ => {}
        }
    }

    /// Jobs that have a folder.
    pub(crate) fn all(&self) -> Vec<JobId> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some(JobId(entry.file_name().to_str()?.parse().ok()?))).collect()
    }
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Maximum number of bytes read of a status file; a runner writes a few lines.
const MOST_WRITTEN: usize = 64 << 10;

/// Content of a status file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatusContent {
    /// First identity in the file; later lines may come from the user's own processes.
    pub(crate) shepherd: Option<ProcessId>,
    ran: bool,
    told: bool,
    /// True once the service passed its check of health.
    pub(crate) healthy: bool,
    outcome: Option<CommandOutcome>,
}

impl StatusContent {
    pub(crate) fn read(path: &Path) -> Self {
        let (text, _) = read_log(path, 0, MOST_WRITTEN).unwrap_or_default();
        let lines = String::from_utf8_lossy(&text).into_owned();
        let mut written = Self::default();
        lines.lines().filter_map(|line| line.parse().ok()).for_each(|line| written.take(line));
        written
    }

    fn take(&mut self, line: StatusLine) {
        match line {
            StatusLine::Shepherd(process) => drop(self.shepherd.get_or_insert(process)),
            StatusLine::Ran => self.ran = true,
            StatusLine::Told => self.told = true,
            StatusLine::Healthy => self.healthy = true,
            StatusLine::Ended(outcome) => drop(self.outcome.get_or_insert(outcome)),
        }
    }

    /// Result of the start, after the runner has ended.
    pub(crate) fn run(self) -> Run {
        match self.outcome {
            Some(outcome) => Run::Ended { outcome, told: self.told },
            None if self.ran => Run::Ended { outcome: CommandOutcome::Lost, told: self.told },
            None => Run::Never,
        }
    }
}

/// Tests if the runner of a start does not exist and never will.
pub(crate) fn is_deserted(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok(),
        // An error other than absence proves nothing.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Bytes kept of each member's output, of which all members together have one gibibyte.
pub(crate) fn kept_of_each(members: NonZeroU32) -> u64 {
    const OF_JOB: u64 = 1 << 30;
    const LEAST: u64 = 64 << 10;
    (OF_JOB / u64::from(members.get())).clamp(LEAST, RunnerSetup::most_kept())
}

/// Part of a log from an offset on, with the offset of its end; the beginning may have been discarded.
pub(crate) fn read_log(path: &Path, from: u64, most: usize) -> io::Result<(Vec<u8>, u64)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), from)),
        Err(error) => return Err(error),
    };
    let from = first_kept(&file, from);
    file.seek(SeekFrom::Start(from))?;
    let mut part = Vec::new();
    file.take(most as u64).read_to_end(&mut part)?;
    let end = from + part.len() as u64;
    Ok((part, end))
}

/// Offset of the first byte from `from` on that is not in a hole.
fn first_kept(file: &File, from: u64) -> u64 {
    let offset = i64::try_from(from).unwrap_or(i64::MAX);
    match nix::unistd::lseek64(file, offset, nix::unistd::Whence::SeekData) {
        Ok(data) => u64::try_from(data).unwrap_or(from).max(from),
        Err(_) => from,
    }
}

/// Offset at which the last lines of a log begin.
pub(crate) fn last_lines(path: &Path, lines: usize) -> u64 {
    /// Maximum number of bytes searched.
    const MOST: u64 = 1 << 20;
    let size = fs::metadata(path).map_or(0, |file| file.len());
    let from = size.saturating_sub(MOST);
    let (text, _) = read_log(path, from, MOST as usize).unwrap_or_default();
    let ends = text.iter().enumerate().rev().filter(|(at, byte)| **byte == b'\n' && at + 1 < text.len());
    let before = ends.map(|(at, _)| at as u64 + 1).nth(lines.saturating_sub(1));
    from + if lines == 0 { text.len() as u64 } else { before.unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use tranche_domain::jobs::JobSpec;

    use super::*;

    #[test]
    fn first_status_lines_take_precedence() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.1");
        assert_eq!(StatusContent::read(&path).run(), Run::Never);
        fs::write(&path, "shepherd 5 6\nran\nshepherd 1 1\n").unwrap();
        let written = StatusContent::read(&path);
        assert_eq!(written.shepherd.unwrap().start_time, 6);
        assert_eq!(written.run(), Run::Ended { outcome: CommandOutcome::Lost, told: false });
        fs::write(&path, "shepherd 5 6\nran\ntold\nexit 0\nexit 3\n").unwrap();
        assert_eq!(
            StatusContent::read(&path).run(),
            Run::Ended { outcome: CommandOutcome::Exit(0), told: true }
        );
    }

    #[test]
    fn last_lines_are_counted_from_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!([0, 1, 2, 3, 9].map(|lines| last_lines(&path, lines)), [14, 8, 4, 0, 0]);
        assert_eq!(read_log(&path, 8, 100).unwrap(), (b"three\n".to_vec(), 14));
        assert_eq!(read_log(&path, 14, 100).unwrap(), (Vec::new(), 14));
        assert_eq!(last_lines(&directory.path().join("none"), 3), 0);
    }

    #[test]
    fn logs_of_all_members_share_one_gibibyte() {
        let mib = |members| kept_of_each(NonZeroU32::new(members).unwrap()) as f64 / f64::from(1 << 20);
        assert_eq!([1, 16, 32, 1024].map(mib), [64.0, 64.0, 32.0, 1.0]);
        assert!(mib(JobSpec::MOST_MEMBERS) * f64::from(JobSpec::MOST_MEMBERS) <= 1024.0);
        assert!(mib(u32::MAX) > 0.0, "an earlier daemon took such a job on");
    }

    #[test]
    fn start_without_file_lock_is_deserted() {
        let directory = tempfile::tempdir().unwrap();
        let folders = Folders::open(directory.path().join("jobs")).unwrap();
        let attempt = Attempt { member: MemberId { job: JobId(3), index: 1 }, start: 1 };
        assert!(is_deserted(&folders.attempt(attempt)), "there is no such file");
        folders.prepare(attempt).unwrap();
        let path = folders.attempt(attempt);
        let held = Flock::lock(File::open(&path).unwrap(), FlockArg::LockExclusiveNonblock).unwrap();
        assert!(!is_deserted(&path));
        drop(held);
        assert!(is_deserted(&path));
        assert_eq!(folders.all(), [JobId(3)]);
        folders.remove(JobId(3));
        assert_eq!(folders.all(), []);
    }
}
