//! Limits, best effort and frozen slices.

use tranche_domain::compute::ComputeTerms;
use tranche_domain::request::ComputeMode;

use super::figures::{GAME, figure};
use crate::load::Load;
use crate::setup::{Action, Setup, Tenant, fair, gpu, permille};
use crate::zoo::{Bound, Figure, Model};
use crate::{MS, S, game};

fn slice(share: u32) -> Tenant {
    let terms = ComputeTerms::of_mode(ComputeMode::Strict, vec![gpu(0)], permille(share));
    Tenant::new(terms, Load::saturating(MS))
}

/// The longest kernel in percent of a second.
fn grain(setup: &Setup) -> f64 {
    0.1 * 1000.0 / f64::from(setup.driver.clock.least)
}

pub(super) fn strict(model: &Model) -> Vec<Figure> {
    let setup = model.put(Setup::new(vec![slice(300)]));
    let report = game::run(&setup, GAME);
    let most = report.most_in_a_second(0) as f64 / 1e7;
    vec![
        figure("most in a second", "%", Bound::AtMost(32.0 + grain(&setup)), most),
        figure("in the mean", "%", Bound::AtLeast(28.5), report.percent(0)),
    ]
}

pub(super) fn two_strict(model: &Model) -> Vec<Figure> {
    let setup = model.put(Setup::new(vec![slice(500), slice(300)]));
    let report = game::run(&setup, GAME);
    let off = (report.percent(0) - 50.0).abs().max((report.percent(1) - 30.0).abs());
    let above = (report.percent(0) - 50.0).max(report.percent(1) - 30.0);
    let busy = report.windows().map(|(from, to)| report.ran_by_all(from, to) as f64 / 1e7);
    let (least, most) = busy.fold((f64::MAX, 0.0_f64), |(least, most), it| (least.min(it), most.max(it)));
    vec![
        figure("mean error", "pp", Bound::AtMost(1.0), off),
        figure("above a limit", "pp", Bound::AtMost(1.0), above),
        figure("busiest second", "%", Bound::AtMost(82.0), most),
        figure("idlest second", "%", Bound::AtLeast(78.0), least),
    ]
}

/// A request of nothing beside one of half, and then alone.
pub(super) fn best_effort(model: &Model) -> Vec<Figure> {
    let load = Load::saturating(MS);
    let nothing = ComputeTerms::of_mode(ComputeMode::BestEffort, vec![gpu(0)], permille(0));
    let busy = Tenant::new(fair(500), load).lives(0, 5 * S);
    let setup = model.put(Setup::new(vec![busy, Tenant::new(nothing, load)]));
    let report = game::run(&setup, 8 * S);
    let part = |from, to| 100.0 * report.ran(1, from, to) as f64 / (to - from) as f64;
    vec![
        figure("beside the other", "%", Bound::AtMost(1.0), part(S, 5 * S)),
        figure("not forgotten", "%", Bound::AtLeast(0.01), part(S, 5 * S)),
        figure("alone", "%", Bound::AtLeast(97.5), part(6 * S, 8 * S)),
    ]
}

/// A slice is frozen for a second.
pub(super) fn frozen(model: &Model) -> Vec<Figure> {
    let load = Load::saturating(MS);
    let mut setup = model.put(Setup::new(vec![Tenant::new(fair(500), load), Tenant::new(fair(500), load)]));
    let frozen = ComputeTerms { frozen: true, ..fair(500) };
    setup.script = vec![(2 * S, Action::Change(0, frozen)), (3 * S, Action::Change(0, fair(500)))];
    let report = game::run(&setup, 5 * S);
    let ms = |tenant, from, to| report.ran(tenant, from, to) as f64 / MS as f64;
    let off = (ms(0, 3 * S + 100 * MS, 4 * S + 100 * MS) - 500.0).abs();
    vec![
        figure("runs while frozen", "ms", Bound::AtMost(0.0), ms(0, 2 * S + 30 * MS, 3 * S)),
        figure("the other meanwhile", "ms of 970", Bound::AtLeast(950.0), ms(1, 2 * S + 30 * MS, 3 * S)),
        figure("off in the second after", "ms", Bound::AtMost(20.0), off),
    ]
}
