//! The state on disk: one file that is always whole, and a copy of it for the day that the disk gives back something
//! else.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tranche_jobs::reserve;

use crate::state::State;
use crate::whole::{PRIVATE, Survives, replace};

const FILE: &str = "state.json";
const COPY: &str = "state.json.copy";

/// Why the state cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep the slices in {}: {cause}; free some space there or fix its permissions", .path.display())]
pub(crate) struct SaveError {
    path: PathBuf,
    cause: io::Error,
}

/// What was found at start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A state, or nothing yet.
    Whole(State),
    /// The copy, in the place of something that cannot be read; the note says what and why.
    Copy(State, String),
    /// Nothing but what cannot be read, set aside; the note says where and why.
    Nothing(String),
}

/// Puts a state in the place of the last: after a crash there is the old or the new one, and nothing between.
///
/// # Errors
/// The old state is there as it was.
pub(crate) fn save(state: &State, directory: &Path) -> Result<(), SaveError> {
    let path = directory.join(FILE);
    let text = state.text().map_err(io::Error::other);
    let saved = text.and_then(|text| {
        put(&text, &path, directory)?;
        keep_copy(&text, directory);
        keep_reserve(directory);
        Ok(())
    });
    saved.map_err(|cause| SaveError { path, cause })
}

/// What ends must not come back because there is no room to say that it has ended: for that, the copy gives up its own.
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

/// The state is safe without it, and it has all the time in the world to get to the disk.
fn keep_copy(text: &[u8], directory: &Path) {
    let copy = directory.join(COPY);
    if let Err(error) = replace(&copy, text, PRIVATE, Survives::Us) {
        tracing::warn!(path = %copy.display(), %error, "the copy of the state is old");
    }
}

/// The state is safe without it; what is written next may need it.
fn keep_reserve(directory: &Path) {
    if let Err(error) = reserve::hold(directory) {
        tracing::debug!(path = %directory.display(), %error, "no room is held for the state");
    }
}

/// Reads the state. What cannot be understood is kept for a person to look at, never overwritten, and never keeps the
/// daemon from starting.
pub(crate) fn load(directory: &Path) -> io::Result<Found> {
    let path = directory.join(FILE);
    let (what, copy) = match read(&path)? {
        Some(Ok(state)) => return Ok(Found::Whole(state)),
        Some(Err(why)) => {
            let aside = set_aside(&path, directory)?;
            let (path, aside) = (path.display(), aside.display());
            let what = format!("the state file {path} could not be read ({why}); it is kept as {aside}");
            (what, read(&directory.join(COPY)))
        }
        None => match read(&directory.join(COPY)) {
            Ok(Some(copy)) => (format!("the state file {} is gone", path.display()), Ok(Some(copy))),
            _ => return Ok(Found::Whole(State::new(0, Vec::new()))),
        },
    };
    Ok(match copy {
        Ok(Some(Ok(state))) => {
            Found::Copy(state, format!("{what}, and its copy has been used: check the disk"))
        }
        _ => Found::Nothing(format!("{what}, and the node starts without it")),
    })
}

/// Nothing if there is no such file.
fn read(path: &Path) -> io::Result<Option<Result<State, String>>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(text) => Ok(Some(State::parse(&text))),
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

    fn kept(state: &State) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        save(state, directory.path()).unwrap();
        directory
    }

    #[test]
    fn what_is_saved_is_found() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(load(directory.path()).unwrap(), Found::Whole(State::new(0, Vec::new())));
        save(&state(), directory.path()).unwrap();
        assert_eq!(load(directory.path()).unwrap(), Found::Whole(state()));
        // The state, its copy, and the reserve of the disk.
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn torn_at_any_byte_the_copy_is_used_and_the_rest_kept_for_a_person() {
        let text = state().text().unwrap();
        // What lacks nothing but the end of its last line is whole.
        for length in 0..text.len() - 1 {
            let directory = kept(&state());
            fs::write(directory.path().join(FILE), &text[..length]).unwrap();
            let Found::Copy(found, note) = load(directory.path()).unwrap() else {
                panic!("the first {length} bytes were believed")
            };
            assert_eq!(found, state(), "{length}");
            assert!(note.contains("state.json.corrupt-1") && note.contains("check the disk"), "{note}");
            assert_eq!(fs::read(directory.path().join("state.json.corrupt-1")).unwrap(), text[..length]);
            save(&found, directory.path()).unwrap();
            assert_eq!(load(directory.path()).unwrap(), Found::Whole(state()));
        }
    }

    #[test]
    fn torn_at_any_byte_with_its_copy_it_is_said_that_there_is_nothing() {
        let text = state().text().unwrap();
        for length in 0..text.len() - 1 {
            let directory = tempfile::tempdir().unwrap();
            for name in [FILE, COPY] {
                fs::write(directory.path().join(name), &text[..length]).unwrap();
            }
            let found = load(directory.path()).unwrap();
            assert!(
                matches!(&found, Found::Nothing(note) if note.contains("without it")),
                "{length}: {found:?}"
            );
        }
    }

    #[test]
    fn a_state_that_is_gone_is_found_in_its_copy_and_a_copy_alone_is_not_believed_against_it() {
        let directory = kept(&state());
        let empty = State::new(10, Vec::new());
        fs::write(directory.path().join(FILE), empty.text().unwrap()).unwrap();
        assert_eq!(load(directory.path()).unwrap(), Found::Whole(empty));
        fs::remove_file(directory.path().join(FILE)).unwrap();
        let Found::Copy(found, note) = load(directory.path()).unwrap() else { panic!("it is forgotten") };
        assert!(found == state() && note.contains("is gone"), "{note}");
    }

    #[test]
    fn a_copy_that_cannot_be_written_is_no_reason_to_refuse() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join(COPY)).unwrap();
        save(&state(), directory.path()).unwrap();
        assert_eq!(load(directory.path()).unwrap(), Found::Whole(state()));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_set_aside_each_time_under_another_name() {
        let directory = tempfile::tempdir().unwrap();
        let newer = r#"{"version": 99, "generation": 0, "slices": []}"#;
        for (text, name) in [("{ not json", "state.json.corrupt-1"), (newer, "state.json.corrupt-2")] {
            fs::write(directory.path().join(FILE), text).unwrap();
            let Found::Nothing(note) = load(directory.path()).unwrap() else { panic!("{text} was believed") };
            assert!(note.contains(name), "{note}");
            assert_eq!(fs::read_to_string(directory.path().join(name)).unwrap(), text);
            assert!(!directory.path().join(FILE).exists());
        }
    }
}
