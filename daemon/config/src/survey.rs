//! Collection of all errors of a file, not only the first.
//!
//! A parser stops at the first invalid value. Each top-level key is therefore also parsed by itself, from the
//! text with all other keys blanked, which preserves line numbers.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Error};

use crate::keys::Keys;

/// The valid part of a file, with all of its errors.
#[derive(Clone, Debug)]
pub struct Survey<T> {
    /// Value without the invalid parts.
    pub value: T,
    /// Line of each top-level key, from 1.
    pub lines: BTreeMap<String, usize>,
    /// All errors; empty if the file is valid.
    pub faults: Vec<String>,
}

/// A top-level key with its value.
struct TopLevelKey {
    key: String,
    span: Range<usize>,
    line: usize,
    is_table: bool,
}

/// Parses as much as possible; fails with the error of a text of which nothing is valid.
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
        // The fault is inside a table, or a key is missing; an unknown key may be the cause and is reported
        // first.
        Err(error) => {
            faults.push(said(error));
            Err(list(&faults).trim_start().to_owned())
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

/// Error of one key by itself, unless it is about the missing others.
fn fault<T: DeserializeOwned>(text: &str, keys: &Keys, entry: &TopLevelKey) -> Option<Error> {
    if entry.is_table {
        return None;
    }
    let (before, after) = (0..entry.span.start, entry.span.end..text.len());
    let error = read::<T>(&blank(text, [&before, &after].into_iter()), keys).0.err()?;
    let within =
        error.span().is_some_and(|span| entry.span.start <= span.start && span.end <= entry.span.end);
    within.then_some(error)
}

fn entries(text: &str) -> Result<Vec<TopLevelKey>, Error> {
    let table = DeTable::parse(text)?.into_inner();
    let entry = |(key, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
        let span = key.span().start..value.span().end;
        let before = text.get(..span.start).unwrap_or_default();
        let is_table = value.get_ref().is_table() || before.trim_end().ends_with('[');
        TopLevelKey { key: key.get_ref().to_string(), span, line: before.matches('\n').count() + 1, is_table }
    };
    Ok(table.iter().map(entry).collect())
}

/// The text with these ranges blanked; line numbers are preserved.
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

/// One error on the same line, several below each other.
pub(crate) fn list(faults: &[String]) -> String {
    match faults {
        [fault] => format!(" {fault}"),
        faults => {
            faults.iter().map(|fault| format!("\n- {}", fault.trim_end().replace('\n', "\n  "))).collect()
        }
    }
}

fn said(error: Error) -> String {
    error.to_string().trim_end().to_owned()
}
