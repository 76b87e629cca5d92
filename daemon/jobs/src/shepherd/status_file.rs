//! Status file of one start, locked for the lifetime of the runner.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use tranche_jobs::runner_protocol::StatusLine;

pub(crate) struct StatusFile(Flock<File>);

impl StatusFile {
    /// Locks a file that the daemon opened.
    pub(crate) fn lock(file: File) -> io::Result<Self> {
        let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        locked.map(Self).map_err(|(_, errno)| errno.into())
    }

    /// Appends a line in a single write, so that readers never see part of it.
    pub(crate) fn write(&mut self, line: &StatusLine) -> io::Result<()> {
        self.0.write_all(format!("{line}\n").as_bytes())
    }
}

pub(crate) fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}
