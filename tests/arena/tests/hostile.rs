//! For any bytes in any usage region, every other slice keeps its request.

use arena::{Lie, Lies, Load, MS, S, STRATEGIES, Setup, Tenant, US, fair, run};

/// Least part of its request that an honest slice had, over a game and in the worst two seconds.
fn least_of_request(requests: &[u32], lies: Lies, kernel: u64, length: u64) -> (f64, f64) {
    let honest = requests[1..].iter().map(|request| Tenant::new(fair(*request), Load::saturating(kernel)));
    let hostile = Tenant::new(fair(requests[0]), Load::Lying(lies));
    let report = run(&Setup::new([hostile].into_iter().chain(honest).collect()), length);
    let (mut mean, mut window) = (f64::MAX, f64::MAX);
    for (tenant, request) in requests.iter().enumerate().skip(1) {
        let due = f64::from(*request) / 1000.0;
        mean = mean.min(report.percent(tenant) / 100.0 / due);
        for from in (S..=length - 2 * S).step_by((S / 2) as usize) {
            window = window.min(report.ran(tenant, from, from + 2 * S) as f64 / (2 * S) as f64 / due);
        }
    }
    (mean, window)
}

const SPLITS: [&[u32]; 4] = [&[500, 500], &[100, 900], &[900, 100], &[100, 450, 450]];

#[test]
fn known_strategies_leave_others_their_request() {
    for (what, steps) in STRATEGIES {
        for split in SPLITS {
            for kernel in [100 * US, MS] {
                judge(what, split, Lies::Steps(steps), kernel, 7 * S);
            }
        }
    }
}

/// Asserts the law over a game and in each window of two seconds after the first second. Within that second
/// the daemon has sampled the driver's utilisation.
fn judge(what: &str, split: &[u32], lies: Lies, kernel: u64, length: u64) {
    let (mean, window) = least_of_request(split, lies, kernel, length);
    let shown = format!("{mean:.3} and {window:.3} of the request beside \"{what}\", {split:?}, {kernel} ns");
    if std::env::var_os("HOSTILE_SHOWS").is_some() {
        eprintln!("{shown}");
    } else {
        assert!(mean >= 0.9 && window >= 0.9, "{shown}: {:?}", lies.steps());
    }
}

/// `HOSTILE_GAMES` sets the number of games, `SEED` the first seed.
#[test]
fn drawn_strategies_leave_others_their_request() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (games, first) = (number("HOSTILE_GAMES").unwrap_or(60), number("SEED").unwrap_or(1));
    for seed in first..first + games {
        let split = SPLITS[(seed % 4) as usize];
        let kernel = [100 * US, MS, 300 * US][(seed / 4 % 3) as usize];
        let lies = if seed.is_multiple_of(5) { Lies::Words(seed, 300 * US) } else { Lies::Drawn(seed) };
        judge(&format!("seed {seed}"), split, lies, kernel, 5 * S);
    }
}

/// Checks that time held back by an idle slice that shows work is no credit for one that slept.
#[test]
fn slice_that_slept_beside_a_stuck_record_takes_only_its_share() {
    for steps in [
        &[Lie::Waiting(1), Lie::Sleep(S)][..],
        &[Lie::Marker(1_000), Lie::Since(0), Lie::Sleep(200 * MS)],
        &[Lie::Waiting(1), Lie::Launches(1), Lie::Sleep(200 * MS)],
    ] {
        let setup = Setup::new(vec![
            Tenant::new(fair(100), Load::Lying(Lies::Steps(Box::leak(steps.into())))),
            Tenant::new(fair(450), Load::saturating(MS)),
            Tenant::new(fair(450), Load::saturating(MS)).lives(8 * S, 20 * S),
        ]);
        let report = run(&setup, 11 * S);
        let had = report.ran(1, 8 * S + 100 * MS, 10 * S + 100 * MS);
        assert!(had >= 810 * MS, "{steps:?}: {} of 900 ms after the other woke", had / MS);
    }
}

#[test]
fn slice_that_slept_beside_a_limited_one_takes_only_its_share() {
    let strict = tranche_domain::compute::ComputeTerms::of_mode(
        tranche_domain::request::ComputeMode::Strict,
        vec![arena::gpu(0)],
        arena::permille(100),
    );
    let setup = Setup::new(vec![
        Tenant::new(strict, Load::saturating(MS)),
        Tenant::new(fair(450), Load::saturating(MS)),
        Tenant::new(fair(450), Load::saturating(MS)).lives(8 * S, 20 * S),
    ]);
    let report = run(&setup, 11 * S);
    let had = report.ran(1, 8 * S + 100 * MS, 10 * S + 100 * MS);
    assert!(had >= 810 * MS, "{} of 900 ms after the other woke", had / MS);
}
