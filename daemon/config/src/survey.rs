//! Everything that is wrong with a file, not only what comes first.
//!
//! A reader stops at the first value of the wrong kind. So each key of the file is also read by itself, from a text in
//! which all others are blank: what is said of it has the right line, and the next one is looked at as well.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Error};

use crate::{Keys, Survey};

/// A key of the file itself, with its value.
struct Entry {
    key: String,
    span: Range<usize>,
    line: usize,
    is_table: bool,
}

/// Reads what can be read. The error is that of a text of which nothing can be.
pub(crate) fn survey<T: DeserializeOwned>(text: &str, keys: &Keys) -> Result<Survey<T>, String> {
    let entries = entries(text).map_err(said)?;
    let lines = || entries.iter().map(|entry| (entry.key.clone(), entry.line)).collect();
    let wrong: Vec<_> =
        entries.iter().filter_map(|entry| Some((entry, fault::<T>(text, keys, entry)?))).collect();
    let rest = blank(text, wrong.iter().map(|(entry, _)| &entry.span));
    let (read, mut faults) = read(&rest, keys);
    faults.extend(wrong.into_iter().map(|(_, error)| said(error)));
    match read {
        Ok(value) => Ok(Survey { value, lines: lines(), faults }),
        // In a table, or missing: what is unknown may be why, and is said first.
        Err(error) => {
            faults.push(said(error));
            Err(crate::list(&faults).trim_start().to_owned())
        }
    }
}

fn read<T: DeserializeOwned>(text: &str, keys: &Keys) -> (Result<T, Error>, Vec<String>) {
    let mut unknown = Vec::new();
    let document = toml::Deserializer::parse(text);
    let read = document.and_then(|document| {
        serde_ignored::deserialize(document, |key| {
            unknown.push(format!("the key {} is not known", keys.hint(&key.to_string())));
        })
    });
    (read, unknown)
}

/// What is wrong with one key by itself, if that is in it and not in what is missing.
fn fault<T: DeserializeOwned>(text: &str, keys: &Keys, entry: &Entry) -> Option<Error> {
    if entry.is_table {
        return None;
    }
    let (before, after) = (0..entry.span.start, entry.span.end..text.len());
    let error = read::<T>(&blank(text, [&before, &after].into_iter()), keys).0.err()?;
    let within =
        error.span().is_some_and(|span| entry.span.start <= span.start && span.end <= entry.span.end);
    within.then_some(error)
}

fn entries(text: &str) -> Result<Vec<Entry>, Error> {
    let table = DeTable::parse(text)?.into_inner();
    let entry = |(key, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
        let span = key.span().start..value.span().end;
        let before = text.get(..span.start).unwrap_or_default();
        let is_table = value.get_ref().is_table() || before.trim_end().ends_with('[');
        Entry { key: key.get_ref().to_string(), span, line: before.matches('\n').count() + 1, is_table }
    };
    Ok(table.iter().map(entry).collect())
}

/// The text with these places empty; what remains is on the lines where it was.
fn blank<'a>(text: &str, places: impl Iterator<Item = &'a Range<usize>>) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for place in places {
        for byte in bytes.get_mut(place.clone()).into_iter().flatten() {
            if *byte != b'\n' && *byte != b'\r' {
                *byte = b' ';
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn said(error: Error) -> String {
    error.to_string().trim_end().to_owned()
}
