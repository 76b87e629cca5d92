//! Text of a bounded width on a terminal. It is visible already: each letter takes a known number of columns.

use tranche_domain::text::is_plain;
use unicode_width::UnicodeWidthChar;

const DOTS: &str = "...";

/// Columns that the text takes.
pub(crate) fn width(text: &str) -> usize {
    if is_plain(text) { text.len() } else { text.chars().map(of_letter).sum() }
}

/// Columns of a letter; letters of East Asia and pictures take two.
fn of_letter(letter: char) -> usize {
    letter.width().unwrap_or(0)
}

/// The text in at most `most` columns; dots mark a cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let dots = &DOTS[..DOTS.len().min(most)];
    let start = split(text, most - dots.len()).0;
    format!("{start}{dots}")
}

/// The text in two parts, the first of which takes at most `most` columns.
pub(crate) fn split(text: &str, most: usize) -> (&str, &str) {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, letter)| {
        taken += of_letter(*letter);
        taken > most
    });
    text.split_at(end.map_or(text.len(), |(at, _)| at))
}

/// The words of the text in lines of at most `most` columns. Words that are longer are divided.
pub(crate) fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut taken = 0;
    for word in text.split(' ') {
        let wide = width(word);
        let is_first = lines.last().is_some_and(String::is_empty);
        if !is_first && taken + 1 + wide > most {
            lines.push(String::new());
            taken = 0;
        } else if !is_first {
            taken += 1;
            push(&mut lines, " ");
        }
        let mut rest = word;
        while taken + width(rest) > most {
            let (start, end) = split(rest, most);
            if start.is_empty() {
                break; // a letter of two columns where there is one
            }
            push(&mut lines, start);
            lines.push(String::new());
            rest = end;
        }
        push(&mut lines, rest);
        taken += width(rest);
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// A field of CSV, in quotes where it needs them.
pub(crate) fn quoted(field: &str) -> String {
    if field.contains([',', '"']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}

fn push(lines: &mut [String], text: &str) {
    if let Some(line) = lines.last_mut() {
        line.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_is_marked_and_counts_columns() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc...");
        assert_eq!(cut("学習学習", 7), "学習...");
        assert_eq!(cut("学習学習", 6), "学...");
        assert_eq!(cut("abc", 2), "..");
    }

    #[test]
    fn words_are_wrapped_and_long_ones_divided() {
        assert_eq!(wrap("a bc d", 4), ["a bc", "d"]);
        assert_eq!(wrap("abcdefgh i", 3), ["abc", "def", "gh", "i"]);
        assert_eq!(wrap("学習学習", 5), ["学習", "学習"]);
        assert_eq!(wrap("", 5), [""; 0]);
    }
}
