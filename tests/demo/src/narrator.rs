//! Output of the demonstration's progress.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

/// Prints steps and their results with timestamps.
#[derive(Debug)]
pub(crate) struct Narrator {
    begun: Instant,
    bold: bool,
}

impl Narrator {
    /// Starts the clock that the headings show.
    pub(crate) fn new() -> Self {
        let bold = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { begun: Instant::now(), bold }
    }

    /// Prints a heading with the time since the start.
    pub(crate) fn step(&self, text: &str) {
        let text = format!("[{:5.1} s] {text}", self.begun.elapsed().as_secs_f64());
        if self.bold { say(&format!("\n\x1b[1m{text}\x1b[0m")) } else { say(&format!("\n{text}")) }
    }

    /// Prints a line below the heading.
    pub(crate) fn line(&self, text: &str) {
        say(&format!("          {text}"));
    }

    /// Prints the output of another program, verbatim.
    pub(crate) fn quote(&self, text: &str) {
        say(text.trim_end());
    }
}

/// Prints; a closed pipe does not stop the demonstration, since the report is still written.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
