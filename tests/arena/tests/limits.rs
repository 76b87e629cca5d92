//! Limits, idle time, and terms that change while programs run.

use arena::{
    Action, Delays, Lengths, Load, MS, Program, Report, S, Setup, Tenant, US, fair, gpu, permille, run,
};
use tranche_domain::compute::ComputeTerms;
use tranche_domain::request::ComputeMode;

fn strict(share: u32) -> ComputeTerms {
    ComputeTerms::of_mode(ComputeMode::Strict, vec![gpu(0)], permille(share))
}

fn mixed(low: u64, high: u64) -> Load {
    Load::Saturating { kernels: Lengths::LogUniform(low, high), ahead: 16 }
}

#[test]
fn a_strict_slice_alone_never_exceeds_its_limit() {
    let kernels = [50 * US, MS, 10 * MS, 40 * MS].map(Load::saturating);
    let waiting = [Load::synchronous(MS, 200 * US), Load::synchronous(50 * US, 20 * US)];
    let mixed = Load::Saturating { kernels: Lengths::LogUniform(50 * US, 40 * MS), ahead: 16 };
    for load in kernels.into_iter().chain(waiting).chain([mixed]) {
        let setup = Setup::new(vec![
            Tenant::new(strict(300), load),
            Tenant::new(fair(500), Load::saturating(MS)).lives(100 * S, 100 * S),
        ]);
        let report = run(&setup, 31 * S);
        let (most, kernel) = (report.most_in_a_second(0), report.longest[0]);
        assert!(most <= 320 * MS + kernel, "{} us in a second, by {load:?}", most / US);
        // One that waits for each of its kernels is closed and opened between two of them.
        let least = if matches!(load, Load::Rounds { .. }) { 24.0 } else { 28.5 };
        assert!(report.percent(0) >= least, "{:.1} % by {load:?}", report.percent(0));
    }
}

#[test]
fn graphs_do_not_get_round_a_limit() {
    let graphs = Program { graphs: 5, ..Program::new(mixed(200 * US, 7 * MS)) };
    let report = run(&Setup::new(vec![Tenant { terms: strict(300), programs: vec![graphs] }]), 31 * S);
    let (most, graph) = (report.most_in_a_second(0), report.longest[0]);
    assert!(most <= 320 * MS + graph, "{} us in a second, by graphs of up to {} us", most / US, graph / US);
    assert!(report.percent(0) >= 29.0, "{:.1} %", report.percent(0));
}

#[test]
fn streams_and_processes_do_not_get_round_a_limit() {
    let load = Load::saturating(MS);
    let streams = (2..5).map(|stream| Program { stream, ..Program::new(load) });
    let processes = (1..4).map(|process| Program { process, ..Program::new(load) });
    // Processes take turns on the GPU among themselves, and that comes out of their own share.
    for (programs, least) in [(streams.collect::<Vec<_>>(), 29.0), (processes.collect(), 28.0)] {
        let tenant = programs.into_iter().fold(Tenant::new(strict(300), load), Tenant::and);
        let report = run(&Setup::new(vec![tenant]), 31 * S);
        let most = report.most_in_a_second(0);
        assert!(most <= 321 * MS, "{} us in a second", most / US);
        assert!(report.percent(0) >= least, "{:.1} %", report.percent(0));
    }
}

#[test]
fn two_strict_slices_leave_the_rest_idle() {
    for kernel in [50 * US, MS] {
        let tenant = |share| Tenant::new(strict(share), Load::saturating(kernel));
        let report = run(&Setup::new(vec![tenant(500), tenant(300)]), 31 * S);
        for (from, to) in report.windows() {
            let busy = report.ran_by_all(from, to) as f64 / 1e7;
            assert!((78.0..=82.0).contains(&busy), "{busy:.1} % busy in a window");
        }
        let (five, three) = (report.percent(0), report.percent(1));
        assert!((five - 50.0).abs() <= 1.0 && (three - 30.0).abs() <= 1.0, "{five:.1} and {three:.1} %");
    }
}

