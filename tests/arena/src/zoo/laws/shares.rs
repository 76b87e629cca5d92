//! Shares among slices that want all they can get.

use super::figures::{GAME, all, errors, figure, saturated, work};
use crate::chance::Chance;
use crate::load::{Lengths, Load};
use crate::setup::{Action, Policy, Program, Setup, Tenant, fair};
use crate::zoo::{Bound, Figure, Model};
use crate::{MS, Report, US, game};

const THREE: [u32; 3] = [500, 300, 200];

fn between(low: u64, high: u64) -> Load {
    Load::Saturating { kernels: Lengths::LogUniform(low, high), ahead: 16 }
}

pub(super) fn short(model: &Model) -> Vec<Figure> {
    saturated(model, all(&THREE, Load::saturating(50 * US)))
}

pub(super) fn millisecond(model: &Model) -> Vec<Figure> {
    saturated(model, all(&THREE, Load::saturating(MS)))
}

pub(super) fn mixed(model: &Model) -> Vec<Figure> {
    saturated(model, all(&THREE, between(50 * US, 40 * MS)))
}

pub(super) fn graphs(model: &Model) -> Vec<Figure> {
    let program = Program { graphs: 5, ..Program::new(between(200 * US, 7 * MS)) };
    let tenant = |weight: u32| Tenant { terms: fair(weight), programs: vec![program.clone()] };
    saturated(model, Setup::new(THREE.into_iter().map(tenant).collect()))
}

pub(super) fn eight(model: &Model) -> Vec<Figure> {
    saturated(model, all(&[125; 8], Load::saturating(MS)))
}

fn two(shares: [u32; 2], kernels: [u64; 2]) -> Setup {
    let tenant = |at: usize| Tenant::new(fair(shares[at]), Load::saturating(kernels[at]));
    Setup::new(vec![tenant(0), tenant(1)])
}

pub(super) fn unequal(model: &Model) -> Vec<Figure> {
    saturated(model, two([900, 100], [50 * US, 5 * MS]))
}

pub(super) fn long(model: &Model) -> Vec<Figure> {
    saturated(model, two([700, 300], [MS, 40 * MS]))
}

/// Figures of a slice with several processes. They take turns on the GPU among themselves, at the cost of
/// switches that come out of its share.
pub(super) fn processes(model: &Model) -> Vec<Figure> {
    let load = Load::saturating(MS);
    let extra = |process| Program { process, ..Program::new(load) };
    let many = (1..4).map(extra).fold(Tenant::new(fair(500), load), Tenant::and);
    let setup = model.put(Setup::new(vec![many, Tenant::new(fair(500), load)]));
    let (report, bare) = (game::run(&setup, GAME), game::run(&setup.under(Policy::Unscheduled), GAME));
    let part = |report: &Report| 100.0 * report.percent(0) / report.busy();
    let other = |report: &Report| report.percent(1);
    vec![
        figure("their part", "%", Bound::AtMost(51.0), part(&report)).unscheduled(part(&bare)),
        figure("the other", "% of the time", Bound::AtLeast(48.5), other(&report)).unscheduled(other(&bare)),
    ]
}

/// There is no ideal scheduler for programs that wait: errors have bounds of their own.
pub(super) fn waiting(model: &Model) -> Vec<Figure> {
    let setup = model.put(all(&THREE, Load::synchronous(MS, 200 * US)));
    let (report, bare) = (game::run(&setup, GAME), game::run(&setup.under(Policy::Unscheduled), GAME));
    let mut figures = errors(&setup, &report, &bare, None);
    figures.push(work(&report, &bare, 0.95));
    figures
}

/// The time between two changes.
const STEP: u64 = 100 * MS;

/// Requests of three slices that sum to the whole, 50 permille each at least.
fn draw(chance: &mut Chance) -> [u32; 3] {
    let (one, other) = (chance.between(0, 850), chance.between(0, 850));
    let (low, high) = (one.min(other), one.max(other));
    [low, high - low, 850 - high].map(|part| 50 + part as u32)
}

/// Largest error of a slice's share over any second, with new shares each tenth of one.
pub(super) fn changing(model: &Model) -> Vec<Figure> {
    let mut chance = Chance::new(1);
    let steps: Vec<[u32; 3]> = (0..GAME / STEP).map(|_| draw(&mut chance)).collect();
    let kernels = [50 * US, MS, 5 * MS];
    let tenant = |slice: usize| Tenant::new(fair(steps[0][slice]), Load::saturating(kernels[slice]));
    let mut setup = model.put(Setup::new((0..3).map(tenant).collect()));
    setup.script = (1..steps.len())
        .flat_map(|step| {
            let shares = steps[step];
            (0..3).map(move |slice| (step as u64 * STEP, Action::Change(slice, fair(shares[slice]))))
        })
        .collect();
    let worst = |setup: &Setup| {
        let report = game::run(setup, GAME);
        let off = |slice: usize, step: usize| {
            let due: u32 = steps[step..step + 10].iter().map(|shares| shares[slice]).sum();
            let (from, to) = (step as u64 * STEP, (step as u64 + 10) * STEP);
            let part = report.ran(slice, from, to) as f64 / report.ran_by_all(from, to) as f64;
            (100.0 * part - f64::from(due) / 100.0).abs()
        };
        let windows = (10..steps.len() - 10).flat_map(|step| (0..3).map(move |slice| (slice, step)));
        windows.map(|(slice, step)| off(slice, step)).fold(0.0, f64::max)
    };
    let bare = worst(&setup.under(Policy::Unscheduled));
    vec![figure("worst second", "pp", Bound::AtMost(3.0), worst(&setup)).unscheduled(bare)]
}
