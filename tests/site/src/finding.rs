//! Faults that a build of the site finds.

use std::fmt;
use std::path::PathBuf;

/// A fault of the documentation that readers of the site would meet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// A warning or an error of mdBook.
    Warning(String),
    /// A page of `docs/` that `SUMMARY.md` lacks.
    Unlisted(PathBuf),
    /// A link of a page of the site to a file or an anchor that is not there.
    Dead {
        /// The page, relative to the site.
        page: PathBuf,
        /// The link as it stands there.
        target: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Warning(text) => write!(f, "mdBook: {text}"),
            Self::Unlisted(page) => write!(f, "docs/SUMMARY.md lacks {}", page.display()),
            Self::Dead { page, target } => write!(f, "{}: {target} leads nowhere", page.display()),
        }
    }
}
