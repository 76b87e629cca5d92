//! Shares hold, and what they cost.

use arena::{Lengths, Load, MS, Policy, Program, Report, S, Setup, Tenant, US, fair, ideal, run};

/// Thirty windows after the first.
const GAME: u64 = 31 * S;

const SPLITS: [&[u32]; 4] = [&[500, 300, 200], &[700, 300], &[900, 100], &[125; 8]];

fn all(weights: &[u32], load: Load) -> Setup {
    Setup::new(weights.iter().map(|weight| Tenant::new(fair(*weight), load)).collect())
}

fn percents(weights: &[u32]) -> Vec<f64> {
    let total: u32 = weights.iter().sum();
    weights.iter().map(|weight| 100.0 * f64::from(*weight) / f64::from(total)).collect()
}

/// The longest kernel as a part of a window, in percentage points.
fn grain(report: &Report) -> f64 {
    let longest = report.longest.iter().max().copied().unwrap_or(0);
    100.0 * longest as f64 / S as f64
}

/// A tenant's part of the GPU time of all, in percent.
fn part(report: &Report, tenant: usize, from: u64, to: u64) -> f64 {
    100.0 * report.ran(tenant, from, to) as f64 / report.ran_by_all(from, to) as f64
}

fn holds(weights: &[u32], setup: &Setup) {
    let (report, bare) = (run(setup, GAME), run(&setup.under(Policy::Unscheduled), GAME));
    let (mean, worst) = report.errors(&percents(weights));
    let cost = report.throughput() / bare.throughput();
    assert!(mean <= 1.0, "{weights:?}: off by {mean:.2} pp in the mean");
    assert!(worst <= 3.0 + grain(&report), "{weights:?}: off by {worst:.2} pp in the worst window");
    assert!(cost >= 0.98, "{weights:?}: {cost:.3} of what runs unscheduled");
}

#[test]
fn shares_hold_for_short_kernels() {
    SPLITS.iter().for_each(|weights| holds(weights, &all(weights, Load::saturating(50 * US))));
}

/// Keeps a queue so short that mostly no marker stands in it. A slice that seems idle then need not be.
#[test]
fn shares_hold_for_kernels_that_are_done_before_the_next_mark() {
    holds(&[500, 300, 200], &all(&[500, 300, 200], Load::saturating(10 * US)));
}

#[test]
fn shares_hold_for_kernels_of_a_millisecond() {
    SPLITS.iter().for_each(|weights| holds(weights, &all(weights, Load::saturating(MS))));
}

/// A program that launches one of five graphs each time, which take 0.2 to 7 ms.
fn of_graphs() -> Program {
    let load = Load::Saturating { kernels: Lengths::LogUniform(200 * US, 7 * MS), ahead: 16 };
    Program { graphs: 5, ..Program::new(load) }
}

fn graphs(request: u32) -> Tenant {
    Tenant { terms: fair(request), programs: vec![of_graphs()] }
}

#[test]
fn shares_hold_for_graphs() {
    for weights in SPLITS {
        holds(weights, &Setup::new(weights.iter().copied().map(graphs).collect()));
    }
}

#[test]
fn graphs_gain_nothing_beside_kernels() {
    for kernel in [50 * US, MS] {
        let setup = Setup::new(vec![graphs(500), Tenant::new(fair(500), Load::saturating(kernel))]);
        holds(&[500, 500], &setup);
    }
}

#[test]
fn mixed_kernels_are_shared_nearly_as_by_an_ideal_scheduler() {
    let mixed = Load::Saturating { kernels: Lengths::LogUniform(50 * US, 40 * MS), ahead: 16 };
    for weights in SPLITS {
        let setup = all(weights, mixed);
        let promised = percents(weights);
        let (mean, worst) = run(&setup, GAME).errors(&promised);
        let (ideal_mean, ideal_worst) = ideal::run(&setup, GAME).errors(&promised);
        assert!(mean <= ideal_mean + 0.5, "{weights:?}: {mean:.2} against {ideal_mean:.2} pp in the mean");
        assert!(worst <= ideal_worst + 1.5, "{weights:?}: {worst:.2} against {ideal_worst:.2} pp at worst");
    }
}

