//! Validated text types, each with a rule of its own.

use alloc::string::String;

/// Error for a text that violates the rule of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what}: use {rule}")]
pub struct BadWord {
    /// The text, cut to the maximum length of any rule.
    text: String,
    what: &'static str,
    rule: &'static str,
}

/// Maximum length that any rule permits, in bytes.
const LONGEST: usize = 253;

impl BadWord {
    pub(crate) fn new(text: &str, what: &'static str, rule: &'static str) -> Self {
        Self { text: text.chars().take(LONGEST).collect(), what, rule }
    }
}

/// Defines a validated text type: documentation, name, description, rule as text, predicate.
macro_rules! word {
    ($(#[$about:meta])* $name:ident, $what:literal, $rule:literal, $good:expr) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "alloc::string::String", into = "alloc::string::String")]
        pub struct $name(alloc::string::String);

        impl $name {
            /// The word as it was written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl core::str::FromStr for $name {
            type Err = $crate::word::BadWord;

            fn from_str(text: &str) -> Result<Self, $crate::word::BadWord> {
                let good: fn(&str) -> bool = $good;
                if good(text) { Ok(Self(text.into())) } else { Err($crate::word::BadWord::new(text, $what, $rule)) }
            }
        }

        $crate::word::as_text!($name, $crate::word::BadWord);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

/// Converts a type to its text and back, as serde does by `try_from` and `into`.
///
/// The arguments are the type and the error of parsing.
macro_rules! as_text {
    ($name:ident, $error:ty) => {
        impl TryFrom<alloc::string::String> for $name {
            type Error = $error;

            fn try_from(text: alloc::string::String) -> Result<Self, $error> {
                text.parse()
            }
        }

        impl From<$name> for alloc::string::String {
            fn from(name: $name) -> Self {
                alloc::string::ToString::to_string(&name)
            }
        }
    };
}

/// Defines an enumeration whose members each have a name: `ALL` of them, `as_str` and `Display`.
macro_rules! named {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$doc:meta])* $member:ident = $text:literal,)* }) => {
        $(#[$about])*
        pub enum $name { $($(#[$doc])* $member,)* }

        impl $name {
            /// Every member, in the order of their definition.
            pub const ALL: &[Self] = &[$(Self::$member),*];

            /// Name in lists and messages, which never changes.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$member => $text,)* }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

/// Defines an enumeration of stable names that other versions may extend, read and written as text.
macro_rules! extensible {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$doc:meta])* $member:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(from = "alloc::string::String", into = "alloc::string::String")]
        pub enum $name {
            $($(#[$doc])* $member,)*
            /// A name that another version defines.
            Other(alloc::string::String),
        }

        impl $name {
            /// All that this version defines.
            pub const KNOWN: &[Self] = &[$(Self::$member),*];

            /// Name in JSON, metrics and filters, which never changes.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$member => $text,)*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<alloc::string::String> for $name {
            fn from(text: alloc::string::String) -> Self {
                match text.as_str() {
                    $($text => Self::$member,)*
                    _ => Self::Other(text),
                }
            }
        }

        impl From<$name> for alloc::string::String {
            fn from(name: $name) -> Self {
                name.as_str().into()
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

pub(crate) use {as_text, extensible, named, word};

/// Tests if the text is a DNS label: [`is_part`] and at most 63 bytes.
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Tests if the text is a DNS name of at most this many bytes: parts, [`is_part`], joined by points.
pub fn is_subdomain(text: &str, longest: usize) -> bool {
    text.len() <= longest && text.split('.').all(is_part)
}

/// Tests if the text consists of `a-z 0-9 -` and begins and ends with a letter or digit.
pub fn is_part(text: &str) -> bool {
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.iter().all(|b| plain(b) || *b == b'-')
        && bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
}