/// A thread that gets no processor for a while reports neither an empty queue nor new work.
#[test]
fn a_strict_slice_that_is_held_up_now_and_then_never_exceeds_its_limit() {
    for kernel in [50 * US, MS, 5 * MS] {
        for pause in [3 * MS, 8 * MS, 30 * MS, 150 * MS] {
            let mut setup = Setup::new(vec![Tenant::new(strict(300), Load::saturating(kernel))]);
            let at = |turn: u64| S + turn * 417 * MS;
            let stop = |turn| (at(turn), Action::Stop(0));
            let go_on = |turn| (at(turn) + pause, Action::Continue(0));
            setup.script = (0..40).flat_map(|turn| [stop(turn), go_on(turn)]).collect();
            let report = run(&setup, 18 * S);
            let (most, least) = (report.most_in_a_second(0), report.percent(0));
            assert!(most <= 320 * MS + kernel, "{} us in a second, by {kernel} ns, {pause} ns", most / US);
            let due = 30.0 * (1.0 - pause as f64 / (417 * MS) as f64);
            assert!(least >= due - 2.0, "{least:.1} of {due:.1} % by {kernel} ns, {pause} ns");
        }
    }
}

#[test]
fn limits_hold_where_the_daemon_decides_before_the_driver_has_taken_the_launch() {
    for kernel in [50 * US, MS] {
        let tenant = |share| Tenant::new(strict(share), Load::saturating(kernel));
        for shares in [&[300][..], &[500, 300]] {
            let mut setup = Setup::new(shares.iter().copied().map(tenant).collect());
            setup.delays = Delays::prompt();
            let report = run(&setup, 31 * S);
            for (slice, share) in shares.iter().enumerate() {
                let most = report.most_in_a_second(slice);
                assert!(most <= u64::from(share + 20) * MS + kernel, "{shares:?}, {slice}: {} us", most / US);
                let found = report.percent(slice);
                assert!((found - f64::from(*share) / 10.0).abs() <= 1.0, "{shares:?}, {slice}: {found:.1} %");
            }
        }
    }
}

#[test]
fn a_strict_slice_beside_a_fair_one_gets_its_share_and_the_other_the_rest() {
    let setup = Setup::new(vec![
        Tenant::new(strict(300), Load::saturating(MS)),
        Tenant::new(fair(700), Load::saturating(MS)),
    ]);
    let report = run(&setup, 31 * S);
    let (strict, fair) = (report.percent(0), report.percent(1));
    assert!((strict - 30.0).abs() <= 1.0 && fair >= 68.0, "{strict:.1} and {fair:.1} %");
}

/// Plays two slices of which the second is idle but for half a second, from anywhere in a turn.
fn naps(kernels: [u64; 2], step: u64, judge: impl Fn(&Report, u64, u64)) {
    let (wakes, rests) = (S + step * 1_300 * US, 3 * S / 2 + step * 2_900 * US);
    let setup = Setup::new(vec![
        Tenant::new(fair(500), Load::saturating(kernels[0])),
        Tenant::new(fair(500), Load::saturating(kernels[1])).lives(wakes, rests),
    ]);
    judge(&run(&setup, 5 * S / 2), wakes, rests);
}

const PAIRS: [[u64; 2]; 5] = [[MS, MS], [50 * US, MS], [MS, 50 * US], [10 * MS, MS], [MS, 10 * MS]];

#[test]
fn an_idle_neighbours_time_is_used_at_once() {
    for (kernels, step) in PAIRS.into_iter().flat_map(|kernels| (0..10).map(move |step| (kernels, step))) {
        naps(kernels, step, |report, wakes, rests| {
            let idle = report.longest_idle(S / 2, 5 * S / 2);
            assert!(idle <= 50 * MS, "{kernels:?}: nobody ran for {} us", idle / US);
            // What it still had in its queue when it ended its work is its own.
            for (from, to) in [(S / 2, wakes), (rests + 50 * MS + 16 * kernels[1], 5 * S / 2)] {
                let share = part(report, 0, from, to);
                assert!(share >= 0.98, "{kernels:?}: {share:.3} of what is all its own");
            }
        });
    }
}

#[test]
fn an_idle_neighbours_time_is_given_back_when_it_wakes() {
    for (kernels, step) in PAIRS.into_iter().flat_map(|kernels| (0..10).map(move |step| (kernels, step))) {
        naps(kernels, step, |report, wakes, rests| {
            let back = report.runs_from(1, wakes).unwrap() - wakes / MS * MS;
            assert!(back <= 50 * MS + kernels[0], "{kernels:?}: after {} ms", back / MS);
            let share = part(report, 1, wakes + 50 * MS + kernels[0], rests);
            let grain = kernels[0].max(kernels[1]) as f64 / (rests - wakes) as f64;
            assert!((share - 0.5).abs() <= 0.03 + grain, "{kernels:?}: {share:.3} of its half");
        });
    }
}

