//! Places of columns on a line of any width.

use super::sheet::{Strip, Tone};
use super::text;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScreenColumn {
    pub(super) title: &'static str,
    /// Least and greatest width.
    pub(super) widths: (u16, u16),
    /// Least width of the screen on which it is shown.
    pub(super) from: u16,
    /// True for figures, which end at the right.
    pub(super) right: bool,
}

/// Place of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) x: u16,
    pub(super) width: u16,
    right: bool,
}

impl Place {
    /// Columns up to its right end.
    pub(super) const fn end(self) -> u16 {
        self.x + self.width
    }
}

/// Columns with their places; those that are not shown have none.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    places: Vec<Option<Place>>,
    titles: Vec<&'static str>,
}

impl Grid {
    /// Places of columns from `left` on; what is left over is shared out among those that may grow.
    pub(super) fn new(columns: &[ScreenColumn], left: u16, screen: u16) -> Self {
        let shown: Vec<bool> = columns.iter().map(|column| column.from <= screen).collect();
        let is_shown = |(at, _): &(usize, &ScreenColumn)| shown[*at];
        let mut widths: Vec<u16> = columns.iter().map(|column| column.widths.0).collect();
        let used: u16 = columns.iter().enumerate().filter(is_shown).map(|(_, one)| one.widths.0 + 1).sum();
        let mut rest = screen.saturating_sub(left).saturating_sub(used.saturating_sub(1));
        while rest > 0 {
            let before = rest;
            for (at, column) in columns.iter().enumerate().filter(is_shown) {
                if rest > 0 && widths[at] < column.widths.1 {
                    widths[at] += 1;
                    rest -= 1;
                }
            }
            if rest == before {
                break;
            }
        }
        let mut x = left;
        let place = |(at, column): (usize, &ScreenColumn)| {
            let place = Place { x, width: widths[at], right: column.right };
            shown[at].then(|| x += widths[at] + 1).map(|()| place)
        };
        let places = columns.iter().enumerate().map(place).collect();
        Self { places, titles: columns.iter().map(|column| column.title).collect() }
    }

    /// Place of a column, if it is shown.
    pub(super) fn place(&self, column: usize) -> Option<Place> {
        self.places.get(column).copied().flatten()
    }

    /// Puts a text into a column, if it is shown.
    pub(super) fn put(&self, strip: &mut Strip, column: usize, text: &str, tone: Tone) {
        let Some(place) = self.place(column) else { return };
        let taken = crate::table::width(&text::fit(text, place.width.into()));
        let before = if place.right { place.width - u16::try_from(taken).unwrap_or(place.width) } else { 0 };
        strip.put(place.x + before, place.width - before, text, tone);
    }

    /// The line with the titles.
    pub(super) fn heading(&self) -> Strip {
        let mut strip = Strip::default();
        (0..self.titles.len()).for_each(|at| self.put(&mut strip, at, self.titles[at], Tone::Bold));
        strip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn column(least: u16, most: u16, from: u16) -> ScreenColumn {
        ScreenColumn { title: "", widths: (least, most), from, right: false }
    }

    #[test]
    fn leftover_width_is_shared_up_to_the_greatest() {
        let columns = [column(4, 6, 0), column(5, 5, 50), column(3, 99, 0)];
        let places = |screen| Grid::new(&columns, 1, screen).places;
        let width = |place: &Option<Place>| place.map(|place| (place.x, place.width));
        let at = |screen| places(screen).iter().map(width).collect::<Vec<_>>();
        assert_eq!(at(9), [Some((1, 4)), None, Some((6, 3))]);
        assert_eq!(at(20), [Some((1, 6)), None, Some((8, 12))]);
        assert_eq!(at(50), [Some((1, 6)), Some((8, 5)), Some((14, 36))]);
        assert_eq!(at(0), [Some((1, 4)), None, Some((6, 3))]);
    }
}
