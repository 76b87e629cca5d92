//! Kernels of one program that run side by side where they leave room for each other.

use arena::{Lengths, Load, MS, Policy, Program, Report, S, Setup, Tenant, US, fair, run};

const GAME: u64 = 21 * S;

/// A program with a thread and a stream for each of the loads.
fn wide(request: u32, loads: &[Load]) -> Tenant {
    let programs = loads.iter().zip(1..).map(|(load, stream)| Program { stream, ..Program::new(*load) });
    Tenant { terms: fair(request), programs: programs.collect() }
}

/// One kernel at a time in each of four streams.
fn four(request: u32, kernel: u64) -> Tenant {
    wide(request, &[Load::synchronous(kernel, 10 * US); 4])
}

/// Work that a tenant finished per GPU time that it had. The ratio is 1 where no kernels run side by side.
fn worth(report: &Report, tenant: usize) -> f64 {
    report.finished(tenant, S, GAME) as f64 / report.ran(tenant, S, GAME) as f64
}

#[test]
fn kernels_that_run_side_by_side_still_do_beside_a_neighbour_who_loses_nothing() {
    for (kernel, neighbours) in [(5 * MS, MS), (MS, 50 * US), (20 * MS, MS)] {
        let setup = Setup::new(vec![four(500, kernel), Tenant::new(fair(500), Load::saturating(neighbours))]);
        let (report, free) = (run(&setup, GAME), run(&setup.alone(0).under(Policy::Unscheduled), GAME));
        let part = worth(&report, 0) / worth(&free, 0);
        assert!(part >= 0.9, "kernels of {} us: {part:.2} of what the same time is worth alone", kernel / US);
        let (mean, worst) = report.errors(&[50.0, 50.0]);
        let grain = kernel.max(neighbours) as f64 / 1e7;
        assert!(mean <= 1.0 && worst <= 3.0 + grain, "kernels of {} us: {mean:.2} {worst:.2}", kernel / US);
        assert!((worth(&report, 1) - 1.0).abs() <= 0.01, "{:.3}", worth(&report, 1));
    }
}

#[test]
fn two_programs_of_kernels_side_by_side_share_and_both_finish_more() {
    let setup = Setup::new(vec![four(700, 5 * MS), four(300, 2 * MS)]);
    let report = run(&setup, GAME);
    let (mean, worst) = report.errors(&[70.0, 30.0]);
    for tenant in 0..2 {
        let worth = worth(&report, tenant);
        assert!(worth >= 3.5, "tenant {tenant} finished {worth:.2} kernels in the time of one");
    }
    assert!(mean <= 1.0 && worst <= 3.5, "{mean:.2} {worst:.2}");
}

#[test]
fn queues_of_several_streams_run_side_by_side_too() {
    let load = Load::Saturating { kernels: Lengths::Fixed(MS), ahead: 4 };
    let setup = Setup::new(vec![wide(500, &[load; 4]), Tenant::new(fair(500), Load::saturating(MS))]);
    let report = run(&setup, GAME);
    let (mean, worst) = report.errors(&[50.0, 50.0]);
    assert!(worth(&report, 0) >= 3.5, "{:.2}", worth(&report, 0));
    assert!(mean <= 1.0 && worst <= 3.1, "{mean:.2} {worst:.2}");
}