fn part(report: &Report, tenant: usize, from: u64, to: u64) -> f64 {
    report.ran(tenant, from, to) as f64 / (to / MS * MS - from / MS * MS) as f64
}

#[test]
fn best_effort_runs_on_what_is_idle_and_is_not_forgotten() {
    let nothing = ComputeTerms::of_mode(ComputeMode::BestEffort, vec![gpu(0)], permille(0));
    let busy = Tenant::new(fair(500), Load::saturating(MS)).lives(0, 10 * S);
    let setup = Setup::new(vec![busy, Tenant::new(nothing, Load::saturating(MS))]);
    let report = run(&setup, 15 * S);
    let beside = report.ran(1, S, 10 * S);
    assert!(beside > 0 && beside <= 90 * MS, "{} ms of 9 s beside one that is promised half", beside / MS);
    assert!(report.ran(1, 11 * S, 15 * S) >= 3900 * MS);
}

/// Largest error of shares in percentage points, from a tenth of a second after a change.
fn off_after(report: &Report, change: u64, promised: &[f64]) -> f64 {
    let (from, to) = (change + 100 * MS, change + 600 * MS);
    let off = |tenant: usize| (100.0 * part(report, tenant, from, to) - promised[tenant]).abs();
    (0..promised.len()).map(off).fold(0.0, f64::max)
}

#[test]
fn new_shares_settle_within_a_tenth_of_a_second() {
    for (step, kernel) in
        [50 * US, MS, 5 * MS].into_iter().flat_map(|kernel| (0..6).map(move |at| (at, kernel)))
    {
        let load = Load::saturating(kernel);
        let at = S + step * 3 * MS;
        let mut setup = Setup::new(vec![Tenant::new(fair(700), load), Tenant::new(fair(300), load)]);
        setup.script = vec![(at, Action::Change(0, fair(300))), (at, Action::Change(1, fair(700)))];
        let off = off_after(&run(&setup, 2 * S), at, &[30.0, 70.0]);
        assert!(off <= 3.0 + grain(kernel), "{off:.2} pp by kernels of {} us", kernel / US);
    }
}

#[test]
fn new_shares_settle_as_fast_among_three_whose_kernels_differ() {
    let kernels = [50 * US, MS, 5 * MS];
    for (step, turn) in (0..6).flat_map(|step| (0..3).map(move |turn| (step, turn))) {
        let at = S + step * 3 * MS;
        let tenant = |(slice, share)| Tenant::new(fair(share), Load::saturating(kernels[(slice + turn) % 3]));
        let mut setup = Setup::new([500, 300, 200].into_iter().enumerate().map(tenant).collect());
        let change = |(slice, share)| (at, Action::Change(slice, fair(share)));
        setup.script = [200, 300, 500].into_iter().enumerate().map(change).collect();
        let off = off_after(&run(&setup, 2 * S), at, &[20.0, 30.0, 50.0]);
        assert!(
            off <= 3.0 + grain(5 * MS),
            "{off:.2} pp when the first has kernels of {} us",
            kernels[turn] / US
        );
    }
}

/// A kernel as a part of half a second, in percentage points.
fn grain(kernel: u64) -> f64 {
    100.0 * kernel as f64 / (500 * MS) as f64
}

#[test]
fn a_frozen_slice_stops_within_its_queue_and_goes_on_when_thawed() {
    let load = Load::saturating(MS);
    let mut setup = Setup::new(vec![Tenant::new(fair(500), load), Tenant::new(fair(500), load)]);
    let frozen = ComputeTerms { frozen: true, ..fair(500) };
    setup.script = vec![(2 * S, Action::Change(0, frozen)), (3 * S, Action::Change(0, fair(500)))];
    let report = run(&setup, 5 * S);
    assert_eq!(report.ran(0, 2 * S + 20 * MS, 3 * S), 0);
    assert!(report.ran(1, 2 * S + 20 * MS, 3 * S) >= 970 * MS);
    let back = report.ran(0, 3 * S + 100 * MS, 4 * S + 100 * MS);
    assert!(back.abs_diff(500 * MS) <= 20 * MS, "{} ms in the second after", back / MS);
}
