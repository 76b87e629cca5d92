//! What is shared, on disk: each change is a line, written before it takes effect, so that the next daemon knows
//! at least as much to be charged as this one did.
//!
//! The file lies with the slice's regions and goes with them. A daemon that is killed may leave half a line at
//! the end; it never took effect.

mod change;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tranche_domain::sharing::Sharing;

pub(crate) use change::{Beyond, Change};
use change::{replay, whole};

pub(crate) const FILE: &str = "shared";
/// Lines beyond which the file is written anew, if most of them are history.
const MOST_LINES: usize = 4096;

/// The file.
#[derive(Debug)]
pub(crate) struct Shares {
    path: PathBuf,
    /// Nothing where it cannot be opened: then nothing new is shared.
    file: Option<File>,
    lines: usize,
}

impl Shares {
    /// Opens the file in a slice's directory and says what stands in it.
    pub(crate) fn open(directory: &Path) -> (Self, Sharing, Beyond) {
        let path = directory.join(FILE);
        let text = std::fs::read(&path).unwrap_or_default();
        let (mut sharing, mut beyond, mut lines) = (Sharing::default(), Beyond::new(), 0);
        let whole = text.rsplit(|byte| *byte == b'\n').skip(1).collect::<Vec<_>>();
        for change in whole.into_iter().rev().filter_map(|line| serde_json::from_slice(line).ok()) {
            replay(&mut sharing, &mut beyond, change);
            lines += 1;
        }
        let open = || {
            let mut file = File::options().append(true).create(true).open(&path)?;
            if text.last().is_some_and(|byte| *byte != b'\n') {
                file.write_all(b"\n")?; // or the half line would spoil the next one
            }
            io::Result::Ok(file)
        };
        let file = open();
        if let Err(error) = &file {
            tracing::warn!(path = %path.display(), %error, "cannot open what is shared; nothing new can be");
        }
        (Self { path, file: file.ok(), lines }, sharing, beyond)
    }

    /// Writes a change down. Without that it must not take effect, if it makes the slice be charged less.
    pub(crate) fn note(&mut self, change: Change) -> io::Result<()> {
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        file.write_all(&line(&change)?)?;
        self.lines += 1;
        Ok(())
    }

    /// Whether most of the file is history.
    pub(crate) fn is_long(&self, sharing: &Sharing) -> bool {
        self.lines > MOST_LINES && {
            let now: usize = sharing.iter().map(|(_, shared)| shared.holders().count()).sum();
            self.lines / 4 > now
        }
    }

    /// Writes the file anew, with nothing in it but what is.
    pub(crate) fn rewrite(&mut self, sharing: &Sharing, beyond: &Beyond) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let mut fresh = tempfile::NamedTempFile::new_in(directory)?;
        let mut lines = 0;
        for change in whole(sharing, beyond) {
            fresh.write_all(&line(&change)?)?;
            lines += 1;
        }
        fresh.persist(&self.path)?;
        self.file = Some(File::options().append(true).open(&self.path)?);
        self.lines = lines;
        Ok(())
    }
}

fn line(change: &Change) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(change)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::slice::Seat;
    use tranche_domain::units::Bytes;

    const SOME: [Change; 4] = [
        Change::Export { seat: 1, key: u64::MAX, device: 0, bytes: Bytes::mib(5) },
        Change::Import { seat: 2, key: u64::MAX },
        Change::Beyond { seat: 2, device: 0, bytes: Bytes::mib(1) },
        Change::Leave { seat: 1 },
    ];

    #[test]
    fn the_next_daemon_reads_what_this_one_wrote_and_nothing_of_half_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let (mut shares, ..) = Shares::open(directory.path());
        SOME.into_iter().for_each(|change| shares.note(change).unwrap());
        shares.file.as_mut().unwrap().write_all(br#"{"Drop":{"seat":2,"ke"#).unwrap();
        for _ in 0..2 {
            let (mut again, sharing, beyond) = Shares::open(directory.path());
            assert_eq!((sharing.total(0), beyond.len()), (Bytes::mib(5), 1));
            assert!(sharing.holds(Seat(2)) && !sharing.holds(Seat(1)));
            again.rewrite(&sharing, &beyond).unwrap();
            assert_eq!(again.lines, 2);
        }
    }
}
