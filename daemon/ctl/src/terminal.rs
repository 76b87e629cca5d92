//! The terminal at standard output: its width, and whether it takes colours.

use std::env;
use std::ffi::OsStr;
use std::io::{IsTerminal, stdout};

/// Least width that is respected, in columns. No table can be read in less.
const LEAST: usize = 20;

/// Bounds of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canvas {
    /// Width in columns; `None` is unlimited.
    pub width: Option<usize>,
    /// True if words may be coloured.
    pub colours: bool,
}

impl Canvas {
    /// The canvas of pipes and files: whole text without colours.
    pub const PLAIN: Self = Self { width: None, colours: false };

    /// The canvas of standard output.
    /// Its width is that of the terminal, else `COLUMNS`, else unlimited.
    pub fn of_stdout() -> Self {
        let window = rustix::termios::tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col));
        let columns = env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
        let no_color = env::var_os("NO_COLOR");
        Self {
            width: width(window, columns),
            colours: takes_colours(
                stdout().is_terminal(),
                no_color.as_deref(),
                env::var_os("TERM").as_deref(),
            ),
        }
    }
}

fn width(window: Option<usize>, columns: Option<usize>) -> Option<usize> {
    let known = |width: &usize| *width > 0;
    window.filter(known).or(columns.filter(known)).map(|width| width.max(LEAST))
}

fn takes_colours(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty) && term != Some(OsStr::new("dumb"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_precedes_variable_and_both_may_be_unknown() {
        assert_eq!(width(Some(80), Some(200)), Some(80));
        assert_eq!(width(Some(0), Some(200)), Some(200), "a terminal without a size");
        assert_eq!(width(None, Some(3)), Some(LEAST));
        assert_eq!(width(None, None), None);
    }

    #[test]
    fn colours_are_for_terminals_whose_user_wants_them() {
        let one = Some(OsStr::new("1"));
        assert!(takes_colours(true, None, None) && takes_colours(true, Some(OsStr::new("")), None));
        assert!(!takes_colours(true, one, None) && !takes_colours(false, None, None));
        assert!(!takes_colours(true, None, Some(OsStr::new("dumb"))));
    }
}
