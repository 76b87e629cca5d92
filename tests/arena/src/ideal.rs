//! An ideal scheduler: one kernel at a time, the least served tenant first, without costs or delays.

use crate::chance::Chance;
use crate::load::Load;
use crate::report::Report;
use crate::setup::Setup;

/// Runs the saturating programs of a setup, the first of each tenant, in the ideal way.
///
/// # Panics
/// If a tenant's first program does not saturate.
pub fn run(setup: &Setup, length: u64) -> Report {
    let mut report = Report::new(setup.tenants.len(), length);
    let mut chances: Vec<Chance> =
        (0..setup.tenants.len()).map(|tenant| crate::program::chance(setup.seed, tenant, 0)).collect();
    let mut served = vec![0_u128; setup.tenants.len()];
    let mut now = 0;
    while now < length {
        let weight = |tenant: usize| u128::from(setup.tenants[tenant].terms.request.get().max(1));
        let next = (0..served.len()).min_by_key(|tenant| served[*tenant] * 1000 / weight(*tenant));
        let next = next.expect("there is a tenant");
        let Load::Saturating { kernels, .. } = setup.tenants[next].programs[0].load else {
            panic!("tenant {next} does not saturate")
        };
        let kernel = kernels.draw(&mut chances[next]);
        let takes = setup.driver.clock.stretch(kernel, now);
        let end = (now + takes).min(length);
        report.add_ran(next, now, end);
        report.add_work(next, end, kernel);
        served[next] += u128::from(takes);
        now += takes;
    }
    report
}
