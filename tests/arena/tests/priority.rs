//! An inference service beside training.

use arena::{Lengths, Load, MS, Policy, Report, S, Setup, Tenant, US, fair, run};
use tranche_domain::compute::{ComputeTerms, Priority};

/// Fifty requests a second of one kernel of a millisecond.
fn inference() -> Tenant {
    let load = Load::Rounds { kernels: Lengths::Fixed(MS), batch: 1, gap: Lengths::Uniform(9 * MS, 29 * MS) };
    Tenant::new(ComputeTerms { priority: Priority::new(1), ..fair(300) }, load)
}

fn beside(kernel: u64) -> (Report, Report, Report) {
    let setup = Setup::new(vec![inference(), Tenant::new(fair(700), Load::saturating(kernel))]);
    (run(&setup, 31 * S), run(&setup.under(Policy::Unscheduled), 31 * S), run(&setup.alone(0), 31 * S))
}

#[test]
fn an_inference_request_waits_for_two_kernels_of_training_at_most() {
    for kernel in [100 * US, 500 * US, MS, 2 * MS] {
        let (report, bare, solo) = beside(kernel);
        let (p99, alone) = (report.p99(0), solo.p99(0));
        let bound = alone + 2 * kernel + 60 * US;
        assert!(
            p99 <= bound,
            "beside kernels of {} us p99 is {} us, alone {}, unscheduled {}; bound {}",
            kernel / US,
            p99 / US,
            alone / US,
            bare.p99(0) / US,
            bound / US
        );
    }
}

#[test]
fn training_keeps_what_inference_leaves() {
    for kernel in [100 * US, 500 * US, MS, 2 * MS] {
        let (report, _, _) = beside(kernel);
        let left = 100.0 - report.percent(0);
        let part = report.percent(1) / left;
        assert!(
            part >= 0.85,
            "{:.1} % of the {left:.1} % left, by kernels of {} us",
            report.percent(1),
            kernel / US
        );
    }
}

#[test]
fn a_high_priority_takes_no_more_than_its_request_from_others() {
    let greedy = ComputeTerms { priority: Priority::new(5), ..fair(300) };
    let setup = Setup::new(vec![
        Tenant::new(greedy, Load::saturating(MS)),
        Tenant::new(fair(700), Load::saturating(MS)),
    ]);
    let report = run(&setup, 31 * S);
    assert!((report.percent(0) - 30.0).abs() <= 2.0, "{:.1} %", report.percent(0));
    assert!((report.percent(1) - 70.0).abs() <= 2.0, "{:.1} %", report.percent(1));
}

#[test]
fn what_nobody_was_promised_goes_by_priority() {
    let first = ComputeTerms { priority: Priority::new(5), ..fair(200) };
    let setup = Setup::new(vec![
        Tenant::new(first, Load::saturating(MS)),
        Tenant::new(fair(300), Load::saturating(MS)),
    ]);
    let report = run(&setup, 31 * S);
    assert!(report.percent(0) >= 65.0, "{:.1} %", report.percent(0));
    assert!(report.percent(1) >= 29.0, "{:.1} %", report.percent(1));
}
