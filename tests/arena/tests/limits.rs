//! Limits, idle time, and terms that change while programs run.

use arena::{Action, Load, MS, S, Setup, Tenant, US, fair, gpu, permille, run};
use tranche_domain::compute::Terms;
use tranche_domain::request::ComputeMode;

fn strict(share: u32) -> Terms {
    Terms::of_mode(ComputeMode::Strict, vec![gpu(0)], permille(share))
}

#[test]
fn a_strict_slice_alone_never_exceeds_its_limit() {
    for kernel in [50 * US, MS, 10 * MS] {
        let setup = Setup::new(vec![
            Tenant::new(strict(300), Load::saturating(kernel)),
            Tenant::new(fair(500), Load::saturating(MS)).lives(100 * S, 100 * S),
        ]);
        let report = run(&setup, 31 * S);
        let most = (0..31).map(|window| report.ran(0, window * S, (window + 1) * S)).max().unwrap();
        assert!(most <= 320 * MS + kernel, "{} us in a second, by kernels of {} us", most / US, kernel / US);
        assert!(report.percent(0) >= 29.0, "{:.1} %", report.percent(0));
    }
}

#[test]
fn two_strict_slices_leave_the_rest_idle() {
    let setup = Setup::new(vec![
        Tenant::new(strict(500), Load::saturating(MS)),
        Tenant::new(strict(300), Load::saturating(MS)),
    ]);
    let report = run(&setup, 31 * S);
    assert!((78.0..=82.0).contains(&report.busy()), "{:.1} % busy", report.busy());
    let (five, three) = (report.percent(0), report.percent(1));
    assert!((five - 50.0).abs() <= 1.0 && (three - 30.0).abs() <= 1.0, "{five:.1} and {three:.1} %");
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

#[test]
fn an_idle_neighbours_time_is_used_at_once_and_given_back_when_it_wakes() {
    let kernel = MS;
    let setup = Setup::new(vec![
        Tenant::new(fair(500), Load::saturating(kernel)),
        Tenant::new(fair(500), Load::saturating(kernel)).lives(2 * S, 3 * S),
    ]);
    let report = run(&setup, 5 * S);
    let share = |tenant, from, to| report.ran(tenant, from, to) as f64 / (to - from) as f64;
    assert!(share(0, S, 2 * S) >= 0.98);
    let given_back = report.runs_from(1, 2 * S).unwrap() - 2 * S;
    assert!(given_back <= 50 * MS + kernel, "{} ms", given_back / MS);
    assert!((share(1, 2 * S + 100 * MS, 3 * S) - 0.5).abs() <= 0.02);
    assert!(share(0, 3 * S + 50 * MS, 4 * S) >= 0.98, "{}", share(0, 3 * S + 50 * MS, 4 * S));
}

#[test]
fn best_effort_runs_on_what_is_idle_and_is_not_forgotten() {
    let nothing = Terms::of_mode(ComputeMode::BestEffort, vec![gpu(0)], permille(0));
    let busy = Tenant::new(fair(500), Load::saturating(MS)).lives(0, 10 * S);
    let setup = Setup::new(vec![busy, Tenant::new(nothing, Load::saturating(MS))]);
    let report = run(&setup, 15 * S);
    let beside = report.ran(1, S, 10 * S);
    assert!(beside > 0 && beside <= 90 * MS, "{} ms of 9 s beside one that is promised half", beside / MS);
    assert!(report.ran(1, 11 * S, 15 * S) >= 3900 * MS);
}

#[test]
fn new_shares_settle_within_a_tenth_of_a_second() {
    let load = Load::saturating(MS);
    let mut setup = Setup::new(vec![Tenant::new(fair(700), load), Tenant::new(fair(300), load)]);
    setup.script = vec![(2 * S, Action::Change(0, fair(300))), (2 * S, Action::Change(1, fair(700)))];
    let report = run(&setup, 4 * S);
    let after = report.ran(0, 2 * S + 100 * MS, 2 * S + 600 * MS) as f64 / (500 * MS) as f64;
    assert!((after - 0.3).abs() <= 0.03, "{after:.3}");
}

#[test]
fn a_frozen_slice_stops_within_its_queue_and_goes_on_when_thawed() {
    let load = Load::saturating(MS);
    let mut setup = Setup::new(vec![Tenant::new(fair(500), load), Tenant::new(fair(500), load)]);
    let frozen = Terms { frozen: true, ..fair(500) };
    setup.script = vec![(2 * S, Action::Change(0, frozen)), (3 * S, Action::Change(0, fair(500)))];
    let report = run(&setup, 5 * S);
    assert_eq!(report.ran(0, 2 * S + 20 * MS, 3 * S), 0);
    assert!(report.ran(1, 2 * S + 20 * MS, 3 * S) >= 970 * MS);
    let back = report.ran(0, 3 * S + 100 * MS, 4 * S + 100 * MS);
    assert!(back.abs_diff(500 * MS) <= 20 * MS, "{} ms in the second after", back / MS);
}
