//! Tenants and daemons that stop or die, and slices over several GPUs.

use arena::{Action, Load, MS, S, Setup, Tenant, US, fair, gpu, permille, run};
use tranche_domain::compute::ComputeTerms;
use tranche_domain::request::ComputeMode;

/// Loads of a victim that is killed or stopped, and the kernel that then runs to its end.
const VICTIMS: [(Load, u64); 5] = [
    (Load::saturating(MS), MS),
    (Load::saturating(50 * US), 50 * US),
    (Load::saturating(10 * MS), 10 * MS),
    (Load::saturating(40 * MS), 40 * MS),
    (Load::synchronous(MS, 200 * US), MS),
];

/// Asserts that the victim's neighbour runs again within 50 ms and a kernel.
fn assert_goes_on(report: &arena::Report, at: u64, kernel: u64, what: &str) {
    let from = report.runs_from(1, at).expect("it runs again") - at;
    assert!(from <= 50 * MS + kernel, "{what}: {} ms", from / MS);
}

#[test]
fn a_tenant_killed_at_any_moment_of_its_turn_holds_nobody_up() {
    for ((load, kernel), step) in
        VICTIMS.into_iter().flat_map(|victim| (0..25).map(move |step| (victim, step)))
    {
        let at = S + step * MS;
        let mut setup =
            Setup::new(vec![Tenant::new(fair(500), load), Tenant::new(fair(500), Load::saturating(MS))]);
        setup.script = vec![(at, Action::Kill(0))];
        let report = run(&setup, 2 * S);
        assert_goes_on(&report, at, kernel, &format!("{load:?} killed after {step} ms"));
        let rest = report.ran(1, at + 50 * MS + kernel, 2 * S);
        assert!(rest >= (2 * S - at - 50 * MS - kernel) / 100 * 97, "{load:?}: {} ms", rest / MS);
    }
}

#[test]
fn a_tenant_stopped_at_any_moment_of_its_turn_holds_nobody_up() {
    for ((load, kernel), step) in
        VICTIMS.into_iter().flat_map(|victim| (0..25).map(move |step| (victim, step)))
    {
        let at = S + step * MS;
        let mut setup =
            Setup::new(vec![Tenant::new(fair(500), load), Tenant::new(fair(500), Load::saturating(MS))]);
        setup.script = vec![(at, Action::Stop(0)), (at + S, Action::Continue(0))];
        let report = run(&setup, 4 * S);
        assert_goes_on(&report, at, kernel, &format!("{load:?} stopped after {step} ms"));
        let meanwhile = report.ran(1, at + 100 * MS + kernel, at + S);
        let least = (900 * MS - kernel) / 100 * 95;
        assert!(meanwhile >= least, "{load:?}: {} ms while the other stood still", meanwhile / MS);
        let after = report.ran(0, at + S + 200 * MS, at + S + 700 * MS);
        assert!(after >= 190 * MS, "{load:?}: {} ms of 500 when it went on", after / MS);
    }
}

#[test]
fn killed_daemon_stalls_nobody_for_50_ms_and_shares_are_right_again_after_it_returned() {
    let load = Load::saturating(MS);
    // Over the time between two of its heartbeats.
    for step in 0..12 {
        let dies = 2 * S + step * 19 * MS;
        let mut setup = Setup::new(vec![Tenant::new(fair(700), load), Tenant::new(fair(300), load)]);
        setup.script = vec![(dies, Action::DaemonDies), (dies + 3 * S, Action::DaemonReturns)];
        let report = run(&setup, dies + 8 * S);
        for tenant in 0..2 {
            let stood = report.longest_pause(tenant, S, dies + 8 * S);
            assert!(stood <= 50 * MS, "tenant {tenant} stood still for {} ms", stood / MS);
            assert!(report.ran(tenant, dies + 2 * S, dies + 3 * S) >= 300 * MS);
        }
        let back = dies + 4 * S;
        for second in 0..4 {
            let (from, to) = (back + second * S, back + (second + 1) * S);
            let share = report.ran(0, from, to) as f64 / S as f64;
            assert!((share - 0.7).abs() <= 0.03, "{share:.3} in second {second} after the first");
        }
    }
}

fn on(gpus: &[u8], request: u32) -> ComputeTerms {
    ComputeTerms::of_mode(ComputeMode::Fair, gpus.iter().copied().map(gpu).collect(), permille(request))
}

#[test]
fn a_slice_over_two_gpus_gets_its_turns_beside_one_on_each() {
    let load = Load::saturating(MS);
    let setup = Setup::new(vec![
        Tenant::new(on(&[0, 1], 500), load),
        Tenant::new(on(&[0], 500), load),
        Tenant::new(on(&[1], 500), load),
    ]);
    let report = run(&setup, 6 * S);
    // The first tenant's time counts on both of its GPUs.
    let (both, one, other) = (report.percent(0) / 2.0, report.percent(1), report.percent(2));
    assert!(both >= 40.0 && one >= 40.0 && other >= 40.0, "{both:.1} {one:.1} {other:.1}");
}

#[test]
fn two_slices_over_the_same_two_gpus_never_wait_for_each_other_for_ever() {
    let load = Load::saturating(MS);
    let setup = Setup::new(vec![Tenant::new(on(&[0, 1], 500), load), Tenant::new(on(&[0, 1], 500), load)]);
    let report = run(&setup, 6 * S);
    for tenant in 0..2 {
        let percent = report.percent(tenant) / 2.0;
        assert!((percent - 50.0).abs() <= 3.0, "{percent:.1} %");
    }
}
