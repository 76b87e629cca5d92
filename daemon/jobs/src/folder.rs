//! Where shepherds write: a folder for each job, and in it what each member printed and how each of its starts went.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::num::NonZeroU32;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use tranche_domain::jobs::{JobId, MemberId};
use tranche_domain::slice::ProcessId;

use crate::entry::Run;
use crate::flock::{Hail, Line, Outcome};
use crate::reserve::disk_size;

/// The folders of all jobs.
#[derive(Clone, Debug)]
pub(crate) struct Folders(PathBuf);

/// One start of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) member: MemberId,
    /// Which of its starts, from 1.
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

    /// What a member printed.
    pub(crate) fn log(&self, member: MemberId) -> PathBuf {
        self.of(member.job).join(format!("{}.log", member.index))
    }

    /// The file of one start.
    pub(crate) fn attempt(&self, attempt: Attempt) -> PathBuf {
        let Attempt { member, start } = attempt;
        self.of(member.job).join(format!("{}.{start}", member.index))
    }

    /// Makes the files of a start; the file of the one before it is of no use any more.
    pub(crate) fn prepare(&self, attempt: Attempt) -> io::Result<()> {
        make(&self.of(attempt.member.job))?;
        for path in [self.log(attempt.member), self.attempt(attempt)] {
            OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        }
        let before = Attempt { start: attempt.start.saturating_sub(1), ..attempt };
        let _ = fs::remove_file(self.attempt(before));
        Ok(())
    }

    /// The size of the disk that they are on, in bytes.
    pub(crate) fn disk_size(&self) -> io::Result<u64> {
        disk_size(&self.0)
    }

    /// Removes all of a job.
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

/// No more than this of what is written down of a start is read, in bytes: a shepherd writes a few lines.
const MOST_WRITTEN: usize = 64 << 10;

/// What is written down of a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// The first that said so: what comes later may be the user's own.
    pub(crate) shepherd: Option<ProcessId>,
    ran: bool,
    told: bool,
    outcome: Option<Outcome>,
}

impl Written {
    pub(crate) fn read(path: &Path) -> Self {
        let (text, _) = read_log(path, 0, MOST_WRITTEN).unwrap_or_default();
        let lines = String::from_utf8_lossy(&text).into_owned();
        let mut written = Self::default();
        lines.lines().filter_map(|line| line.parse().ok()).for_each(|line| written.take(line));
        written
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Shepherd(process) => drop(self.shepherd.get_or_insert(process)),
            Line::Ran => self.ran = true,
            Line::Told => self.told = true,
            Line::Ended(outcome) => drop(self.outcome.get_or_insert(outcome)),
        }
    }

    /// What came of it, now that there is no shepherd any more.
    pub(crate) fn run(self) -> Run {
        match self.outcome {
            Some(outcome) => Run::Ended { outcome, told: self.told },
            None if self.ran => Run::Ended { outcome: Outcome::Lost, told: self.told },
            None => Run::Never,
        }
    }
}

/// Whether a start has no shepherd, nor will have one.
pub(crate) fn is_deserted(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok(),
        // What cannot be looked at now is not known to be so.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// How much is kept of what each of so many members prints, in bytes: together they have room for a gibibyte.
pub(crate) fn kept_of_each(members: NonZeroU32) -> u64 {
    const OF_JOB: u64 = 1 << 30;
    const LEAST: u64 = 64 << 10;
    (OF_JOB / u64::from(members.get())).clamp(LEAST, Hail::most_kept())
}

/// A part of what a member printed, and where it ends; what was printed long ago may be gone.
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

/// The first byte from there on that has not been given back to the disk.
fn first_kept(file: &File, from: u64) -> u64 {
    let offset = i64::try_from(from).unwrap_or(i64::MAX);
    match nix::unistd::lseek64(file, offset, nix::unistd::Whence::SeekData) {
        Ok(data) => u64::try_from(data).unwrap_or(from).max(from),
        Err(_) => from,
    }
}

/// Where the last lines of what a member printed begin.
pub(crate) fn last_lines(path: &Path, lines: usize) -> u64 {
    /// No more is looked at, in bytes.
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
    fn only_what_was_written_down_first_is_believed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.1");
        assert_eq!(Written::read(&path).run(), Run::Never);
        fs::write(&path, "shepherd 5 6\nran\nshepherd 1 1\n").unwrap();
        let written = Written::read(&path);
        assert_eq!(written.shepherd.unwrap().start_time, 6);
        assert_eq!(written.run(), Run::Ended { outcome: Outcome::Lost, told: false });
        fs::write(&path, "shepherd 5 6\nran\ntold\nexit 0\nexit 3\n").unwrap();
        assert_eq!(Written::read(&path).run(), Run::Ended { outcome: Outcome::Exit(0), told: true });
    }

    #[test]
    fn the_last_lines_are_counted_from_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!([0, 1, 2, 3, 9].map(|lines| last_lines(&path, lines)), [14, 8, 4, 0, 0]);
        assert_eq!(read_log(&path, 8, 100).unwrap(), (b"three\n".to_vec(), 14));
        assert_eq!(read_log(&path, 14, 100).unwrap(), (Vec::new(), 14));
        assert_eq!(last_lines(&directory.path().join("none"), 3), 0);
    }

    #[test]
    fn members_of_a_large_job_have_a_gibibyte_together_for_what_they_print() {
        let mib = |members| kept_of_each(NonZeroU32::new(members).unwrap()) as f64 / f64::from(1 << 20);
        assert_eq!([1, 16, 32, 1024].map(mib), [64.0, 64.0, 32.0, 1.0]);
        assert!(mib(JobSpec::MOST_MEMBERS) * f64::from(JobSpec::MOST_MEMBERS) <= 1024.0);
        assert!(mib(u32::MAX) > 0.0, "an earlier daemon took such a job on");
    }

    #[test]
    fn a_start_is_deserted_once_nobody_holds_its_file() {
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
