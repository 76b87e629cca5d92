//! Something that others rely on, as lines of `what = how`, and what two of these have in common.

use std::collections::BTreeMap;
use std::fmt;

/// The lines, by what they are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description(BTreeMap<String, String>);

/// What somebody who relies on the first of two descriptions does not find in the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breach {
    /// It is not there any more.
    Gone {
        /// What.
        what: String,
        /// Form in the earlier release.
        was: String,
    },
    /// It is elsewhere in the same thing.
    Moved {
        /// What.
        what: String,
        /// What it is now.
        to: String,
        /// Earlier and present form.
        was: String,
    },
    /// It is there, and otherwise.
    Changed {
        /// What.
        what: String,
        /// Earlier form.
        was: String,
        /// Present form.
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
    /// Adds a line. Two about the same are a mistake of whoever describes.
    pub fn add(&mut self, what: impl Into<String>, how: impl Into<String>) {
        let what = what.into();
        let before = self.0.insert(what.clone(), how.into());
        assert_eq!(before, None, "{what} is described twice");
    }

    /// Reads what [`fmt::Display`] wrote; lines that begin with `#` are for people.
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

    /// What is said of something.
    pub fn get(&self, what: &str) -> Option<&str> {
        self.0.get(what).map(String::as_str)
    }

    /// The lines whose first part begins so.
    pub fn beginning(&self, with: &str) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(what, _)| what.starts_with(with))
                .map(|(what, how)| (what.clone(), how.clone()))
                .collect(),
        )
    }

    /// Tests if nothing is said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What of this is not so in `now`.
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

    /// What is so in `now` and was not said here.
    pub fn additions(&self, now: &Self) -> Vec<String> {
        let new = |(what, how): &(&String, &String)| match self.get(what) {
            None => true,
            Some(was) => was != *how && keeps(was, how),
        };
        now.0.iter().filter(new).map(|(what, how)| format!("{what} = {how}")).collect()
    }
}

/// Tests if all that was said is still said, perhaps with more behind it: words that are changed as well.
fn keeps(was: &str, is: &str) -> bool {
    let now: Vec<_> = is.split(", ").collect();
    was.split(", ").all(|one| now.contains(&one))
}

/// What a line is about, without its last word: the message of a field, the region of a word.
fn thing(what: &str) -> &str {
    what.rsplit_once(' ').map_or(what, |(thing, _)| thing)
}

/// In the order of their numbers, where lines about the same thing have some.
impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<_> = self.0.iter().collect();
        let number = |what: &str| what.rsplit_once(' ').and_then(|(_, last)| last.parse::<i64>().ok());
        lines.sort_by_key(|(what, _)| (thing(what), number(what), what.as_str()));
        lines.into_iter().try_for_each(|(what, how)| writeln!(f, "{what} = {how}"))
    }
}
