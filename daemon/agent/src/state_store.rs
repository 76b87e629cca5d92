//! State store: one file that is replaced atomically, and a copy in case it is damaged or gone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tranche_jobs::reserve;

use crate::state::StateFile;
use tranche_linux::atomic_file::{PRIVATE, Survives, replace};

const FILE: &str = "state.json";
const COPY: &str = "state.json.copy";

/// Writer of the state file, one write at a time.
///
/// Changes that wait for the disk at the same time share a write: the first writes for all that were made before it began.
#[derive(Debug)]
pub(crate) struct StateWriter {
    directory: PathBuf,
    /// Held by the request that writes for others.
    turn: Mutex<()>,
    /// Number of the newest snapshot on disk.
    written: Mutex<u64>,
}

impl StateWriter {
    pub(crate) const fn new(directory: PathBuf) -> Self {
        Self { directory, turn: Mutex::new(()), written: Mutex::new(0) }
    }

    /// Waits for the turn to write for all that wait. No lock that a snapshot takes may be held.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tests if this snapshot or a newer one is on disk.
    pub(crate) fn has_written(&self, number: u64) -> bool {
        *self.written() >= number
    }

    /// Writes a snapshot, unless a newer one is on disk.
    pub(crate) fn write(&self, number: u64, state: &StateFile) -> Result<(), SaveError> {
        let mut written = self.written();
        if *written < number {
            save(state, &self.directory)?;
            *written = number;
        }
        Ok(())
    }

    fn written(&self) -> MutexGuard<'_, u64> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Failure to write the state file.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep the slices in {}: {cause}; free some space there or fix its permissions", .path.display())]
pub(crate) struct SaveError {
    path: PathBuf,
    cause: io::Error,
}

/// Outcome of reading the state at start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StoredState {
    /// The state file, or an empty state if there is none yet.
    Whole(StateFile),
    /// The copy, in place of a state file that cannot be read; the note names the file and the reason.
    Copy(StateFile, String),
    /// No readable state; the note names the files that were set aside and the reason.
    Nothing(String),
}

/// Replaces the state file; after a crash it holds the old or the new state, nothing between.
///
/// # Errors
/// The old state file is unchanged.
fn save(state: &StateFile, directory: &Path) -> Result<(), SaveError> {
    let path = directory.join(FILE);
    let text = state.text().map_err(io::Error::other);
    let saved = text.and_then(|text| {
        put(&text, &path, directory)?;
        write_copy(&text, directory);
        hold_reserve(directory);
        Ok(())
    });
    saved.map_err(|cause| SaveError { path, cause })
}

/// Writes the state. On a full disk the reserve is given up first, then, for a state that has not grown, the copy:
/// a deletion must be recorded, or the slice would return after a restart.
fn put(text: &[u8], path: &Path, directory: &Path) -> io::Result<()> {
    let put = || replace(path, text, PRIVATE, Survives::PowerCuts);
    put().or_else(|error| {
        let is_full = reserve::is_full(&error);
        if is_full && reserve::give_up(directory) {
            return put();
        }
        let is_longer = fs::metadata(path).map_or(true, |old| (text.len() as u64) > old.len());
        if !is_full || is_longer || fs::remove_file(directory.join(COPY)).is_err() {
            return Err(error);
        }
        put()
    })
}

/// Writes the copy, without waiting for the disk. A failure is logged: the state itself is already safe.
fn write_copy(text: &[u8], directory: &Path) {
    let copy = directory.join(COPY);
    if let Err(error) = replace(&copy, text, PRIVATE, Survives::ProcessDeath) {
        tracing::warn!(path = %copy.display(), %error, "the copy of the state is old");
    }
}

/// Holds disk space for the next write. A failure is logged: the state itself is already safe.
fn hold_reserve(directory: &Path) {
    if let Err(error) = reserve::hold(directory) {
        tracing::debug!(path = %directory.display(), %error, "no room is held for the state");
    }
}

/// Reads the state. An unreadable file is renamed and kept for inspection, never overwritten, and does not prevent
/// the daemon from starting.
pub(crate) fn load(directory: &Path) -> io::Result<StoredState> {
    let path = directory.join(FILE);
    let (what, copy) = match read(&path)? {
        Some(Ok(state)) => return Ok(StoredState::Whole(state)),
        Some(Err(why)) => {
            let aside = set_aside(&path, directory)?;
            let (path, aside) = (path.display(), aside.display());
            let what = format!("the state file {path} could not be read ({why}); it is kept as {aside}");
            (what, read(&directory.join(COPY)))
        }
        None => match read(&directory.join(COPY)) {
            Ok(Some(copy)) => (format!("the state file {} is gone", path.display()), Ok(Some(copy))),
            _ => return Ok(StoredState::Whole(StateFile::new(0, Vec::new()))),
        },
    };
    Ok(match copy {
        Ok(Some(Ok(state))) => {
            StoredState::Copy(state, format!("{what}, and its copy has been used: check the disk"))
        }
        _ => StoredState::Nothing(format!("{what}, and the node starts without it")),
    })
}

