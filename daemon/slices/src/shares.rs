//! Journal of shared allocations. Each change is a line of JSON, written before it takes effect, so that the next
//! daemon charges at least as much as this one did.
//!
//! The file lies beside the slice's regions and is removed with them. A killed daemon may leave a partial last line;
//! that change never took effect. After a failed write nothing is appended until the file has been rewritten.

mod change;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tranche_domain::sharing::Sharing;

pub(crate) use change::{Beyond, Change, Legacy};
use change::{replay, whole};

use tranche_linux::atomic_file::{PRIVATE, Survives, replace};

pub(crate) const FILE: &str = "shared";
/// Number of lines beyond which the file is rewritten, if most of them are obsolete.
const MOST_LINES: usize = 4096;

/// The journal of one slice.
#[derive(Debug)]
pub(crate) struct Shares {
    path: PathBuf,
    /// `None` if the file cannot be opened or written; then nothing new can be shared.
    file: Option<File>,
    lines: usize,
}

impl Shares {
    /// Opens the journal in a slice's directory and replays it.
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
                file.write_all(b"\n")?; // separates a partial line from the next one
            }
            io::Result::Ok(file)
        };
        let file = open();
        if let Err(error) = &file {
            tracing::warn!(path = %path.display(), %error, "cannot open what is shared; nothing new can be");
        }
        (Self { path, file: file.ok(), lines }, sharing, legacy)
    }

    /// Appends a change. If that fails, a change that lowers the slice's charge must not take effect.
    pub(crate) fn note(&mut self, change: Change) -> io::Result<()> {
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let written = file.write_all(&line(&change)?);
        if written.is_err() {
            self.file = None;
        }
        self.lines += 1;
        written
    }

    /// Returns true if most lines are obsolete or the last write failed.
    pub(crate) fn is_stale(&self, sharing: &Sharing) -> bool {
        self.file.is_none() || (self.lines > MOST_LINES && self.lines / 4 > sharing.count_holders())
    }

    /// Replaces the file with the changes that produce the current state.
    pub(crate) fn rewrite(&mut self, sharing: &Sharing, beyond: &Beyond) -> io::Result<()> {
        let lines = whole(sharing, beyond).iter().map(line).collect::<io::Result<Vec<_>>>()?;
        replace(&self.path, &lines.concat(), PRIVATE, Survives::ProcessDeath)?;
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
    fn journal_replays_and_ignores_a_partial_line() {
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
    fn only_the_last_export_since_a_rewrite_is_doubtful() {
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
    fn export_without_a_turn_bit_is_accepted() {
        let old = br#"{"Export":{"seat":1,"key":7,"device":0,"bytes":4096}}"#;
        let change: Change = serde_json::from_slice(old).unwrap();
        let (mut sharing, mut legacy) = Default::default();
        replay(&mut sharing, &mut legacy, change);
        assert_eq!((sharing.total(0), legacy.doubtful), (Bytes::new(4096), None));
    }

    #[test]
    fn failed_append_blocks_the_journal_until_rewritten() {
        let directory = tempfile::tempdir().unwrap();
        let (mut shares, sharing, legacy) = Shares::open(directory.path());
        shares.file = Some(File::options().write(true).open("/dev/full").unwrap());
        assert!(shares.note(SOME[0]).is_err() && shares.note(SOME[1]).is_err());
        assert!(shares.is_stale(&sharing));
        shares.rewrite(&sharing, &legacy.beyond).unwrap();
        assert!(!shares.is_stale(&sharing) && shares.note(SOME[0]).is_ok());
    }
}
