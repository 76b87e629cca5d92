//! Configuration files in TOML, with errors that name file and line.
//!
//! Law: an unknown key is an error with the most similar known key as a suggestion, never ignored. The known
//! keys come from the target type, so there is no second list of them.
#![forbid(unsafe_code)]

mod keys;
mod survey;

use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use survey::list;

pub use keys::Keys;
pub use survey::Survey;

/// Reason for rejecting a file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum FileError {
    #[error("cannot read the configuration {}: {cause}; is its name right, and may this program read it?", .path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("the configuration {} is not valid:{}", .path.display(), list(.faults))]
    Invalid { path: PathBuf, faults: Vec<String> },
}

/// Reads a file.
///
/// # Errors
/// If the file is unreadable or invalid, or has an unknown key.
pub fn read<T: DeserializeOwned>(path: &Path, keys: &Keys) -> Result<T, FileError> {
    parse(&text(path)?, path, keys)
}

/// Reads a file and collects all of its errors, if it is TOML at all.
///
/// # Errors
/// If the file is unreadable, or nothing in it is valid.
pub fn survey<T: DeserializeOwned>(path: &Path, keys: &Keys) -> Result<Survey<T>, FileError> {
    survey::survey(&text(path)?, keys).map_err(|fault| invalid(path, vec![fault]))
}

fn text(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(|cause| FileError::Read { path: path.to_owned(), cause })
}

fn invalid(path: &Path, faults: Vec<String>) -> FileError {
    FileError::Invalid { path: path.to_owned(), faults }
}

/// Parses the content of a file; `path` is for messages.
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
    fn absent_keys_have_defaults() {
        assert_eq!(read("").unwrap(), File::default());
        let file = read("size = 3\n[[shelf]]\nwidth = 4").unwrap();
        assert_eq!(file, File { size: 3, shelf: vec![Shelf { width: 4 }], ..File::default() });
    }

    #[test]
    fn unknown_key_error_suggests_key_of_its_table() {
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
    fn invalid_toml_error_has_its_position() {
        let refused = read("\nsize = 'large'").unwrap_err().to_string();
        assert!(refused.contains("t.toml") && refused.contains("line 2"), "{refused}");
    }

    #[test]
    fn survey_reports_all_errors_and_valid_keys() {
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
    fn errors_inside_tables_are_reported() {
        let refused = read("size = 1\n[[shelf]]\nwidth = 'w'").unwrap_err().to_string();
        assert!(refused.contains("line 3"), "{refused}");
    }

    #[test]
    fn missing_file_error_names_the_path() {
        let path = Path::new("/nowhere/t.toml");
        let refused = super::read::<File>(path, &Keys::of::<File>()).unwrap_err().to_string();
        assert!(refused.contains("/nowhere/t.toml"), "{refused}");
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text: String) {
            let _ = read(&text);
        }
    }
}
