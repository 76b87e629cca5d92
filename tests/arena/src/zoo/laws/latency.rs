//! Requests, priorities and programs that begin late.

use tranche_domain::compute::{ComputeTerms, Latency, Priority};

use super::figures::{GAME, figure};
use crate::load::{Lengths, Load};
use crate::setup::{Policy, Setup, Tenant, fair};
use crate::zoo::{Bound, Figure, Model};
use crate::{MS, S, US, game};

/// The slowest in a hundred requests of a higher priority, and what training keeps.
pub(super) fn inference(model: &Model) -> Vec<Figure> {
    let gap = Lengths::Uniform(9 * MS, 29 * MS);
    let load = Load::Rounds { kernels: Lengths::Fixed(MS), batch: 1, gap };
    let inference = Tenant::new(ComputeTerms { priority: Priority::new(1), ..fair(300) }, load);
    let setup = model.put(Setup::new(vec![inference, Tenant::new(fair(700), Load::saturating(MS))]));
    let (report, bare) = (game::run(&setup, GAME), game::run(&setup.under(Policy::Unscheduled), GAME));
    let alone = game::run(&setup.alone(0), GAME).p99(0) as f64 / MS as f64;
    let bound = alone + 2.0 + 60.0 / 1000.0;
    let kept = |report: &crate::Report| report.percent(1) / (100.0 - report.percent(0));
    vec![
        figure("p99", "ms", Bound::AtMost(bound), report.p99(0) as f64 / MS as f64)
            .unscheduled(bare.p99(0) as f64 / MS as f64)
            .ideal(alone + 1.0),
        figure("training keeps", "of what is left", Bound::AtLeast(0.85), kept(&report))
            .unscheduled(kept(&bare)),
    ]
}

/// A priority is no way to more than the request.
pub(super) fn greedy(model: &Model) -> Vec<Figure> {
    let greedy = ComputeTerms { priority: Priority::new(5), ..fair(300) };
    let setup = Setup::new(vec![
        Tenant::new(greedy, Load::saturating(MS)),
        Tenant::new(fair(700), Load::saturating(MS)),
    ]);
    let setup = model.put(setup);
    let (report, bare) = (game::run(&setup, GAME), game::run(&setup.under(Policy::Unscheduled), GAME));
    let part = |report: &crate::Report| 100.0 * report.percent(1) / report.busy();
    vec![figure("the other's part", "%", Bound::AtLeast(68.0), part(&report)).unscheduled(part(&bare))]
}

/// The slowest in a hundred requests of equal priority and without a target.
///
/// Beside training they take 1.5 times as long as alone and a kernel of it at most, and no longer than unscheduled but for
/// two wake-ups: 5 %. Those of another service may be before them.
pub(super) fn requests(model: &Model) -> Vec<Figure> {
    let request = Lengths::Fixed(100 * US);
    let load = Load::Rounds { kernels: request, batch: 36, gap: Lengths::Uniform(25 * MS, 60 * MS) };
    let p99 = |setup: &Setup| game::run(setup, GAME).p99(0) as f64 / MS as f64;
    let cases = [
        ("beside 1 ms", MS, 1),
        ("beside 3 ms", 3 * MS, 1),
        ("beside 10 ms", 10 * MS, 1),
        ("of two beside 3 ms", 3 * MS, 2),
    ];
    let play = |(name, kernel, services): (&'static str, u64, usize)| {
        let training = Tenant::new(fair(400), Load::saturating(kernel));
        let services = (0..services).map(|_| Tenant::new(fair(150), load));
        let setup = model.put(Setup::new(services.chain([training]).collect()));
        let (alone, bare) = (p99(&setup.alone(0)), p99(&setup.under(Policy::Unscheduled)));
        let others = (setup.tenants.len() - 2) as f64 * alone;
        let most = 1.5 * alone + others + kernel as f64 / MS as f64;
        figure(name, "ms", Bound::AtMost(most.min(1.05 * bare)), p99(&setup)).unscheduled(bare)
    };
    cases.map(play).into()
}

