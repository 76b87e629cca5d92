//! Standard output, which may be a closed pipe.

use std::io::{self, Write};

use serde::Serialize;
use tranche_domain::text::{is_visible, visible};

use crate::errors::Failure;
use crate::table::Page;

/// Prints `text` with a final newline; invisible characters are escaped.
pub fn print(text: &str) -> Result<(), Failure> {
    print_after("", text)
}

/// Like [`print()`], after a terminal control sequence.
pub fn print_after(control: &str, text: &str) -> Result<(), Failure> {
    write(&format!("{control}{}", visible_lines(text)))
}

/// Prints lines as they are, apart from invisible characters; nothing if there are none.
pub fn print_whole(text: &str) -> Result<(), Failure> {
    if text.is_empty() { Ok(()) } else { print(text) }
}

/// Prints a page, after a terminal control sequence.
pub fn page_after(control: &str, page: &Page) -> Result<(), Failure> {
    write(&format!("{control}{}", page.text()))
}

/// Prints a page on standard output.
pub fn page(page: &Page) -> Result<(), Failure> {
    page_after("", page)
}

/// Escapes each line of a text.
pub fn visible_lines(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

/// The failure of the only one of several attempts that failed; if more did, prints each.
pub fn failures(mut failed: Vec<Failure>) -> Result<(), Failure> {
    match failed.len() {
        0 => Ok(()),
        1 => Err(failed.remove(0)),
        several => {
            failed.iter().for_each(|failure| eprintln!("tranche: {}", visible_lines(&failure.to_string())));
            Err(Failure::Partly(several))
        }
    }
}

fn write(text: &str) -> Result<(), Failure> {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes()));
    written.and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Prints `value` as indented JSON.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    write(&as_json(value)?)
}

/// Prints `value` as JSON on one line.
pub fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    write(&escaped(serde_json::to_string(value).map_err(|error| Failure::Output(error.into()))?))
}

/// `value` as indented JSON.
pub fn as_json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map(escaped).map_err(|error| Failure::Output(error.into()))
}

/// Escapes invisible characters in JSON as `\u` sequences; they occur in strings only.
fn escaped(json: String) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter == '\n' || is_visible(letter) {
            text.push(letter);
        } else {
            letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_exact_and_is_visible() {
        let text = "\u{1b}[2J\n\u{202e}\u{e0041}\u{7f}ä\\";
        let json = as_json(&[text]).unwrap();
        assert!(json.chars().all(|letter| letter == '\n' || is_visible(letter)), "{json:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [text]);
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(visible_lines("a\n\tb\n"), "a\n\\tb\n");
    }
}
