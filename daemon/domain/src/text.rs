//! Text that another program or user chose, made fit to stand beside the daemon's own words.
//!
//! Law: what comes out is one line, shows as what it is, and has an end. Whatever is done to it twice is as if done once,
//! so that text is cleaned where it enters, and again where it leaves.

use alloc::string::String;
use core::fmt::Write;

/// The longest name of a program, in characters.
pub const LONGEST_NAME: usize = 64;

/// Characters that count as letters or symbols and show as nothing.
const BLANKS: [char; 7] =
    ['\u{115f}', '\u{1160}', '\u{17b4}', '\u{17b5}', '\u{2800}', '\u{3164}', '\u{ffa0}'];

/// Whether a character shows as itself, on its own and where it stands: no control character, no line break, nothing that
/// turns the direction of writing, joins others or is not seen.
pub fn is_visible(letter: char) -> bool {
    // What Rust escapes in texts, but for quotation marks and the backslash.
    let plain = matches!(letter, '"' | '\'' | '\\') || letter.escape_debug().len() == 1;
    plain && !BLANKS.contains(&letter)
}

/// A text with everything escaped that does not show as itself: `\n`, `\u{1b}`.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    text.chars().for_each(|letter| push(&mut shown, letter));
    shown
}

/// The same of at most so many characters; dots stand for the rest.
pub fn visible_within(text: &str, most: usize) -> String {
    // No character is shown as less than one, so what is beyond these does not matter.
    let start: String = text.chars().take(most.saturating_add(1)).collect();
    cut(visible(&start), most)
}

/// The same of bytes that may be no text: `\xff`.
pub fn visible_bytes(bytes: &[u8], most: usize) -> String {
    let start = &bytes[..bytes.len().min(most.saturating_add(1).saturating_mul(4))];
    let mut shown = String::new();
    for chunk in start.utf8_chunks() {
        chunk.valid().chars().for_each(|letter| push(&mut shown, letter));
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}"); // a string takes everything
        }
    }
    cut(shown, most)
}

fn push(shown: &mut String, letter: char) {
    if is_visible(letter) {
        shown.push(letter);
    } else if matches!(letter, '\n' | '\r' | '\t' | '\0') {
        shown.extend(letter.escape_debug());
    } else {
        shown.extend(letter.escape_unicode());
    }
}

fn cut(mut shown: String, most: usize) -> String {
    const DOTS: &str = "...";
    if shown.chars().nth(most).is_some() {
        let end = shown.char_indices().nth(most.saturating_sub(DOTS.len())).map_or(0, |(at, _)| at);
        shown.truncate(end);
        shown.push_str(DOTS);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What has moved cursors, forged lines, turned the direction of writing, or was not seen.
    const HOSTILE: &str = "\x1b[2J\x1b]0;t\x07\u{9b}31m\n\r\t\0\u{85}\u{2028}\u{2029}\u{202e}\u{2066}\u{200b}\u{200d}\u{2060}\
                           \u{feff}\u{ad}\u{61c}\u{301}\u{e0041}\u{3164}\u{fff9}\u{e000}\u{a0}";

    #[test]
    fn hostile_characters_are_escaped() {
        let shown = visible(HOSTILE);
        assert!(shown.chars().all(|letter| letter.is_ascii_graphic()), "{shown}");
        assert!(shown.starts_with("\\u{1b}[2J\\u{1b}]0;t\\u{7}\\u{9b}31m\\n\\r\\t\\0\\u{85}"), "{shown}");
    }

    #[test]
    fn ordinary_text_is_left_as_it_is() {
        for text in ["", "python3 -m train", "größe", "学習", "it's \"a\\b\"", "/usr/bin/x"] {
            assert_eq!(visible(text), text);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_numbers() {
        assert_eq!(visible_bytes(b"a\xff\n\xc3", 64), "a\\xff\\n\\xc3");
        assert_eq!(visible_bytes(&[0xff; 9999], 10), "\\xff\\xf...");
    }

    proptest! {
        #[test]
        fn any_text_comes_out_as_one_short_visible_line(text: String, most in 3usize..80) {
            let shown = visible_within(&text, most);
            prop_assert!(shown.chars().all(is_visible));
            prop_assert!(shown.chars().count() <= most);
            prop_assert_eq!(visible_within(&shown, most), shown.clone());
            prop_assert_eq!(visible_bytes(text.as_bytes(), most), shown);
        }
    }
}
