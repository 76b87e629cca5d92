//! Slices with a latency target beside others of their own priority.

use arena::{Lengths, Load, MS, Policy, Report, S, Setup, Tenant, US, fair, run};
use tranche_domain::compute::{ComputeTerms, Latency};

const GAME: u64 = 21 * S;
const TARGET: u64 = 8 * MS;

/// A service with a share in permille: a request of forty kernels of 0.1 ms after each gap.
fn service(share: u32, target: Option<u64>) -> Tenant {
    let latency = target.map(|target| Latency::try_from((target / US) as u32).expect("a target"));
    let gap = Lengths::Uniform(25 * MS, 60 * MS);
    let load = Load::Rounds { kernels: Lengths::Fixed(100 * US), batch: 40, gap };
    Tenant::new(ComputeTerms { latency, ..fair(share) }, load)
}

/// Four services of 15 %, those in the front with a target, and a program of 40 % that always has work.
fn node(with_target: usize, kernels: Lengths) -> Setup {
    let services = (0..4).map(|at| service(150, (at < with_target).then_some(TARGET)));
    let training = Tenant::new(fair(400), Load::Saturating { kernels, ahead: 400 });
    Setup::new(services.chain([training]).collect())
}

/// Time by which the slowest in a hundred requests takes longer than alone on the GPU.
fn delay(setup: &Setup, report: &Report, service: usize) -> u64 {
    report.p99(service).saturating_sub(run(&setup.alone(service), GAME).p99(0))
}

#[test]
fn targets_are_held_beside_services_without_one_and_training() {
    for (with_target, kernel) in [(1, 50 * US), (1, MS), (1, 3 * MS), (2, 50 * US), (2, MS)] {
        let kernels = Lengths::Fixed(kernel);
        let setup = node(with_target, kernels);
        let (report, bare) = (run(&setup, GAME), run(&setup.under(Policy::Unscheduled), GAME));
        let plain = run(&node(0, kernels), GAME);
        let shown = format!("{with_target} targets beside {kernels:?}");
        for service in 0..with_target {
            let (delay, without) = (delay(&setup, &report, service), delay(&setup, &plain, service));
            let free = self::delay(&setup, &bare, service);
            println!("{shown}: {delay} ns beyond alone, without a target {without}, unscheduled {free}");
            assert!(delay <= TARGET, "{shown}: {delay} ns beyond alone");
            assert!(delay < without, "{shown}: {delay} ns with the target, {without} without");
        }
        let (kept, work) = (report.percent(4), report.throughput() / bare.throughput());
        println!("{shown}: training has {kept:.1} %, {work:.3} of the work unscheduled");
        assert!(kept >= 0.9 * 40.0, "{shown}: training has {kept} %");
        assert!(work >= 0.97, "{shown}: {work:.3} of the work unscheduled");
    }
}

/// Four services with a target, with requests of twenty kernels of 0.2 ms, as `make bench` plays them.
#[test]
fn target_of_each_of_four_services_is_held_in_99_of_100_requests() {
    let service = || {
        let latency = Some(Latency::try_from((TARGET / US) as u32).expect("a target"));
        let gap = Lengths::Uniform(21 * MS, 56 * MS);
        let load = Load::Rounds { kernels: Lengths::Fixed(200 * US), batch: 20, gap };
        Tenant::new(ComputeTerms { latency, ..fair(150) }, load)
    };
    // Served one after the other behind kernels of 3 ms, 99.4 % would be within it.
    for (kernel, promised) in [(50 * US, 0.99), (MS, 0.99), (3 * MS, 0.985)] {
        let training =
            Tenant::new(fair(400), Load::Saturating { kernels: Lengths::Fixed(kernel), ahead: 400 });
        let setup = Setup::new((0..4).map(|_| service()).chain([training]).collect());
        let took = |report: &Report, service: usize| -> Vec<u64> {
            report.rounds[service].iter().map(|(_, took)| *took).collect()
        };
        let mut alone = took(&run(&setup.alone(0), GAME), 0);
        alone.sort_unstable();
        let bound = alone[alone.len() / 2] + TARGET;
        let within = |report: &Report| {
            let all: Vec<u64> = (0..4).flat_map(|service| took(report, service)).collect();
            all.iter().filter(|took| **took <= bound).count() as f64 / all.len() as f64
        };
        let (report, bare) = (run(&setup, 3 * GAME), run(&setup.under(Policy::Unscheduled), 3 * GAME));
        let (held, kept) = (within(&report), report.percent(4));
        println!(
            "beside {kernel} ns: {held:.4} within the target, unscheduled {:.4}; training has {kept:.1} %",
            within(&bare)
        );
        assert!(held >= promised, "beside {kernel} ns: {held:.4} of the requests are within the target");
        let work = report.throughput() / bare.throughput();
        assert!(work >= 0.97, "beside {kernel} ns: {work:.3} of the work unscheduled");
    }
}

#[test]
fn target_is_no_way_to_more_than_the_share() {
    let latency = Some(Latency::LEAST);
    let greedy = Tenant::new(ComputeTerms { latency, ..fair(300) }, Load::saturating(MS));
    let brief = Load::Rounds { kernels: Lengths::Fixed(500 * US), batch: 1, gap: Lengths::Fixed(50 * US) };
    let eager = Tenant::new(ComputeTerms { latency, ..fair(300) }, brief);
    for tenant in [greedy, eager] {
        let setup = Setup::new(vec![tenant, Tenant::new(fair(700), Load::saturating(MS))]);
        let report = run(&setup, GAME);
        let part = 100.0 * report.percent(1) / report.busy();
        // One that waits for each of its kernels takes 2.9 to 3.3 percentage points more than its share, with any seed but a lucky one.
        assert!(part >= 66.0, "{part} % are left of 70");
    }
}
