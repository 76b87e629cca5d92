//! Names of projects and jobs: words that can stand in a slice's name, a folder and a label.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text that names no project or job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadWord {
    text: String,
    what: &'static str,
    most: usize,
}

impl fmt::Display for BadWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, what, most } = self;
        write!(f, "{text:?} cannot name a {what}: use 1 to {most} of a-z, 0-9 and '-', ")?;
        f.write_str("beginning and ending with a letter or digit")
    }
}

impl core::error::Error for BadWord {}

fn word(text: &str, what: &'static str, most: usize) -> Result<String, BadWord> {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let good = (1..=most).contains(&bytes.len())
        && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
        && bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain);
    if good { Ok(text.to_string()) } else { Err(BadWord { text: text.to_string(), what, most }) }
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident: $what:literal of at most $most:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = BadWord;

            fn from_str(text: &str) -> Result<Self, BadWord> {
                word(text, $what, $most).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadWord;

            fn try_from(text: String) -> Result<Self, BadWord> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    )*};
}

words! {
    /// A project's name. With a job's and a member's number it makes a slice's name, of at most 63.
    ProjectName: "project" of at most 24;
    /// A job's name, unique in its project.
    JobName: "job" of at most 31;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_it_cannot_be() {
        assert_eq!("team-a".parse::<ProjectName>().unwrap().as_str(), "team-a");
        for text in ["", "-a", "a-", "A", "a.b", "a_b", "a/b", "a234567890123456789012345"] {
            let refused = text.parse::<ProjectName>().unwrap_err().to_string();
            assert!(refused.contains("project") && refused.contains("24"), "{refused}");
        }
        assert!("a-name-of-thirty-two-characters-".parse::<JobName>().is_err());
    }
}
