//! Texts of a fixed width: cut, bars, graphs and short figures.

use tranche_domain::text::visible_within;
use tranche_domain::units::Bytes;

use crate::table::{self, split, width};

/// Most characters of a text that are considered.
const LONGEST: usize = 2000;

/// An untrusted text, escaped.
pub(super) fn plain(text: &str) -> String {
    visible_within(text, LONGEST)
}

/// An untrusted text, escaped and cut to a width; an ellipsis marks the cut.
pub(super) fn fit(text: &str, most: usize) -> String {
    let shown = plain(text);
    if width(&shown) <= most {
        return shown;
    }
    let cut = most.checked_sub(1).map(|room| format!("{}…", split(&shown, room).0));
    cut.unwrap_or_default()
}

/// Words in lines of at most this width; longer words are cut into several.
pub(super) fn wrap(text: &str, most: usize) -> Vec<String> {
    table::wrap(&plain(text), most)
}

/// A bar of eighths of a column, filled in proportion.
pub(super) fn bar(part: u64, whole: u64, columns: usize) -> String {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let most = columns as u128 * 8;
    let eighths = (u128::from(part) * most).checked_div(u128::from(whole)).unwrap_or(0).min(most) as usize;
    // Something is shown of whatever is there.
    let eighths = if part > 0 && most > 0 { eighths.max(1) } else { eighths };
    let mut text = "█".repeat(eighths / 8);
    if eighths % 8 > 0 {
        text.push(PARTS[eighths % 8]);
    }
    let rest = columns.saturating_sub(width(&text));
    text + &"·".repeat(rest)
}

/// A graph of the latest percentages in braille: two in each column, the newest at the right.
pub(super) fn graph(percent: impl DoubleEndedIterator<Item = u8>, columns: usize) -> String {
    const LEFT: [u32; 5] = [0, 0x40, 0x44, 0x46, 0x47];
    const RIGHT: [u32; 5] = [0, 0x80, 0xa0, 0xb0, 0xb8];
    let mut newest = percent.rev().map(|percent| usize::from(percent.min(100)).div_ceil(25));
    let mut letters: Vec<char> = Vec::with_capacity(columns);
    while let (true, Some(right)) = (letters.len() < columns, newest.next()) {
        let dots = RIGHT[right] | LEFT[newest.next().unwrap_or(0)];
        letters.push(if dots == 0 { ' ' } else { char::from_u32(0x2800 | dots).unwrap_or(' ') });
    }
    let missing = columns.saturating_sub(letters.len());
    " ".repeat(missing) + &letters.into_iter().rev().collect::<String>()
}

/// Memory in use of the memory there is, in GiB: `8.3/31.7Gi`.
pub(super) fn memory(part: Bytes, whole: Bytes) -> String {
    format!("{}/{}Gi", tenths(part), tenths(whole))
}

fn tenths(bytes: Bytes) -> String {
    let tenths = bytes.whole_mib().saturating_mul(10).saturating_add(512) / 1024;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// A time span in its largest units: `45s`, `12m`, `3h5m`, `2d3h`.
pub(super) fn span(ms: u64) -> String {
    let (seconds, minutes, hours, days) = (ms / 1000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, ..) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_and_hostile_text_fits_its_columns() {
        assert_eq!(fit("学習モデル", 10), "学習モデル");
        assert_eq!(fit("学習モデル", 6), "学習…");
        assert_eq!(fit("train", 0), "");
        assert_eq!(fit("\x1b[2J", 20), "\\u{1b}[2J");
        for most in 0..20 {
            for text in ["学習-e\u{301}-🦀🦀🦀-model", "\u{202e}\x07\n", &"a".repeat(9999)] {
                assert!(width(&fit(text, most)) <= most, "{text:?} in {most}");
            }
        }
    }

    #[test]
    fn words_are_wrapped_and_long_ones_cut() {
        assert_eq!(wrap("no GPU has room", 7), ["no GPU", "has", "room"]);
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
    }

    #[test]
    fn bar_is_as_wide_as_its_columns() {
        assert_eq!(bar(0, 8, 4), "····");
        assert_eq!(bar(1, 1_000_000, 4), "▏···");
        assert_eq!(bar(5, 8, 4), "██▌·");
        assert_eq!(bar(9, 8, 4), "████");
        assert_eq!(bar(9, 0, 4), "▏···");
        assert_eq!(bar(u64::MAX, u64::MAX, 2), "██");
    }

    #[test]
    fn graph_has_two_figures_in_each_column() {
        assert_eq!(graph([0, 25, 50, 100].into_iter(), 3), " ⢀⣼");
        assert_eq!(graph([0; 99].into_iter(), 3), "   ");
        assert_eq!(graph([255, 100].into_iter(), 1), "⣿");
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(memory(Bytes::mib(8500), Bytes::mib(32510)), "8.3/31.7Gi");
        let spans = [45_000, 720_000, 11_100_000, 183_600_000].map(span);
        assert_eq!(spans, ["45s", "12m", "3h5m", "2d3h"]);
    }
}
