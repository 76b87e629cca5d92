//! Requests of a slice beside others of its own priority.

use arena::{Lengths, Load, MS, Policy, S, Setup, Tenant, US, fair, run};

const GAME: u64 = 31 * S;

/// Thirty kernels of 40 us each 50 ms.
fn request() -> Tenant {
    let gap = Lengths::Uniform(45 * MS, 51 * MS);
    Tenant::new(fair(500), Load::Rounds { kernels: Lengths::Fixed(40 * US), batch: 30, gap })
}

#[test]
fn request_beside_a_busy_slice_waits_as_unscheduled() {
    let deep = |kernel| (kernel, Load::Saturating { kernels: Lengths::Fixed(kernel), ahead: 400 });
    let steps = Load::Rounds { kernels: Lengths::Fixed(100 * US), batch: 400, gap: Lengths::Fixed(100 * US) };
    for (kernel, load) in [deep(50 * US), deep(200 * US), deep(MS), deep(10 * MS), (100 * US, steps)] {
        let setup = Setup::new(vec![request(), Tenant::new(fair(500), load)]);
        let (report, bare, solo) =
            (run(&setup, GAME), run(&setup.under(Policy::Unscheduled), GAME), run(&setup.alone(0), GAME));
        let (p99, free, alone) = (report.p99(0), bare.p99(0), solo.p99(0));
        let work = report.throughput() / bare.throughput();
        let shown = format!("beside {load:?}: p99 {} us", p99 / US);
        // One kernel more than the bound where these are brief: two are queued, so that the GPU has no gaps. The slowest wait
        // for a slice of the hardware, too: with most seeds beside kernels of 0.2 ms, with none of eight beside 50 us.
        let brief = if kernel <= 200 * US { 2 * MS } else { 0 };
        let bound = alone * 3 / 2 + (2 * kernel).max(kernel + 100 * US) + brief;
        assert!(p99 <= free + free / 20, "{shown}, unscheduled {}", free / US);
        let is_deep = matches!(load, Load::Saturating { .. });
        assert!(!is_deep || p99 <= bound, "{shown}, alone {}", alone / US);
        assert!(work >= 0.98, "{shown}: {work:.3} of the work unscheduled");
    }
}
