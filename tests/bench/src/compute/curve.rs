//! GPU time of one tenant, as it grows over time.

/// GPU time used up to each moment of CLOCK_MONOTONIC, both in nanoseconds.
///
/// It grows evenly between corners.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curve {
    corners: Vec<(u64, f64)>,
}

impl Curve {
    fn last(&self) -> (u64, f64) {
        self.corners.last().copied().unwrap_or((0, 0.0))
    }

    /// Adds a stretch in which the tenant had the GPU. One that has grown since may be added again.
    pub(crate) fn ran(&mut self, from: u64, to: u64) {
        let (at, total) = self.last();
        let from = from.max(at);
        if to > from {
            self.corners.extend([(from, total), (to, total + (to - from) as f64)]);
        }
    }

    /// Adds a corner: the GPU time used up to a moment.
    pub(crate) fn reached(&mut self, at: u64, total: f64) {
        self.corners.push((at, total));
    }

    /// GPU time used up to a moment, in nanoseconds.
    fn at(&self, moment: u64) -> f64 {
        let after = self.corners.partition_point(|(at, _)| *at <= moment);
        match (after.checked_sub(1).map(|before| self.corners[before]), self.corners.get(after)) {
            (None, _) => 0.0,
            (Some((_, total)), None) => total,
            (Some((from, low)), Some((to, high))) => {
                low + (high - low) * (moment - from) as f64 / (to - from).max(1) as f64
            }
        }
    }

    /// GPU time used between two moments, in nanoseconds.
    pub(crate) fn between(&self, from: u64, to: u64) -> f64 {
        self.at(to) - self.at(from)
    }

    /// GPU time used between two moments, in percent of the time between them.
    pub(crate) fn percent(&self, from: u64, to: u64) -> f64 {
        100.0 * self.between(from, to) / to.saturating_sub(from).max(1) as f64
    }

    /// Each stretch in which the GPU time grew.
    fn growing(&self) -> impl Iterator<Item = (u64, u64)> {
        self.corners.windows(2).filter(|pair| pair[1].1 > pair[0].1).map(|pair| (pair[0].0, pair[1].0))
    }

    /// First moment, from `moment` on, at which the GPU time grows.
    pub(crate) fn grows_from(&self, moment: u64) -> Option<u64> {
        self.growing().find(|(_, to)| *to > moment).map(|(from, _)| from.max(moment))
    }

    /// Last moment, up to `moment`, at which the GPU time grew.
    pub(crate) fn grew_until(&self, moment: u64) -> Option<u64> {
        self.growing().take_while(|(from, _)| *from < moment).last().map(|(_, to)| to.min(moment))
    }

    /// Longest time without the GPU between two moments, in milliseconds.
    pub(crate) fn longest_pause_ms(&self, from: u64, to: u64) -> f64 {
        let (mut last, mut longest) = (from, 0);
        for (begun, ended) in self.growing().filter(|(begun, ended)| *ended > from && *begun < to) {
            longest = longest.max(begun.saturating_sub(last));
            last = last.max(ended);
        }
        longest.max(to.saturating_sub(last)) as f64 / 1e6
    }
}

/// Part of each tenant in the GPU time of all between two moments, in percent.
pub(crate) fn parts(curves: &[&Curve], from: u64, to: u64) -> Vec<f64> {
    let got: Vec<f64> = curves.iter().map(|curve| curve.between(from, to)).collect();
    let sum: f64 = got.iter().sum();
    got.into_iter().map(|got| 100.0 * got / sum.max(1.0)).collect()
}

/// Times from one tenant's work to the next one's between two moments, in microseconds.
pub(crate) fn handovers_us(curves: &[&Curve], from: u64, to: u64) -> Vec<f64> {
    let of = |(tenant, curve): (usize, &&Curve)| {
        let inside = curve.growing().filter(|(begun, ended)| *begun >= from && *ended <= to);
        inside.map(|(begun, ended)| (begun, ended, tenant)).collect::<Vec<_>>()
    };
    let mut stretches: Vec<(u64, u64, usize)> = curves.iter().enumerate().flat_map(of).collect();
    stretches.sort_unstable();
    let changes = stretches.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    changes.map(|pair| pair[1].0.saturating_sub(pair[0].1) as f64 / 1e3).collect()
}

/// Delay after which the first tenant's part changed from `before` to `after` percent, in milliseconds.
///
/// The change is taken to happen at one instant, which follows from the GPU time used between `change` and `end`: a
/// time so long that one turn does not distort it.
pub(crate) fn delay_ms(curves: &[&Curve], change: u64, end: u64, before: f64, after: f64) -> f64 {
    let part = parts(curves, change, end)[0];
    (end - change) as f64 / 1e6 * (part - after) / (before - after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(stretches: &[(u64, u64)]) -> Curve {
        let mut curve = Curve::default();
        stretches.iter().for_each(|(from, to)| curve.ran(*from, *to));
        curve
    }

    #[test]
    fn what_was_got_is_what_ran() {
        let curve = curve(&[(100, 200), (300, 400)]);
        assert_eq!(curve.between(0, 1000), 200.0);
        assert_eq!(curve.between(150, 350), 100.0);
        assert_eq!(curve.percent(300, 500), 50.0);
        assert_eq!(
            (curve.grows_from(0), curve.grows_from(150), curve.grows_from(400)),
            (Some(100), Some(150), None)
        );
        assert_eq!(
            (curve.grew_until(250), curve.grew_until(350), curve.grew_until(50)),
            (Some(200), Some(350), None)
        );
    }

    #[test]
    fn a_stretch_that_grew_counts_once() {
        assert_eq!(curve(&[(100, 200), (100, 250), (250, 300)]).between(0, 1000), 200.0);
    }

    #[test]
    fn pauses_are_where_nothing_ran_at_the_ends_too() {
        let curve = curve(&[(1_000_000, 2_000_000), (5_000_000, 6_000_000)]);
        assert_eq!(curve.longest_pause_ms(0, 6_000_000), 3.0);
        assert_eq!(curve.longest_pause_ms(0, 20_000_000), 14.0);
        assert_eq!(curve.longest_pause_ms(1_500_000, 4_500_000), 2.5);
    }

    #[test]
    fn hand_overs_are_between_tenants_and_not_between_stretches_of_one() {
        let curves = [curve(&[(0, 1_000), (5_000, 9_000)]), curve(&[(10_000, 11_000), (11_500, 12_000)])];
        let last = curve(&[(12_040, 13_000), (50_000, 60_000)]);
        let all = [&curves[0], &curves[1], &last];
        assert_eq!(handovers_us(&all, 0, 100_000), [1.0, 0.04]);
        assert_eq!(handovers_us(&all, 10_000, 100_000), [0.04]);
    }

    #[test]
    fn a_late_change_is_as_late_as_it_is() {
        let mut curves = [Curve::default(), Curve::default()];
        for (at, first, second) in [(0, 0.0, 0.0), (100, 20.0, 80.0), (400, 260.0, 140.0)] {
            curves[0].reached(at * 1_000_000, first * 1e6);
            curves[1].reached(at * 1_000_000, second * 1e6);
        }
        let late = delay_ms(&[&curves[0], &curves[1]], 0, 400_000_000, 20.0, 80.0);
        assert!((late - 100.0).abs() < 1e-9, "{late}");
    }
}
