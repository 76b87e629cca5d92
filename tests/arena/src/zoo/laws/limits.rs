//! Limits.

use tranche_domain::compute::Terms;
use tranche_domain::request::ComputeMode;

use super::{GAME, figure};
use crate::load::Load;
use crate::setup::{Setup, Tenant, gpu, permille};
use crate::zoo::{Bound, Figure, Model};
use crate::{MS, game};

fn slice(share: u32) -> Tenant {
    let terms = Terms::of_mode(ComputeMode::Strict, vec![gpu(0)], permille(share));
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
    let busy = report.windows().map(|(from, to)| report.ran_by_all(from, to) as f64 / 1e7);
    let (least, most) = busy.fold((f64::MAX, 0.0_f64), |(least, most), it| (least.min(it), most.max(it)));
    vec![
        figure("mean error", "pp", Bound::AtMost(1.0), off),
        figure("busiest second", "%", Bound::AtMost(82.0), most),
        figure("idlest second", "%", Bound::AtLeast(78.0), least),
    ]
}
