//! Launches that take longer than a turn, and such as never end.

use arena::{Load, MS, Policy, Report, S, Setup, Tenant, US, fair, ideal, run};

const GAME: u64 = 31 * S;

/// The longest launch, and a second or ten of the longest launches where that is longer.
fn window(report: &Report) -> (u64, u64) {
    let longest = report.longest.iter().max().copied().unwrap_or(0);
    (longest, S.max(10 * longest / MS * MS))
}

/// The second slice's part of all work in percent, and its error in the worst window.
fn parts(report: &Report, share: f64, after: u64) -> (f64, f64) {
    let part = |from, to| 100.0 * report.ran(1, from, to) as f64 / report.ran_by_all(from, to) as f64;
    let length = window(report).1;
    let starts = (after..=report.length - length).step_by((S / 2) as usize);
    let off = starts.map(|from| (part(from, from + length) - share).abs());
    (part(after, report.length), off.fold(0.0, f64::max))
}

/// Bounds long-run shares: the hardware's switches are charged, too, and not in what ran.
#[test]
fn launches_longer_than_a_turn_keep_shares() {
    let lengths = [20, 60, 80, 100, 120, 200, 1000];
    let cases = [100, 500, 900].into_iter().flat_map(|share| lengths.map(|length| (share, length * MS)));
    for (share, length) in cases {
        let setup = Setup::new(vec![
            Tenant::new(fair(1000 - share), Load::saturating(200 * US)),
            Tenant::new(fair(share), Load::saturating(length)),
        ]);
        // Of the first launches no length is known, so that one more passes each 50 ms; these are repaid first.
        let after = S.max(250 * length);
        let game = after + GAME.max(100 * length);
        let (report, bare) = (run(&setup, game), run(&setup.under(Policy::Unscheduled), GAME));
        let due = f64::from(share) / 10.0;
        let (part, worst) = parts(&report, due, after);
        let ideal = parts(&ideal::run(&setup, game), due, after).1;
        let (longest, window) = window(&report);
        let grain = 100.0 * longest as f64 / window as f64;
        let work = report.throughput() / bare.throughput();
        let pause = report.longest_pause(0, after, game) / MS;
        let shown =
            format!("{due} % by launches of {} ms: {part:.1} %, {worst:.1} pp off at worst", length / MS);
        assert!((part - due).abs() <= 1.5, "{shown}");
        assert!(worst <= ideal + grain + 1.5, "{shown}, ideal {ideal:.1}");
        assert!(work >= 0.98, "{shown}: {work:.3} of the work unscheduled");
        assert!(pause <= 200, "{shown}: the other paused for {pause} ms");
    }
}

#[test]
fn slices_with_endless_launches_take_no_more_than_unscheduled() {
    for count in [1, 2, 3, 5] {
        let endless = (0..count).map(|_| Tenant::new(fair(10), Load::saturating(1000 * S)));
        let tenants = [Tenant::new(fair(800), Load::saturating(200 * US))].into_iter().chain(endless);
        let setup = Setup::new(tenants.collect());
        let (report, bare) = (run(&setup, 11 * S), run(&setup.under(Policy::Unscheduled), 11 * S));
        let (had, due) = (report.percent(0), bare.percent(0));
        assert!(had >= due - 0.5, "{had:.1} % beside {count}, unscheduled {due:.1}");
    }
}