/// `None` if there is no such file.
fn read(path: &Path) -> io::Result<Option<Result<StateFile, String>>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(text) => Ok(Some(StateFile::parse(&text))),
    }
}

fn set_aside(path: &Path, directory: &Path) -> io::Result<PathBuf> {
    let mut names = (1u32..).map(|n| directory.join(format!("{FILE}.corrupt-{n}")));
    let aside = names.find(|name| !name.exists());
    let aside = aside.ok_or_else(|| io::Error::other("no free name to set the file aside"))?;
    fs::rename(path, &aside)?;
    Ok(aside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::state;

    fn saved_state(state: &StateFile) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        save(state, directory.path()).unwrap();
        directory
    }

    #[test]
    fn saved_state_loads_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(load(directory.path()).unwrap(), StoredState::Whole(StateFile::new(0, Vec::new())));
        save(&state(), directory.path()).unwrap();
        assert_eq!(load(directory.path()).unwrap(), StoredState::Whole(state()));
        // The state, its copy and the disk reserve.
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn older_snapshot_does_not_replace_a_newer_one() {
        let directory = tempfile::tempdir().unwrap();
        let writer = StateWriter::new(directory.path().to_owned());
        assert!(!writer.has_written(1));
        writer.write(2, &state()).unwrap();
        assert!(writer.has_written(1) && writer.has_written(2) && !writer.has_written(3));
        writer.write(1, &StateFile::new(0, Vec::new())).unwrap();
        assert_eq!(load(directory.path()).unwrap(), StoredState::Whole(state()));
        fs::remove_dir_all(directory.path()).unwrap();
        assert!(writer.write(3, &state()).is_err() && !writer.has_written(3));
    }

    #[test]
    fn torn_state_file_falls_back_to_the_copy() {
        let text = state().text().unwrap();
        // Without its last newline the file is still complete.
        for length in 0..text.len() - 1 {
            let directory = saved_state(&state());
            fs::write(directory.path().join(FILE), &text[..length]).unwrap();
            let StoredState::Copy(found, note) = load(directory.path()).unwrap() else {
                panic!("the first {length} bytes were believed")
            };
            assert_eq!(found, state(), "{length}");
            assert!(note.contains("state.json.corrupt-1") && note.contains("check the disk"), "{note}");
            assert_eq!(fs::read(directory.path().join("state.json.corrupt-1")).unwrap(), text[..length]);
            save(&found, directory.path()).unwrap();
            assert_eq!(load(directory.path()).unwrap(), StoredState::Whole(state()));
        }
    }

    #[test]
    fn torn_state_and_copy_load_nothing() {
        let text = state().text().unwrap();
        for length in 0..text.len() - 1 {
            let directory = tempfile::tempdir().unwrap();
            for name in [FILE, COPY] {
                fs::write(directory.path().join(name), &text[..length]).unwrap();
            }
            let found = load(directory.path()).unwrap();
            assert!(
                matches!(&found, StoredState::Nothing(note) if note.contains("without it")),
                "{length}: {found:?}"
            );
        }
    }

    #[test]
    fn missing_state_is_read_from_its_copy() {
        let directory = saved_state(&state());
        let empty = StateFile::new(10, Vec::new());
        fs::write(directory.path().join(FILE), empty.text().unwrap()).unwrap();
        assert_eq!(load(directory.path()).unwrap(), StoredState::Whole(empty));
        fs::remove_file(directory.path().join(FILE)).unwrap();
        let StoredState::Copy(found, note) = load(directory.path()).unwrap() else {
            panic!("it is forgotten")
        };
        assert!(found == state() && note.contains("is gone"), "{note}");
    }

    #[test]
    fn unwritable_copy_does_not_fail_the_save() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join(COPY)).unwrap();
        save(&state(), directory.path()).unwrap();
        assert_eq!(load(directory.path()).unwrap(), StoredState::Whole(state()));
    }

    #[test]
    fn unreadable_files_are_set_aside_under_distinct_names() {
        let directory = tempfile::tempdir().unwrap();
        let newer = r#"{"version": 99, "generation": 0, "slices": []}"#;
        for (text, name) in [("{ not json", "state.json.corrupt-1"), (newer, "state.json.corrupt-2")] {
            fs::write(directory.path().join(FILE), text).unwrap();
            let StoredState::Nothing(note) = load(directory.path()).unwrap() else {
                panic!("{text} was believed")
            };
            assert!(note.contains(name), "{note}");
            assert_eq!(fs::read_to_string(directory.path().join(name)).unwrap(), text);
            assert!(!directory.path().join(FILE).exists());
        }
    }
}
