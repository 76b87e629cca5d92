//! Configuration files as every program of ours reads them: TOML, with what is wrong said where it is.
//!
//! Law: a misspelt key never passes for one that was left out. It is refused, and the nearest known one named. Which
//! keys are known is asked of the type that is read, so there is no second list of them.
#![forbid(unsafe_code)]

mod keys;

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
    #[error("the configuration {} is not valid: {cause}", .path.display())]
    Syntax { path: PathBuf, cause: Box<toml::de::Error> },
    #[error("the configuration {} has keys that are not known: {}", .path.display(), .keys.join("; "))]
    UnknownKeys { path: PathBuf, keys: Vec<String> },
}

/// Reads a file.
///
/// # Errors
/// If it cannot be read or understood, or has a key that is not known.
pub fn read<T: DeserializeOwned>(path: &Path, keys: &Keys) -> Result<T, FileError> {
    let text = std::fs::read_to_string(path);
    parse(&text.map_err(|cause| FileError::Read { path: path.to_owned(), cause })?, path, keys)
}

/// Reads the content of a file; `path` is what messages call it.
///
/// # Errors
/// As [`read`].
pub fn parse<T: DeserializeOwned>(text: &str, path: &Path, keys: &Keys) -> Result<T, FileError> {
    let syntax = |cause| FileError::Syntax { path: path.to_owned(), cause: Box::new(cause) };
    let mut unknown = Vec::new();
    let document = toml::Deserializer::parse(text).map_err(syntax)?;
    let read = serde_ignored::deserialize(document, |key| unknown.push(keys.hint(&key.to_string())));
    // Said first: what is missing or of the wrong kind often follows from it.
    match unknown {
        keys if keys.is_empty() => read.map_err(syntax),
        keys => Err(FileError::UnknownKeys { path: path.to_owned(), keys }),
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