#[test]
fn one_with_kernels_forty_times_as_long_gets_no_more() {
    let tenants =
        vec![Tenant::new(fair(700), Load::saturating(MS)), Tenant::new(fair(300), Load::saturating(40 * MS))];
    let report = run(&Setup::new(tenants), GAME);
    let (mean, worst) = report.errors(&[70.0, 30.0]);
    assert!(mean <= 2.5 && worst <= 3.0 + grain(&report), "{mean:.2} {worst:.2}");
    assert!((report.percent(1) - 30.0).abs() <= 0.5, "{}", report.percent(1));
}

#[test]
fn many_processes_gain_nothing() {
    let load = Load::saturating(MS);
    let extra = |process| Program { process, ..Program::new(load) };
    let many = (1..4).map(extra).fold(Tenant::new(fair(500), load), Tenant::and);
    let report = run(&Setup::new(vec![many, Tenant::new(fair(500), load)]), GAME);
    // Its processes take turns on the GPU among themselves, and that comes out of its own share.
    let gains: Vec<f64> = report.windows().map(|(from, to)| part(&report, 0, from, to) - 50.0).collect();
    let mean = gains.iter().sum::<f64>() / gains.len() as f64;
    let worst = gains.iter().copied().fold(f64::MIN, f64::max);
    assert!(
        mean <= 1.0 && worst <= 3.1,
        "four processes gained {mean:.2} pp in the mean, {worst:.2} at most"
    );
    assert!(mean >= -6.0, "and lost {:.2} pp", -mean);
    // So the other one must have the time that it is due, too.
    let had: Vec<f64> = report.windows().map(|(from, to)| report.ran(1, from, to) as f64 / 1e7).collect();
    let mean = had.iter().sum::<f64>() / had.len() as f64;
    let least = had.iter().copied().fold(f64::MAX, f64::min);
    assert!(mean >= 49.0 && least >= 46.9, "beside them one got {mean:.2} %, {least:.2} at least");
}

#[test]
fn many_streams_gain_nothing() {
    let load = Load::saturating(MS);
    let extra = |stream| Program { stream, ..Program::new(load) };
    let many = (2..5).map(extra).fold(Tenant::new(fair(500), load), Tenant::and);
    let setup = Setup::new(vec![many, Tenant::new(fair(500), load)]);
    let (mean, worst) = run(&setup, GAME).errors(&[50.0, 50.0]);
    assert!(mean <= 1.0 && worst <= 3.1, "{mean:.2} {worst:.2}");
}

#[test]
fn programs_that_wait_for_each_kernel_share_and_keep_the_gpu_busy() {
    for (weights, gap, least) in [(&[500, 300, 200][..], 200 * US, 0.95), (&[700, 300], 200 * US, 0.90)] {
        let setup = all(weights, Load::synchronous(MS, gap));
        let (report, bare) = (run(&setup, GAME), run(&setup.under(Policy::Unscheduled), GAME));
        let (mean, worst) = report.errors(&percents(weights));
        let cost = report.throughput() / bare.throughput();
        assert!(cost >= least, "{weights:?}: {cost:.3} of what runs unscheduled");
        assert!(mean <= 1.0 && worst <= 3.1, "{weights:?}: {mean:.2} {worst:.2}");
    }
}

#[test]
fn programs_that_wait_for_brief_kernels_and_want_more_than_there_is_get_their_shares() {
    let weights = [500, 300, 200];
    let setup = all(&weights, Load::synchronous(100 * US, 50 * US));
    let (report, bare) = (run(&setup, GAME), run(&setup.under(Policy::Unscheduled), GAME));
    let (mean, worst) = report.errors(&percents(&weights));
    let cost = report.throughput() / bare.throughput();
    assert!(cost >= 0.90, "{cost:.3} of what runs unscheduled");
    assert!(mean <= 1.0 && worst <= 3.1, "{mean:.2} {worst:.2}");
}

