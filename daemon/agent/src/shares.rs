//! What is shared, on disk: each change is a line, written before it takes effect, so that the next daemon knows
//! at least as much to be charged as this one did.
//!
//! The file lies with the slice's regions and goes with them. A daemon that is killed may leave half a line at
//! the end; it never took effect. Where one cannot be written whole, nothing is written behind it: the file is made
//! anew first.

mod change;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tranche_domain::sharing::Sharing;

pub(crate) use change::{Beyond, Change, Legacy};
use change::{replay, whole};

use crate::whole::{PRIVATE, Survives, replace};

pub(crate) const FILE: &str = "shared";
/// Lines beyond which the file is written anew, if most of them are history.
const MOST_LINES: usize = 4096;

/// The file.
#[derive(Debug)]
pub(crate) struct Shares {
    path: PathBuf,
    /// Nothing where it cannot be opened or written: then nothing new is shared.
    file: Option<File>,
    lines: usize,
}

impl Shares {
    /// Opens the file in a slice's directory and says what stands in it.
    pub(crate) fn open(directory: &Path) -> (Self, Sharing, Legacy) {
        let path = directory.join(FILE);
        let text = std::fs::read(&path).unwrap_or_default();
        let (mut sharing, mut legacy, mut lines) = (Sharing::default(), Legacy::default(), 0);
        let whole = text.rsplit(|byte| *byte == b'\n').skip(1).collect::<Vec<_>>();
        for change in whole.into_iter().rev().filter_map(|line| serde_json::from_slice(line).ok()) {
            replay(&mut sharing, &mut legacy, change);
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
        (Self { path, file: file.ok(), lines }, sharing, legacy)
    }

    /// Writes a change down. Without that it must not take effect, if it makes the slice be charged less.
    pub(crate) fn note(&mut self, change: Change) -> io::Result<()> {
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let written = file.write_all(&line(&change)?);
        if written.is_err() {
            self.file = None;
        }
        self.lines += 1;
        written
    }

    /// Whether it is to be written anew: most of the file is history, or its end is spoilt.
    pub(crate) fn is_stale(&self, sharing: &Sharing) -> bool {
        self.file.is_none() || (self.lines > MOST_LINES && self.lines / 4 > sharing.count_holders())
    }

    /// Writes the file anew, with nothing in it but what is.
    pub(crate) fn rewrite(&mut self, sharing: &Sharing, beyond: &Beyond) -> io::Result<()> {
        let lines = whole(sharing, beyond).iter().map(line).collect::<io::Result<Vec<_>>>()?;
        replace(&self.path, &lines.concat(), PRIVATE, Survives::Us)?;
        self.file = Some(File::options().append(true).open(&self.path)?);
        self.lines = lines.len();
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
        Change::Export { seat: 1, key: u64::MAX, device: 0, bytes: Bytes::mib(5), turn: Some(true) },
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
            let (mut again, sharing, Legacy { beyond, doubtful }) = Shares::open(directory.path());
            assert_eq!((sharing.total(0), beyond.len()), (Bytes::mib(5), 1));
            assert_eq!(doubtful, None, "others were written after it");
            assert!(sharing.holds(Seat(2)) && !sharing.holds(Seat(1)));
            again.rewrite(&sharing, &beyond).unwrap();
            assert_eq!(again.lines, 2);
        }
    }

    #[test]
    fn only_the_last_export_is_in_doubt_and_none_that_was_written_anew() {
        let directory = tempfile::tempdir().unwrap();
        let (mut shares, ..) = Shares::open(directory.path());
        let export = |key, turn| Change::Export { seat: 1, key, device: 0, bytes: Bytes::mib(1), turn };
        shares.note(export(7, Some(true))).unwrap();
        shares.note(export(8, Some(false))).unwrap();
        shares.file.as_mut().unwrap().write_all(br#"{"Leave":{"se"#).unwrap();
        let (mut again, sharing, legacy) = Shares::open(directory.path());
        let doubtful = legacy.doubtful.expect("nothing whole stands behind it");
        assert_eq!((doubtful.seat, doubtful.key, doubtful.turn), (Seat(1), 8, false));
        again.rewrite(&sharing, &legacy.beyond).unwrap();
        let (_, sharing, legacy) = Shares::open(directory.path());
        assert_eq!((sharing.total(0), legacy.doubtful), (Bytes::mib(2), None));
    }

    #[test]
    fn an_export_of_an_earlier_version_is_believed() {
        let old = br#"{"Export":{"seat":1,"key":7,"device":0,"bytes":4096}}"#;
        let change: Change = serde_json::from_slice(old).unwrap();
        let (mut sharing, mut legacy) = Default::default();
        replay(&mut sharing, &mut legacy, change);
        assert_eq!((sharing.total(0), legacy.doubtful), (Bytes::new(4096), None));
    }

    #[test]
    fn behind_what_could_not_be_written_whole_nothing_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let (mut shares, sharing, legacy) = Shares::open(directory.path());
        shares.file = Some(File::options().write(true).open("/dev/full").unwrap());
        assert!(shares.note(SOME[0]).is_err() && shares.note(SOME[1]).is_err());
        assert!(shares.is_stale(&sharing));
        shares.rewrite(&sharing, &legacy.beyond).unwrap();
        assert!(!shares.is_stale(&sharing) && shares.note(SOME[0]).is_ok());
    }
}
