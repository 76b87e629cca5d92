//! Programs whose streams run side by side.

use super::figures::{GAME, errors, figure, floor, work};
use crate::load::{Lengths, Load};
use crate::setup::{Policy, Program, Setup, Tenant, fair};
use crate::zoo::{Bound, Figure, Model};
use crate::{MS, S, US, game};

/// A program with a thread for each of its streams, beside one that saturates with kernels of 1 ms.
fn beside(streams: u64, load: Load) -> Setup {
    let programs = (1..=streams).map(|stream| Program { stream, ..Program::new(load) });
    let wide = Tenant { terms: fair(500), programs: programs.collect() };
    Setup::new(vec![wide, Tenant::new(fair(500), Load::saturating(MS))])
}

/// Shares, what the time of the program with streams is worth, and work.
fn judge(model: &Model, setup: Setup) -> Vec<Figure> {
    let setup = model.put(setup);
    let bare = setup.under(Policy::Unscheduled);
    let (report, free) = (game::run(&setup, GAME), game::run(&bare.alone(0), GAME));
    let worth = |report: &crate::Report| report.finished(0, S, GAME) as f64 / report.ran(0, S, GAME) as f64;
    let bare = game::run(&bare, GAME);
    let mut figures = errors(&setup, &report, &bare, None);
    figures.push(floor(&setup, &report, &bare));
    let part = figure("worth of its time", "of alone", Bound::AtLeast(0.9), worth(&report) / worth(&free));
    figures.push(part.unscheduled(worth(&bare) / worth(&free)));
    figures.push(work(&report, &bare, 0.98));
    figures
}

pub(super) fn four(model: &Model) -> Vec<Figure> {
    judge(model, beside(4, Load::synchronous(5 * MS, 10 * US)))
}

pub(super) fn twelve(model: &Model) -> Vec<Figure> {
    judge(model, beside(12, Load::Saturating { kernels: Lengths::Fixed(MS), ahead: 4 }))
}
