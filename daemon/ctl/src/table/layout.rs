//! Widths of columns: what is dropped, and what is cut.

use super::column::Fit;

/// Width of each column, so that a line takes at most `most`; `None` for those that are left out.
///
/// Columns of prose are not among them.
pub(super) fn fit(columns: &[(Fit, usize)], most: Option<usize>) -> Vec<Option<usize>> {
    let mut widths: Vec<Option<usize>> = columns.iter().map(|(_, natural)| Some(*natural)).collect();
    let Some(most) = most else { return widths };
    let wide = columns.iter().zip(&mut widths).filter(|((fit, _), _)| *fit == Fit::Wide);
    wide.for_each(|(_, width)| *width = None);
    let mut order: Vec<(u8, usize)> =
        columns.iter().enumerate().filter_map(|(at, (fit, _))| droppable(at, *fit)).collect();
    order.sort_unstable();
    let mut order = order.into_iter();
    while line(&least(columns, &widths)) > most && widths.iter().flatten().count() > 1 {
        let Some((_, at)) = order.next() else { break };
        widths[at] = None;
    }
    while 4 * widths.iter().flatten().count() + 1 > most && widths.iter().flatten().count() > 1 {
        let last = widths.iter().rposition(Option::is_some);
        last.into_iter().for_each(|at| widths[at] = None);
    }
    shrink(&mut widths, most, |at| columns[at].0.least(columns[at].1));
    // Nothing is left that may be cut or left out, so everything is.
    shrink(&mut widths, most, |_| 1);
    widths
}

impl Fit {
    fn least(self, natural: usize) -> usize {
        match self {
            Self::Cut(least) => natural.min(least),
            Self::Whole | Self::Drop(_) | Self::Wide | Self::Prose => natural,
        }
    }
}

const fn droppable(at: usize, fit: Fit) -> Option<(u8, usize)> {
    match fit {
        Fit::Drop(order) => Some((order, at)),
        Fit::Whole | Fit::Cut(_) | Fit::Wide | Fit::Prose => None,
    }
}

fn least(columns: &[(Fit, usize)], widths: &[Option<usize>]) -> Vec<Option<usize>> {
    let shown = columns.iter().zip(widths);
    shown.map(|((fit, _), width)| width.map(|width| fit.least(width))).collect()
}

/// Width of a line: each cell has a blank on both sides and a bar, and a bar is before the first.
pub(super) fn line(widths: &[Option<usize>]) -> usize {
    widths.iter().flatten().map(|width| width + 3).sum::<usize>() + 1
}

/// Takes columns from the widest that may be cut, until the line fits or none is left.
fn shrink(widths: &mut [Option<usize>], most: usize, least: impl Fn(usize) -> usize) {
    while line(widths) > most {
        let wide = widths.iter().enumerate().filter_map(|(at, width)| width.map(|width| (width, at)));
        let Some((width, at)) = wide.filter(|(width, at)| *width > least(*at)).max() else { return };
        widths[at] = Some(width - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [(Fit, usize); 4] =
        [(Fit::Cut(6), 20), (Fit::Whole, 10), (Fit::Drop(2), 10), (Fit::Drop(1), 5)];

    #[test]
    fn unlimited_width_keeps_everything() {
        assert_eq!(fit(&COLUMNS, None), [Some(20), Some(10), Some(10), Some(5)]);
    }

    #[test]
    fn wide_columns_are_for_unlimited_width_alone() {
        let columns = [(Fit::Whole, 3), (Fit::Wide, 3)];
        assert_eq!((fit(&columns, None), fit(&columns, Some(90))), (vec![Some(3); 2], vec![Some(3), None]));
    }

    #[test]
    fn names_are_cut_before_a_column_is_left_out() {
        assert_eq!(fit(&COLUMNS, Some(50)), [Some(12), Some(10), Some(10), Some(5)]);
    }

    #[test]
    fn columns_are_left_out_in_order() {
        assert_eq!(fit(&COLUMNS, Some(40)), [Some(10), Some(10), Some(10), None]);
        assert_eq!(fit(&COLUMNS, Some(30)), [Some(13), Some(10), None, None]);
    }

    #[test]
    fn at_last_everything_is_cut() {
        assert_eq!(fit(&COLUMNS, Some(20)), [Some(6), Some(7), None, None]);
        assert_eq!(fit(&COLUMNS, Some(7)), [Some(3), None, None, None]);
    }
}
