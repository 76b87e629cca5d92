//! Programs and daemons that stop, and records that lie.

use super::figures::figure;
use crate::lies::{Lies, STRATEGIES};
use crate::load::Load;
use crate::setup::{Action, Policy, Setup, Tenant, fair};
use crate::zoo::{Bound, Figure, Model};
use crate::{MS, S, game};

/// Moments of a turn, and the kernels of the victim.
const CASES: [(u64, u64); 6] = [(1, MS), (7, MS), (14, MS), (3, 10 * MS), (9, 10 * MS), (17, 10 * MS)];

fn pair(kernel: u64) -> Setup {
    let tenant = |kernel| Tenant::new(fair(500), Load::saturating(kernel));
    Setup::new(vec![tenant(kernel), tenant(MS)])
}

/// Wait and time of a neighbour after an action on a victim. The wait is the longest until the neighbour
/// runs, beyond the victim's kernel. The time is the least part of the rest of a second that the neighbour
/// has.
fn judge(model: &Model, action: fn(usize) -> Action) -> Vec<Figure> {
    let case = |policy: Option<Policy>| {
        let of = |(step, kernel): (u64, u64)| {
            let at = S + step * MS;
            let mut setup = model.put(pair(kernel));
            setup.policy = policy.unwrap_or(setup.policy);
            setup.script = vec![(at, action(0))];
            let report = game::run(&setup, 5 * S / 2);
            let waits = report.runs_from(1, at).map_or(1500 * MS, |from| from.saturating_sub(at + kernel));
            let rest = report.ran(1, at + 100 * MS + kernel, at + S);
            (waits as f64 / MS as f64, rest as f64 / (900 * MS - kernel) as f64)
        };
        let all = CASES.into_iter().map(of);
        all.fold((0.0_f64, 1.0_f64), |(most, least), (waits, rest)| (most.max(waits), least.min(rest)))
    };
    let ((waits, rest), (bare_waits, bare_rest)) = (case(None), case(Some(Policy::Unscheduled)));
    vec![
        figure("waits", "ms", Bound::AtMost(50.0), waits).unscheduled(bare_waits),
        figure("has of the rest", "of it", Bound::AtLeast(0.95), rest).unscheduled(bare_rest),
    ]
}

pub(super) fn killed(model: &Model) -> Vec<Figure> {
    judge(model, Action::Kill)
}

pub(super) fn stopped(model: &Model) -> Vec<Figure> {
    judge(model, Action::Stop)
}

/// Pauses of two slices while the daemon is away, pauses that its return adds, and their shares.
///
/// Where slices of the hardware are long, the slice that has to wait may have missed one of its own.
pub(super) fn daemon(model: &Model) -> Vec<Figure> {
    let (mut away, mut back, mut off, mut bare) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
    for step in 0..4 {
        let dies = 2 * S + step * 57 * MS;
        let returns = dies + 3 * S;
        let tenant = |share| Tenant::new(fair(share), Load::saturating(MS));
        let mut setup = model.put(Setup::new(vec![tenant(700), tenant(300)]));
        let unscheduled = game::run(&setup.under(Policy::Unscheduled), returns);
        setup.script = vec![(dies, Action::DaemonDies), (returns, Action::DaemonReturns)];
        let report = game::run(&setup, returns + 4 * S);
        for slice in 0..2 {
            let pause = |from, to| report.longest_pause(slice, from, to) as f64 / MS as f64;
            let usual = pause(S, dies);
            away = away.max(pause(dies - 50 * MS, returns));
            back = back.max(pause(returns - 50 * MS, returns + 4 * S) - usual);
            bare = bare.max(unscheduled.longest_pause(slice, S, returns) as f64 / MS as f64);
        }
        for second in 1..4 {
            let (from, to) = (returns + second * S, returns + (second + 1) * S);
            let part = 100.0 * report.ran(0, from, to) as f64 / report.ran_by_all(from, to) as f64;
            off = off.max((part - 70.0).abs());
        }
    }
    let longest = Bound::AtMost((2.0 * bare).max(50.0));
    vec![
        figure("longest pause without it", "ms", longest, away).unscheduled(bare),
        figure("added by its return", "ms", Bound::AtMost(50.0), back),
        figure("error after its return", "pp", Bound::AtMost(3.0), off),
    ]
}

/// Least part of its request that an honest slice has beside each known strategy.
pub(super) fn hostile(model: &Model) -> Vec<Figure> {
    let length = 5 * S;
    let (mut mean, mut window) = (f64::MAX, f64::MAX);
    for (_, steps) in STRATEGIES {
        let liar = Tenant::new(fair(100), Load::Lying(Lies::Steps(steps)));
        let honest = Tenant::new(fair(900), Load::saturating(MS));
        let report = game::run(&model.put(Setup::new(vec![liar, honest])), length);
        mean = mean.min(report.percent(1) / 90.0);
        for from in (S..=length - 2 * S).step_by((S / 2) as usize) {
            window = window.min(report.ran(1, from, from + 2 * S) as f64 / (2 * S) as f64 / 0.9);
        }
    }
    vec![
        figure("request in the mean", "of it", Bound::AtLeast(0.9), mean),
        figure("request in two seconds", "of it", Bound::AtLeast(0.9), window),
    ]
}
