//! An interface that other releases rely on, as lines of `what = how`, and comparisons of two of these.

use std::collections::BTreeMap;
use std::fmt;

/// The lines, by their part before the equals sign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description(BTreeMap<String, String>);

/// Difference by which the second of two descriptions breaks the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breach {
    /// The line is missing.
    Gone {
        /// First part of the line.
        what: String,
        /// Form in the earlier release.
        was: String,
    },
    /// The line has another place in the same thing.
    Moved {
        /// First part of the line.
        what: String,
        /// First part of the line now.
        to: String,
        /// Earlier and present form.
        was: String,
    },
    /// The line exists, with another form.
    Changed {
        /// First part of the line.
        what: String,
        /// Form in the earlier release.
        was: String,
        /// Form in this build.
        is: String,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { what, was } => write!(f, "{what} ({was}) is gone"),
            Self::Moved { what, to, was } => write!(f, "{what} ({was}) has become {to}"),
            Self::Changed { what, was, is } => write!(f, "{what} was `{was}` and is `{is}`"),
        }
    }
}

impl Description {
    /// Adds a line; panics if there is one with the same first part.
    pub fn add(&mut self, what: impl Into<String>, how: impl Into<String>) {
        let what = what.into();
        let before = self.0.insert(what.clone(), how.into());
        assert_eq!(before, None, "{what} is described twice");
    }

    /// Reads the text that [`fmt::Display`] wrote; lines that begin with `#` are comments.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut read = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (what, how) =
                line.split_once(" = ").ok_or_else(|| format!("{line:?} is not `what = how`"))?;
            if read.0.insert(what.into(), how.into()).is_some() {
                return Err(format!("{what} is there twice"));
            }
        }
        Ok(read)
    }

    /// Second part of the line with this first part.
    pub fn get(&self, what: &str) -> Option<&str> {
        self.0.get(what).map(String::as_str)
    }

    /// The lines whose first part begins with a text.
    pub fn beginning(&self, with: &str) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(what, _)| what.starts_with(with))
                .map(|(what, how)| (what.clone(), how.clone()))
                .collect(),
        )
    }

    /// True if there are no lines.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lines of this that `now` breaks.
    pub fn breaches(&self, now: &Self) -> Vec<Breach> {
        self.0.iter().filter_map(|(what, was)| self.breach(what, was, now)).collect()
    }

    fn breach(&self, what: &str, was: &str, now: &Self) -> Option<Breach> {
        let (what, was) = (what.to_string(), was.to_string());
        if now.get(&what).is_some_and(|is| keeps(&was, is)) {
            return None;
        }
        let new = |(to, how): &(&String, &String)| {
            **how == was && thing(to) == thing(&what) && !self.0.contains_key(*to)
        };
        Some(match (now.0.iter().find(new), now.get(&what)) {
            (Some((to, _)), _) => Breach::Moved { what, to: to.clone(), was },
            (None, Some(is)) => Breach::Changed { what, was, is: is.into() },
            (None, None) => Breach::Gone { what, was },
        })
    }

    /// Lines of `now` that are new, or have more than here.
    pub fn additions(&self, now: &Self) -> Vec<String> {
        let new = |(what, how): &(&String, &String)| match self.get(what) {
            None => true,
            Some(was) => was != *how && keeps(was, how),
        };
        now.0.iter().filter(new).map(|(what, how)| format!("{what} = {how}")).collect()
    }
}

/// True if each item of `was` is in `is`, which may have more: words that are changed as well.
fn keeps(was: &str, is: &str) -> bool {
    let now: Vec<_> = is.split(", ").collect();
    was.split(", ").all(|one| now.contains(&one))
}

/// First part of a line without its last word: the message of a field, the region of a word.
fn thing(what: &str) -> &str {
    what.rsplit_once(' ').map_or(what, |(thing, _)| thing)
}

/// Writes lines about the same thing in the order of their numbers, if they have any.
impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<_> = self.0.iter().collect();
        let number = |what: &str| what.rsplit_once(' ').and_then(|(_, last)| last.parse::<i64>().ok());
        lines.sort_by_key(|(what, _)| (thing(what), number(what), what.as_str()));
        lines.into_iter().try_for_each(|(what, how)| writeln!(f, "{what} = {how}"))
    }
}
