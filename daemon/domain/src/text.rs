//! Escaping of untrusted text for display and logs.
//!
//! The result is one line of visible characters with a bounded length. Escaping is idempotent, so text is
//! escaped both on entry and on output.

use alloc::string::String;
use core::fmt::Write;

/// Maximum length of a displayed program or user name in characters.
pub const LONGEST_NAME: usize = 64;

/// Letters and symbols that render as blank.
const BLANKS: [char; 7] =
    ['\u{115f}', '\u{1160}', '\u{17b4}', '\u{17b5}', '\u{2800}', '\u{3164}', '\u{ffa0}'];

/// Tests if a character is visible and stands alone.
///
/// Control characters, line breaks, bidi controls and combining marks do not.
pub fn is_visible(letter: char) -> bool {
    // `escape_debug` escapes exactly the others, apart from quotes and the backslash.
    let plain = matches!(letter, '"' | '\'' | '\\') || letter.escape_debug().len() == 1;
    plain && !BLANKS.contains(&letter)
}

/// Tests if all characters are printable ASCII, which is visible and takes one column each.
pub fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Text with all invisible characters escaped, as `\n` or `\u{1b}`.
pub fn visible(text: &str) -> String {
    if is_plain(text) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    text.chars().for_each(|letter| push(&mut shown, letter));
    shown
}

/// Like [`visible`], of at most `most` characters; dots mark a cut.
pub fn visible_within(text: &str, most: usize) -> String {
    // Escaping never shortens text, so characters beyond these cannot be in the result.
    let start: String = text.chars().take(most.saturating_add(1)).collect();
    cut(visible(&start), most)
}

/// Like [`visible_within`], for bytes that may be invalid UTF-8, escaped as `\xff`.
pub fn visible_bytes(bytes: &[u8], most: usize) -> String {
    let start = &bytes[..bytes.len().min(most.saturating_add(1).saturating_mul(4))];
    let mut shown = String::new();
    for chunk in start.utf8_chunks() {
        chunk.valid().chars().for_each(|letter| push(&mut shown, letter));
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}"); // infallible for a String
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

    /// Characters that move cursors, forge lines, change direction or are invisible.
    const HOSTILE: &str = "\x1b[2J\x1b]0;t\x07\u{9b}31m\n\r\t\0\u{85}\u{2028}\u{2029}\u{202e}\u{2066}\u{200b}\u{200d}\u{2060}\
                           \u{feff}\u{ad}\u{61c}\u{301}\u{e0041}\u{3164}\u{fff9}\u{e000}\u{a0}";

    #[test]
    fn hostile_characters_are_escaped() {
        let shown = visible(HOSTILE);
        assert!(shown.chars().all(|letter| letter.is_ascii_graphic()), "{shown}");
        assert!(shown.starts_with("\\u{1b}[2J\\u{1b}]0;t\\u{7}\\u{9b}31m\\n\\r\\t\\0\\u{85}"), "{shown}");
    }

    #[test]
    fn visible_text_is_unchanged() {
        for text in ["", "python3 -m train", "größe", "学習", "it's \"a\\b\"", "/usr/bin/x"] {
            assert_eq!(visible(text), text);
        }
    }

    #[test]
    fn invalid_utf8_is_escaped_as_hex() {
        assert_eq!(visible_bytes(b"a\xff\n\xc3", 64), "a\\xff\\n\\xc3");
        assert_eq!(visible_bytes(&[0xff; 9999], 10), "\\xff\\xf...");
    }

    proptest! {
        #[test]
        fn any_text_becomes_one_short_visible_line(text: String, most in 3usize..80) {
            let shown = visible_within(&text, most);
            prop_assert!(shown.chars().all(is_visible));
            prop_assert!(shown.chars().count() <= most);
            prop_assert_eq!(visible_within(&shown, most), shown.clone());
            prop_assert_eq!(visible_bytes(text.as_bytes(), most), shown);
        }
    }
}
