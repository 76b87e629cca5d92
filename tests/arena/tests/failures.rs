//! Tenants and daemons that stop or die, and slices over several GPUs.

use arena::{Action, Load, MS, S, Setup, Tenant, fair, gpu, permille, run};
use tranche_domain::compute::Terms;
use tranche_domain::request::ComputeMode;

fn pair(kernel: u64, script: Vec<(u64, Action)>) -> Setup {
    let load = Load::saturating(kernel);
    let mut setup = Setup::new(vec![Tenant::new(fair(500), load), Tenant::new(fair(500), load)]);
    setup.script = script;
    setup
}

#[test]
fn a_tenant_killed_at_any_moment_of_its_turn_holds_nobody_up() {
    for step in 0..25 {
        let at = 2 * S + step * MS;
        let report = run(&pair(MS, vec![(at, Action::Kill(0))]), 3 * S);
        let from = report.runs_from(1, at).unwrap() - at;
        assert!(from <= 50 * MS, "{} ms after {step} ms", from / MS);
        assert!(report.ran(1, at + 51 * MS, 3 * S) >= (3 * S - at - 51 * MS) / 100 * 97);
    }
}

#[test]
fn a_tenant_stopped_at_any_moment_of_its_turn_holds_nobody_up() {
    for load in [Load::saturating(MS), Load::saturating(50_000), Load::synchronous(MS, 200_000)] {
        for step in 0..25 {
            let at = 2 * S + step * MS;
            let mut setup =
                Setup::new(vec![Tenant::new(fair(500), load), Tenant::new(fair(500), Load::saturating(MS))]);
            setup.script = vec![(at, Action::Stop(0)), (at + S, Action::Continue(0))];
            let report = run(&setup, 5 * S);
            let from = report.runs_from(1, at).unwrap() - at;
            assert!(from <= 51 * MS, "{load:?}: {} ms after {step} ms", from / MS);
            let meanwhile = report.ran(1, at + 100 * MS, at + S);
            assert!(
                meanwhile >= 850 * MS,
                "{load:?}: {} ms of 900 while the other stood still",
                meanwhile / MS
            );
            let after = report.ran(0, at + S + 200 * MS, at + S + 700 * MS);
            assert!(after >= 190 * MS, "{load:?}: {} ms of 500 when it went on", after / MS);
        }
    }
}

#[test]
fn without_a_daemon_nobody_stalls_and_shares_are_right_again_after_it_returned() {
    let load = Load::saturating(MS);
    for step in 0..10 {
        let dies = 2 * S + step * 7 * MS;
        let mut setup = Setup::new(vec![Tenant::new(fair(700), load), Tenant::new(fair(300), load)]);
        setup.script = vec![(dies, Action::DaemonDies), (dies + 3 * S, Action::DaemonReturns)];
        let report = run(&setup, dies + 8 * S);
        for tenant in 0..2 {
            let from = report.runs_from(tenant, dies + 20 * MS).unwrap() - dies;
            assert!(from <= 1100 * MS, "tenant {tenant} stood still for {} ms", from / MS);
            assert!(report.ran(tenant, dies + 2 * S, dies + 3 * S) >= 300 * MS);
        }
        let back = dies + 4 * S;
        let share = report.ran(0, back, back + 3 * S) as f64 / (3 * S) as f64;
        assert!((share - 0.7).abs() <= 0.02, "{share:.3}");
    }
}

fn on(gpus: &[u8], request: u32) -> Terms {
    Terms::of_mode(ComputeMode::Fair, gpus.iter().copied().map(gpu).collect(), permille(request))
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
