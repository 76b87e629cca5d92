//! Figures that several laws give, and the games behind them.

use crate::load::Load;
use crate::report::Report;
use crate::setup::{Policy, Setup, Tenant, fair};
use crate::zoo::{Bound, Figure, Model};
use crate::{S, game, ideal};

/// A second to settle and ten windows.
pub(super) const GAME: u64 = 11 * S;

/// A figure without comparison.
pub(super) fn figure(name: &'static str, unit: &'static str, promised: Bound, measured: f64) -> Figure {
    Figure { name, unit, promised, measured, ideal: None, unscheduled: None }
}

impl Figure {
    pub(super) fn unscheduled(self, value: f64) -> Self {
        Self { unscheduled: Some(value), ..self }
    }

    pub(super) fn ideal(self, value: f64) -> Self {
        Self { ideal: Some(value), ..self }
    }
}

/// Fair slices on one GPU, each with one program of a load.
pub(super) fn all(weights: &[u32], load: Load) -> Setup {
    Setup::new(weights.iter().map(|weight| Tenant::new(fair(*weight), load)).collect())
}

/// Share that each fair slice is promised, in percent of what all have.
fn percents(setup: &Setup) -> Vec<f64> {
    let requests: Vec<f64> =
        setup.tenants.iter().map(|tenant| f64::from(tenant.terms.request.get())).collect();
    let total: f64 = requests.iter().sum();
    requests.into_iter().map(|request| 100.0 * request / total).collect()
}

/// Figures of slices that saturate the GPU: errors, the least excess over the floor, and work.
pub(super) fn saturated(model: &Model, setup: Setup) -> Vec<Figure> {
    let setup = model.put(setup);
    let (report, bare) = (game::run(&setup, GAME), game::run(&setup.under(Policy::Unscheduled), GAME));
    let mut figures = errors(&setup, &report, &bare, Some(&ideal::run(&setup, GAME)));
    figures.push(floor(&setup, &report, &bare));
    figures.push(work(&report, &bare, 0.98));
    figures
}

/// The errors over windows of a second or ten of the longest kernels.
pub(super) fn errors(setup: &Setup, report: &Report, bare: &Report, ideal: Option<&Report>) -> Vec<Figure> {
    let promised = percents(setup);
    let longest = report.longest.iter().max().copied().unwrap_or(0);
    let window = S.max(10 * longest);
    let (mean, worst) = report.errors_over(&promised, window);
    let (bare_mean, bare_worst) = bare.errors_over(&promised, window);
    let (ideal_mean, ideal_worst) = ideal.map_or((0.5, 1.6), |ideal| ideal.errors_over(&promised, window));
    let mean = figure("mean error", "pp", Bound::AtMost(ideal_mean + 0.5), mean).unscheduled(bare_mean);
    let worst = figure("worst window", "pp", Bound::AtMost(ideal_worst + 1.5), worst).unscheduled(bare_worst);
    match ideal {
        Some(_) => vec![mean.ideal(ideal_mean), worst.ideal(ideal_worst)],
        None => vec![mean, worst],
    }
}

/// Excess in percentage points over the floor, of the slice that fares worst. The floor is the slice's time
/// unscheduled, or its share if that is less.
pub(super) fn floor(setup: &Setup, report: &Report, bare: &Report) -> Figure {
    let above = |(tenant, share): (usize, &f64)| {
        report.percent(tenant) - bare.percent(tenant).min(share * report.busy() / 100.0)
    };
    let least = percents(setup).iter().enumerate().map(above).fold(f64::MAX, f64::min);
    figure("above the floor", "pp", Bound::AtLeast(-0.5), least)
}

/// Work finished by all, as a part of what they finish unscheduled.
pub(super) fn work(report: &Report, bare: &Report, least: f64) -> Figure {
    figure("work", "of unscheduled", Bound::AtLeast(least), report.throughput() / bare.throughput())
        .unscheduled(1.0)
}
