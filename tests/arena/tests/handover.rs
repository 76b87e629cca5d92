//! Hand-overs of a daemon that wakes late: slices begin at the time that it announced before.

use arena::{Delays, Load, MS, Policy, S, Setup, Tenant, US, fair, run};

const GAME: u64 = 10 * S;

/// Slices that always have work. Each wake-up of the daemon comes up to `late` nanoseconds late.
fn node(shares: &[u32], kernel: u64, late: u64) -> Setup {
    let tenants = shares.iter().map(|share| Tenant::new(fair(*share), Load::saturating(kernel))).collect();
    let delays = Delays { bell: (20 * US, late), alarm: (5 * US, late), ..Delays::USUAL };
    Setup { delays, ..Setup::new(tenants) }
}

/// It was busy for 94.3 to 94.9 % where the daemon had to wake for each hand-over.
#[test]
fn a_daemon_that_wakes_late_keeps_the_gpu_idle_for_little() {
    let three = [500, 300, 200];
    for (shares, kernel, late, least) in
        [(&three[..], 50 * US, 3 * MS, 98.5), (&three, MS, 3 * MS, 98.5), (&[125; 8], 200 * US, 2 * MS, 98.5)]
    {
        let setup = node(shares, kernel, late);
        let (report, bare) = (run(&setup, GAME), run(&setup.under(Policy::Unscheduled), GAME));
        let (work, busy) = (report.throughput() / bare.throughput(), report.busy());
        let off =
            |at: usize| (report.percent(at) * 100.0 / report.busy() - f64::from(shares[at]) / 10.0).abs();
        let off = (0..shares.len()).map(off).fold(0.0_f64, f64::max);
        let shown = format!("{} slices, {kernel} ns", shares.len());
        println!("{shown}: busy {busy:.1} %, {work:.3} of the work unscheduled, {off:.2} pp off");
        assert!(busy >= least, "{shown}: busy for {busy:.1} %");
        assert!(work >= 1.03, "{shown}: {work:.3} of the work unscheduled");
        assert!(off <= 1.0, "{shown}: {off:.2} pp off");
    }
}