/// Two services with a latency target, two without, and training that always has work.
pub(super) fn targets(model: &Model) -> Vec<Figure> {
    let target = Latency::try_from(8_000).expect("a target");
    let gap = Lengths::Uniform(25 * MS, 60 * MS);
    let requests = Load::Rounds { kernels: Lengths::Fixed(100 * US), batch: 40, gap };
    let service = |latency| Tenant::new(ComputeTerms { latency, ..fair(150) }, requests);
    let services = [Some(target), Some(target), None, None].map(service);
    let training = Tenant::new(fair(400), Load::saturating(MS));
    let setup = model.put(Setup::new(services.into_iter().chain([training]).collect()));
    let (report, bare) = (game::run(&setup, GAME), game::run(&setup.under(Policy::Unscheduled), GAME));
    let p99 = |report: &crate::Report, service: usize| report.p99(service) as f64 / MS as f64;
    let alone = [0, 1].map(|service| p99(&game::run(&setup.alone(service), GAME), 0));
    let beyond = |report: &crate::Report| {
        [0, 1].map(|service| p99(report, service) - alone[service]).into_iter().fold(0.0, f64::max)
    };
    let kept = |report: &crate::Report| report.percent(4);
    vec![
        figure("p99 beyond alone", "ms", Bound::AtMost(8.0), beyond(&report)).unscheduled(beyond(&bare)),
        figure(
            "training keeps",
            "% of the time",
            Bound::AtLeast(0.9 * 40.0_f64.min(kept(&bare))),
            kept(&report),
        )
        .unscheduled(kept(&bare)),
    ]
}

/// One program begins at the third second, beside one that runs since the first.
pub(super) fn newcomer(model: &Model) -> Vec<Figure> {
    let load = Load::saturating(MS);
    let began = 3 * S + 7 * MS;
    let newcomer = Tenant::new(fair(500), load).lives(began, u64::MAX);
    let setup = model.put(Setup::new(vec![Tenant::new(fair(500), load), newcomer]));
    let first = setup.driver.first_launch;
    let (report, bare) = (game::run(&setup, 7 * S), game::run(&setup.under(Policy::Unscheduled), 7 * S));
    let meanwhile = |report: &crate::Report| report.ran(0, 3 * S, 4 * S) as f64 / MS as f64;
    // While the newcomer is in the driver for the first time, it has no work.
    let due = 500.0 + (first / MS) as f64 / 2.0;
    let later = |report: &crate::Report| {
        100.0 * report.ran(1, 4 * S, 7 * S) as f64 / report.ran_by_all(4 * S, 7 * S) as f64
    };
    let ms = |time: u64| time as f64 / MS as f64;
    let idle = |report: &crate::Report| ms(report.longest_idle(2 * S, 4 * S));
    let begins = |report: &crate::Report| {
        report.runs_from(1, began).map_or(1e6, |from| ms(from.saturating_sub(began + first)))
    };
    vec![
        figure(
            "the other in that second",
            "ms",
            Bound::AtLeast(due.min(meanwhile(&bare)) - 15.0),
            meanwhile(&report),
        )
        .unscheduled(meanwhile(&bare)),
        figure("GPU idle at most", "ms", Bound::AtMost(50.0), idle(&report)).unscheduled(idle(&bare)),
        figure("newcomer runs after", "ms", Bound::AtMost(51.0), begins(&report)).unscheduled(begins(&bare)),
        figure("newcomer's part later", "%", Bound::AtLeast(48.5), later(&report)).unscheduled(later(&bare)),
    ]
}

/// Figures beside a neighbour that is idle but for a second. The GPU's time is used before and after, and
/// given back meanwhile.
pub(super) fn naps(model: &Model) -> Vec<Figure> {
    let cases = [([MS, MS], 0), ([10 * MS, MS], 3), ([MS, 10 * MS], 6)];
    let play = |policy: Option<Policy>| {
        let (mut back, mut used, mut half) = (0.0_f64, 1.0_f64, 1.0_f64);
        for (kernels, step) in cases {
            let (wakes, rests) = (S + step * 1_300 * US, 2 * S + step * 2_900 * US);
            let tenant = |kernel| Tenant::new(fair(500), Load::saturating(kernel));
            let mut setup =
                model.put(Setup::new(vec![tenant(kernels[0]), tenant(kernels[1]).lives(wakes, rests)]));
            setup.policy = policy.unwrap_or(setup.policy);
            let (report, works) = (game::run(&setup, 3 * S), wakes + setup.driver.first_launch);
            let came = report.runs_from(1, works).map_or(rests, |from| from.max(works));
            back = back.max((came - works).saturating_sub(kernels[0]) as f64 / MS as f64);
            let part = |tenant, from: u64, to: u64| {
                report.ran(tenant, from, to) as f64 / (to / MS * MS - from / MS * MS) as f64
            };
            let after = rests + 50 * MS + 32 * kernels[1];
            used = used.min(part(0, S / 2, wakes)).min(part(0, after, 3 * S));
            half = half.min(part(1, works + 50 * MS + kernels[0], rests));
        }
        (back, used, half)
    };
    let ((back, used, half), bare) = (play(None), play(Some(Policy::Unscheduled)));
    vec![
        figure("given back after", "ms", Bound::AtMost(50.0), back).unscheduled(bare.0),
        figure("idle time used", "of it", Bound::AtLeast(0.98), used).unscheduled(bare.1),
        figure("the half meanwhile", "of all", Bound::AtLeast(0.46), half).unscheduled(bare.2),
    ]
}
