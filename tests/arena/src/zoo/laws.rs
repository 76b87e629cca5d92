//! The laws, each of which is judged on any model.

mod collective;
mod failures;
mod latency;
mod limits;
mod shares;
mod streams;

use super::{Bound, Figure, Law, Model, Quick};
use crate::load::Load;
use crate::report::Report;
use crate::setup::{Policy, Setup, Tenant, fair};
use crate::{S, game, ideal};

/// A second to settle and ten windows.
const GAME: u64 = 11 * S;

/// Models on which completion is known late.
const TOLD: Quick = Quick::On(&["late-markers", "events", "everything"]);

/// All laws, in the order of tables.
pub const LAWS: &[Law] = &[
    law("shares-50us", "50/30/20, kernels of 50 us", Quick::On(&["plain", "events"]), shares::short),
    law("shares-1ms", "50/30/20, kernels of 1 ms", Quick::All, shares::millisecond),
    law("shares-mixed", "50/30/20, kernels of 0.05 to 40 ms", TOLD, shares::mixed),
    law("shares-graphs", "50/30/20, five graphs each of 0.2 to 7 ms", TOLD, shares::graphs),
    law("shares-eight", "Eight equal slices, kernels of 1 ms", Quick::On(&["late-wakeups"]), shares::eight),
    law("shares-unequal", "90/10, kernels of 50 us and 5 ms", Quick::On(&["busy-host"]), shares::unequal),
    law("shares-long", "70/30, kernels of 1 and 40 ms", Quick::On(&["no-preemption"]), shares::long),
    law(
        "processes",
        "Four processes of a slice beside one",
        Quick::On(&["no-preemption"]),
        shares::processes,
    ),
    law("shares-waiting", "50/30/20, each waits for each kernel of 1 ms", TOLD, shares::waiting),
    law("changes", "Three slices with new shares each 100 ms", TOLD, shares::changing),
    law("priority", "Inference of 1 ms beside training of 1 ms", TOLD, latency::inference),
    law("greedy-priority", "A high priority of 30 % that saturates", Quick::On(&["plain"]), latency::greedy),
    law("newcomer", "A program begins beside another", Quick::On(&["blocking-launches"]), latency::newcomer),
    law("naps", "A neighbour that is idle but for a second", TOLD, latency::naps),
    law("limit", "A strict slice of 30 % alone, kernels of 1 ms", TOLD, limits::strict),
    law("two-limits", "Strict slices of 50 and 30 %", Quick::On(&["power-cap"]), limits::two_strict),
    law("best-effort", "A request of nothing", Quick::On(&["late-wakeups"]), limits::best_effort),
    law("frozen", "A slice is frozen for a second", Quick::On(&["late-markers"]), limits::frozen),
    law("streams", "Four streams beside one, 50/50", Quick::On(&["one-queue", "fluid"]), streams::four),
    law("many-streams", "Twelve streams beside one", Quick::On(&["eight-queues", "fluid"]), streams::twelve),
    law("killed", "A neighbour is killed in its turn", Quick::On(&["plain"]), failures::killed),
    law("stopped", "A neighbour is stopped in its turn", Quick::On(&["events"]), failures::stopped),
    law("daemon-away", "The daemon dies and returns", Quick::On(&["late-wakeups"]), failures::daemon),
    law(
        "hostile",
        "Records with lies beside an honest slice",
        Quick::On(&["late-markers"]),
        failures::hostile,
    ),
    law("gang", "Two ranks in one slice of 50 %", Quick::On(&["plain"]), collective::gang),
    law(
        "ranks-together",
        "Two ranks in slices of 50 % of one gang",
        Quick::On(&["plain"]),
        collective::together,
    ),
    law("ranks-apart", "Two ranks in slices of 50 %", Quick::On(&["plain"]), collective::apart),
];

const fn law(name: &'static str, what: &'static str, quick: Quick, play: fn(&Model) -> Vec<Figure>) -> Law {
    Law { name, what, quick, play }
}

/// A figure without comparison.
fn figure(name: &'static str, unit: &'static str, promised: Bound, measured: f64) -> Figure {
    Figure { name, unit, promised, measured, ideal: None, unscheduled: None }
}

impl Figure {
    fn unscheduled(self, value: f64) -> Self {
        Self { unscheduled: Some(value), ..self }
    }

    fn ideal(self, value: f64) -> Self {
        Self { ideal: Some(value), ..self }
    }
}

/// Fair slices on one GPU, each with one program of a load.
fn all(weights: &[u32], load: Load) -> Setup {
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
fn saturated(model: &Model, setup: Setup) -> Vec<Figure> {
    let setup = model.put(setup);
    let (report, bare) = (game::run(&setup, GAME), game::run(&setup.under(Policy::Unscheduled), GAME));
    let mut figures = errors(&setup, &report, &bare, Some(&ideal::run(&setup, GAME)));
    figures.push(floor(&setup, &report, &bare));
    figures.push(work(&report, &bare, 0.98));
    figures
}

/// The errors over windows of a second or ten of the longest kernels.
fn errors(setup: &Setup, report: &Report, bare: &Report, ideal: Option<&Report>) -> Vec<Figure> {
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
fn floor(setup: &Setup, report: &Report, bare: &Report) -> Figure {
    let above = |(tenant, share): (usize, &f64)| {
        report.percent(tenant) - bare.percent(tenant).min(share * report.busy() / 100.0)
    };
    let least = percents(setup).iter().enumerate().map(above).fold(f64::MAX, f64::min);
    figure("above the floor", "pp", Bound::AtLeast(-0.5), least)
}

/// Work finished by all, as a part of what they finish unscheduled.
fn work(report: &Report, bare: &Report, least: f64) -> Figure {
    figure("work", "of unscheduled", Bound::AtLeast(least), report.throughput() / bare.throughput())
        .unscheduled(1.0)
}
