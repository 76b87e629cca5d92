//! Jobs whose ranks on two GPUs wait for each other. A collective keeps its GPU until all have arrived.

use tranche_domain::compute::{Gang, Terms};
use tranche_domain::request::ComputeMode;

use super::{GAME, figure};
use crate::load::{Lengths, Load};
use crate::setup::{Policy, Setup, Tenant, gpu, permille};
use crate::zoo::{Bound, Figure, Model};
use crate::{Report, S, US, game};

const HALF: u32 = 500;

fn on(gpus: &[u8]) -> Terms {
    Terms::of_mode(ComputeMode::Fair, gpus.iter().copied().map(gpu).collect(), permille(HALF))
}

/// Ten kernels of 0.2 ms, then a collective of 20 us.
fn step() -> Load {
    Load::Collective { kernels: Lengths::Fixed(200 * US), batch: 10, together: 20 * US, group: 1 }
}

/// Steps of all ranks a second.
fn steps(report: &Report, ranks: usize) -> f64 {
    let late = |rank: usize| report.rounds[rank].iter().filter(|(at, _)| *at >= S).count();
    (0..ranks).map(late).sum::<usize>() as f64 / ranks as f64 / ((report.length - S) as f64 / S as f64)
}

/// Figure of a job's steps as a part of those alone, beside a slice that saturates each GPU. The promise is
/// the unscheduled part, or the share if that is less, each less 0.03.
fn judge(model: &Model, job: &[Tenant]) -> Vec<Figure> {
    let neighbour = |number| Tenant::new(on(&[number]), Load::saturating(200 * US));
    let tenants = job.iter().cloned().chain([neighbour(0), neighbour(1)]);
    let setup = model.put(Setup::new(tenants.collect()));
    let bare = setup.under(Policy::Unscheduled);
    let solo = Setup { tenants: job.to_vec(), ..bare.clone() };
    let length = GAME / 2;
    let alone = steps(&game::run(&solo, length), job.len());
    let part = |setup: &Setup| steps(&game::run(setup, length), job.len()) / alone;
    let bare = part(&bare);
    let floor = bare.min(f64::from(HALF) / 1000.0) - 0.03;
    vec![figure("steps", "of alone", Bound::AtLeast(floor), part(&setup)).unscheduled(bare)]
}

pub(super) fn gang(model: &Model) -> Vec<Figure> {
    judge(model, &[Tenant::new(on(&[0, 1]), step())])
}

/// Ranks in slices that are of one gang.
pub(super) fn together(model: &Model) -> Vec<Figure> {
    let of_gang = |number| Terms { gang: Some(Gang("ranks".to_owned())), ..on(&[number]) };
    judge(model, &[0, 1].map(|number| Tenant::new(of_gang(number), step())))
}

pub(super) fn apart(model: &Model) -> Vec<Figure> {
    judge(model, &[Tenant::new(on(&[0]), step()), Tenant::new(on(&[1]), step())])
}
