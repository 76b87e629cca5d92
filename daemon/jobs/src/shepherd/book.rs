//! The file of one start, where what happens is written down. It is locked for as long as there is a shepherd.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use tranche_domain::slice::ProcessId;
use tranche_jobs::flock::{Line, Outcome};

pub(crate) struct Book(Flock<File>);

impl Book {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::lock(append_to(path)?)
    }

    /// The same with a file that the daemon opened.
    pub(crate) fn lock(file: File) -> io::Result<Self> {
        let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        locked.map(Self).map_err(|(_, errno)| errno.into())
    }

    /// Each line in one write, so that none is ever seen in part.
    pub(crate) fn write(&mut self, line: &Line) -> io::Result<()> {
        self.0.write_all(format!("{line}\n").as_bytes())
    }

    pub(crate) fn note_shepherd(&mut self, shepherd: ProcessId) -> io::Result<()> {
        self.write(&Line::Shepherd(shepherd))
    }

    /// The command is not started.
    pub(crate) fn refuse(&mut self, why: &str) -> io::Result<()> {
        self.write(&Line::Ended(Outcome::NotStarted(why.into())))
    }
}

pub(crate) fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}
