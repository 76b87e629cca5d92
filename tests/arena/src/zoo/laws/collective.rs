//! Jobs whose ranks on two GPUs wait for each other. A collective keeps its GPU until all have arrived.

use tranche_domain::compute::{ComputeTerms, Gang};
use tranche_domain::request::ComputeMode;

use super::figures::{GAME, figure};
use crate::load::{Lengths, Load};
use crate::setup::{Policy, Setup, Tenant, gpu, permille};
use crate::zoo::{Bound, Figure, Model};
use crate::{Report, S, US, game};

const HALF: u32 = 500;

fn on(gpus: &[u8]) -> ComputeTerms {
    ComputeTerms::of_mode(ComputeMode::Fair, gpus.iter().copied().map(gpu).collect(), permille(HALF))
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

/// Steps of a job beside a slice that saturates each GPU, as a part of those alone.
fn part(model: &Model, job: &[Tenant], policy: Option<Policy>) -> f64 {
    let neighbour = |number| Tenant::new(on(&[number]), Load::saturating(200 * US));
    let tenants = job.iter().cloned().chain([neighbour(0), neighbour(1)]);
    let setup = model.put(Setup::new(tenants.collect()));
    let setup = policy.map_or(setup.clone(), |policy| setup.under(policy));
    let solo = Setup { tenants: job.to_vec(), ..setup.under(Policy::Unscheduled) };
    let length = GAME / 2;
    steps(&game::run(&setup, length), job.len()) / steps(&game::run(&solo, length), job.len())
}

/// Figure of a job's steps. The promise is the unscheduled part, or the share if that is less, each less 0.03.
fn judge(model: &Model, job: &[Tenant]) -> Figure {
    let bare = part(model, job, Some(Policy::Unscheduled));
    let floor = bare.min(f64::from(HALF) / 1000.0) - 0.03;
    figure("steps", "of alone", Bound::AtLeast(floor), part(model, job, None)).unscheduled(bare)
}

fn in_one_slice() -> Vec<Tenant> {
    vec![Tenant::new(on(&[0, 1]), step())]
}

pub(super) fn gang(model: &Model) -> Vec<Figure> {
    vec![judge(model, &in_one_slice())]
}

/// Ranks in slices of one gang, measured by the same job in one slice, too.
pub(super) fn together(model: &Model) -> Vec<Figure> {
    let gang = Gang { owner_uid: 1, name: "ranks".parse().expect("a label names a gang") };
    let of_gang = |number| ComputeTerms { gang: Some(gang.clone()), ..on(&[number]) };
    let figure = judge(model, &[0, 1].map(|number| Tenant::new(of_gang(number), step())));
    let ratio = figure.measured / part(model, &in_one_slice(), None);
    vec![figure, super::figures::figure("beside-one-slice", "of its steps", Bound::AtLeast(0.95), ratio)]
}

pub(super) fn apart(model: &Model) -> Vec<Figure> {
    vec![judge(model, &[Tenant::new(on(&[0]), step()), Tenant::new(on(&[1]), step())])]
}
