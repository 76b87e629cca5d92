//! The standard output, which may be a pipe that nobody reads any more.

use std::io::{self, Write};

use serde::Serialize;

use crate::errors::Failure;

/// Writes `text` and a line's end where it has none.
pub fn print(text: &str) -> Result<(), Failure> {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes()));
    written.and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Writes `value` as JSON that a person can read too.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    print(&as_json(value)?)
}

/// Writes `value` as JSON on a line of its own.
pub fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    print(&serde_json::to_string(value).map_err(|error| Failure::Output(error.into()))?)
}

/// `value` as JSON that a person can read too.
pub fn as_json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(|error| Failure::Output(error.into()))
}