#[test]
fn however_many_wait_for_kernels_however_long_little_of_the_gpu_is_lost() {
    let loads = [(100, 50), (200, 100), (250, 80), (300, 100), (300, 200), (400, 100), (1000, 200)];
    for (slices, (kernel, gap)) in [3, 4, 8].into_iter().flat_map(|slices| loads.map(|load| (slices, load))) {
        let weights = vec![1000 / slices; slices as usize];
        let setup = all(&weights, Load::synchronous(kernel * US, gap * US));
        let (report, bare) = (run(&setup, 5 * S), run(&setup.under(Policy::Unscheduled), 5 * S));
        let part = report.throughput() / bare.throughput();
        // Eight that want three times the GPU have turns or not, from one second to the next.
        let least = if (slices, kernel) == (8, 250) { 0.78 } else { 0.90 };
        assert!(
            part >= least,
            "{slices} slices, {kernel} us each {gap} us: {part:.3} of what runs unscheduled"
        );
    }
}

#[test]
fn programs_with_brief_kernels_that_leave_time_to_spare_lose_little_of_it() {
    let setup = all(&[500, 300, 200], Load::synchronous(50 * US, 200 * US));
    let (report, bare) = (run(&setup, GAME), run(&setup.under(Policy::Unscheduled), GAME));
    let part = report.throughput() / bare.throughput();
    assert!(part >= 0.90, "{part:.3} of what runs unscheduled");
}

#[test]
fn one_that_thinks_between_kernels_gets_its_half_beside_one_that_never_does() {
    let tenants =
        vec![Tenant::new(fair(500), Load::synchronous(MS, MS)), Tenant::new(fair(500), Load::saturating(MS))];
    let report = run(&Setup::new(tenants), GAME);
    let (thinks, saturates) = (report.percent(0), report.percent(1));
    assert!(thinks >= 44.0, "of the 50 % that it can use it got {thinks:.1} %");
    assert!(thinks + saturates >= 90.0, "{thinks:.1} % and {saturates:.1} %");
}

#[test]
fn tenants_that_launch_a_little_now_and_then_are_left_alone() {
    for (kernel, gap) in [(20 * US, 500 * US), (50 * US, 2 * MS), (200 * US, MS)] {
        let setup = all(&[500, 300, 200], Load::synchronous(kernel, gap));
        let (report, bare) = (run(&setup, 5 * S), run(&setup.under(Policy::Unscheduled), 5 * S));
        let part = report.throughput() / bare.throughput();
        assert!(part >= 0.99, "{} us each {} us: {part:.3}", kernel / US, gap / US);
        assert!(report.looks <= 5 * 300, "{} decisions in 5 s", report.looks);
    }
}

#[test]
fn who_saturates_beside_two_that_launch_a_little_gets_what_they_leave() {
    let little = Load::synchronous(50 * US, 200 * US);
    let setup = Setup::new(vec![
        Tenant::new(fair(300), little),
        Tenant::new(fair(300), little),
        Tenant::new(fair(400), Load::saturating(MS)).lives(2 * S, 4 * S),
    ]);
    let report = run(&setup, 6 * S);
    assert!(report.ran(2, 2 * S + 100 * MS, 4 * S) >= 1900 * 5 / 10 * MS, "{}", report.ran(2, 2 * S, 4 * S));
    for tenant in 0..2 {
        let (before, after) = (report.ran(tenant, S, 2 * S), report.ran(tenant, 5 * S, 6 * S));
        assert!(before >= 155 * MS && after >= 155 * MS, "{before} {after}");
    }
}

#[test]
fn a_lone_tenant_runs_as_if_it_had_no_slice() {
    for load in [Load::saturating(50 * US), Load::saturating(MS), Load::synchronous(100 * US, 50 * US)] {
        let mut tenants = vec![Tenant::new(fair(500), load)];
        tenants.push(Tenant::new(fair(500), load).lives(100 * S, 100 * S));
        let setup = Setup::new(tenants);
        let (report, bare) = (run(&setup, 5 * S), run(&setup.under(Policy::Unscheduled), 5 * S));
        let part = report.throughput() / bare.throughput();
        assert!(part >= 0.98, "{load:?}: {part:.3}");
    }
}

#[test]
fn the_same_game_is_played_twice_alike() {
    let setup = all(&[500, 300, 200], Load::synchronous(300 * US, 100 * US));
    let (one, other) = (run(&setup, 5 * S), run(&setup, 5 * S));
    assert_eq!((one.kernels, one.looks, one.leases), (other.kernels, other.looks, other.leases));
    assert_eq!(one.rounds, other.rounds);
}
