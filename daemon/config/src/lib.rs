//! Configuration files as every program of ours reads them: TOML, with what is wrong said where it is.
//!
//! Law: a misspelt key never passes for one that was left out. It is refused, and the nearest known one named. Which
//! keys are known is asked of the type that is read, so there is no second list of them.
#![forbid(unsafe_code)]

mod keys;
mod survey;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

pub use keys::Keys;

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum FileError {
    #[error("cannot read the configuration {}: {cause}; is its name right, and may this program read it?", .path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("the configuration {} is not valid:{}", .path.display(), list(.faults))]
    Invalid { path: PathBuf, faults: Vec<String> },
}

/// What a file says, as far as it makes sense, and everything that is wrong with it.
#[derive(Clone, Debug)]
pub struct Survey<T> {
    /// What is said, with what is wrong left out.
    pub value: T,
    /// The lines, from 1, at which keys of the file itself are.
    pub lines: BTreeMap<String, usize>,
    /// Everything that is wrong; nothing if the file can be used.
    pub faults: Vec<String>,
}

/// One on the same line, several below each other.
fn list(faults: &[String]) -> String {
    match faults {
        [fault] => format!(" {fault}"),
        faults => {
            faults.iter().map(|fault| format!("\n- {}", fault.trim_end().replace('\n', "\n  "))).collect()
        }
    }
}

/// Reads a file.
///
/// # Errors
/// If it cannot be read or understood, or has a key that is not known.
pub fn read<T: DeserializeOwned>(path: &Path, keys: &Keys) -> Result<T, FileError> {
    parse(&text(path)?, path, keys)
}

/// Reads a file and finds everything that is wrong with it, if it is TOML at all.
///
/// # Errors
/// If it cannot be read, or nothing in it can be understood.
pub fn survey<T: DeserializeOwned>(path: &Path, keys: &Keys) -> Result<Survey<T>, FileError> {
    survey::survey(&text(path)?, keys).map_err(|fault| invalid(path, vec![fault]))
}

fn text(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(|cause| FileError::Read { path: path.to_owned(), cause })
}

fn invalid(path: &Path, faults: Vec<String>) -> FileError {
    FileError::Invalid { path: path.to_owned(), faults }
}

/// Reads the content of a file; `path` is what messages call it.
///
/// # Errors
/// As [`read`].
pub fn parse<T: DeserializeOwned>(text: &str, path: &Path, keys: &Keys) -> Result<T, FileError> {
    match survey::survey(text, keys) {
        Ok(Survey { value, faults, .. }) if faults.is_empty() => Ok(value),
        Ok(Survey { faults, .. }) => Err(invalid(path, faults)),
        Err(fault) => Err(invalid(path, vec![fault])),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct File {
        colour: Option<String>,
        size: u32,
        shelf: Vec<Shelf>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Shelf {
        width: u32,
    }

    fn read(text: &str) -> Result<File, FileError> {
        parse(text, Path::new("t.toml"), &Keys::of::<File>().and::<Shelf>("shelf"))
    }

    #[test]
    fn what_is_known_is_read_and_the_rest_is_the_default() {
        assert_eq!(read("").unwrap(), File::default());
        let file = read("size = 3\n[[shelf]]\nwidth = 4").unwrap();
        assert_eq!(file, File { size: 3, shelf: vec![Shelf { width: 4 }], ..File::default() });
    }

    #[test]
    fn a_key_that_is_not_known_is_refused_with_the_nearest_of_its_table() {
        for (text, said) in [
            ("color = 'red'", "`color` (did you mean `colour`?)"),
            ("[[shelf]]\nwidth = 1\nwidht = 2", "`shelf.0.widht` (did you mean `width`?)"),
            ("[[shelf]]\nwitdh = 1", "`shelf.0.witdh` (did you mean `width`?)"),
            ("[quux]\na = 1", "`quux` (known are colour, size, shelf)"),
        ] {
            let refused = read(text).unwrap_err().to_string();
            assert!(refused.contains("t.toml") && refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        let refused = read("\nsize = 'large'").unwrap_err().to_string();
        assert!(refused.contains("t.toml") && refused.contains("line 2"), "{refused}");
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once_and_the_rest_is_still_read() {
        let text = "size = 'large'\ncolor = 'red'\ncolour = 3 # none\n[[shelf]]\nwidth = 4\nwidht = 5";
        let refused = read(text).unwrap_err().to_string();
        for said in ["line 1", "line 3", "did you mean `colour`?", "did you mean `width`?"] {
            assert!(refused.contains(said), "{said}: {refused}");
        }
        let keys = Keys::of::<File>().and::<Shelf>("shelf");
        let survey = survey::survey::<File>(text, &keys).unwrap();
        assert_eq!(survey.value, File { shelf: vec![Shelf { width: 4 }], ..File::default() });
        assert_eq!(survey.faults.len(), 4, "{:?}", survey.faults);
        assert_eq!((survey.lines["size"], survey.lines["colour"]), (1, 3));
    }

    #[test]
    fn what_is_wrong_inside_a_table_is_said_too() {
        let refused = read("size = 1\n[[shelf]]\nwidth = 'w'").unwrap_err().to_string();
        assert!(refused.contains("line 3"), "{refused}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let path = Path::new("/nowhere/t.toml");
        let refused = super::read::<File>(path, &Keys::of::<File>()).unwrap_err().to_string();
        assert!(refused.contains("/nowhere/t.toml"), "{refused}");
    }

    proptest! {
        #[test]
        fn reading_never_panics(text: String) {
            let _ = read(&text);
        }
    }
}
