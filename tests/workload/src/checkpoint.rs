//! Progress of the work, in a file from which the next process of the same work continues.
//!
//! A line states that a process began and from where, another one that it saved and its progress: so the file also
//! shows if two of them ever worked at once.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{process, thread};

use nix::sys::signal::{SigSet, Signal};

use crate::failure::Failure;
use crate::pace::Tally;

/// The file, and the progress that it had when this process began.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: PathBuf,
    done: u64,
}

impl Checkpoint {
    /// Records the begin of this process; from now on SIGUSR1 stops its launches.
    pub(crate) fn begin(path: &Path, tally: &Arc<Tally>) -> Result<Self, Failure> {
        heed(tally).map_err(|cause| Failure::Io { what: "waiting for SIGUSR1".into(), cause })?;
        let checkpoint =
            Self { path: path.into(), done: saved(&fs::read_to_string(path).unwrap_or_default()) };
        checkpoint.note("began", checkpoint.done)?;
        Ok(checkpoint)
    }

    /// Launches that earlier processes did.
    pub(crate) const fn done(&self) -> u64 {
        self.done
    }

    /// Records the sum of earlier launches and this process's.
    pub(crate) fn save(&self, launches: u64) -> Result<(), Failure> {
        self.note("saved", self.done + launches)
    }

    /// Appends a line in one write, so that none is ever read in part.
    fn note(&self, what: &str, done: u64) -> Result<(), Failure> {
        let line = format!("{what} {} {done}\n", process::id());
        let written = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.path)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(|cause| Failure::Io { what: format!("writing to {}", self.path.display()), cause })
    }
}

/// Progress that was saved last; 0 if there is none.
fn saved(text: &str) -> u64 {
    let saves = text.lines().filter_map(|line| line.strip_prefix("saved "));
    saves.filter_map(|rest| rest.split_once(' ')?.1.parse().ok()).next_back().unwrap_or(0)
}

fn heed(tally: &Arc<Tally>) -> io::Result<()> {
    let mut warning = SigSet::empty();
    warning.add(Signal::SIGUSR1);
    warning.thread_block()?;
    let tally = Arc::clone(tally);
    let wait = move || {
        if warning.wait().is_ok() {
            tally.stop();
        }
    };
    thread::Builder::new().name("warning".into()).spawn(wait).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_begins_where_the_one_before_it_saved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        let begin =
            || Checkpoint { done: saved(&fs::read_to_string(&path).unwrap_or_default()), path: path.clone() };
        begin().save(7).unwrap();
        begin().note("began", 7).unwrap();
        assert_eq!(begin().done(), 7, "a process that never saved has done nothing");
        begin().save(5).unwrap();
        assert_eq!(begin().done(), 12);
    }
}
