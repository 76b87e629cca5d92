//! Tables on widths, drains and quanta: `cargo run --release -p arena --example ablation`.

use arena::{Lengths, Load, MS, Policy, Report, S, Setup, Tenant, US, fair, ideal, run};
use tranche_domain::compute::{ComputeTerms, Nanos, Priority, Rules};

/// A second to settle and thirty windows.
const GAME: u64 = 31 * S;
const WEIGHTS: [u32; 3] = [500, 300, 200];
const PROMISED: [f64; 3] = [50.0, 30.0, 20.0];

fn main() {
    let policies = policies();
    for (what, load) in loads() {
        let setup = Setup::new(WEIGHTS.iter().map(|weight| Tenant::new(fair(*weight), load)).collect());
        println!("\n{what}\n\n| | used | mean error | worst window | decisions/s |\n|---|---|---|---|---|");
        for (name, policy) in &policies {
            row(name, &run(&setup.under(*policy), GAME));
        }
        if matches!(load, Load::Saturating { .. }) {
            row("ideal, serial", &ideal::run(&setup, GAME));
        }
    }
    priorities();
}

fn policies() -> Vec<(&'static str, Policy)> {
    let of = |change: fn(&mut Rules)| {
        let mut rules = Rules::default();
        change(&mut rules);
        Policy::Arbiter(rules)
    };
    vec![
        ("unscheduled", Policy::Unscheduled),
        ("width 1 (default)", of(|_| {})),
        ("width 2", of(|rules| rules.width = 2)),
        ("width 3", of(|rules| rules.width = 3)),
        ("width 1, strict drain", of(|rules| rules.strict_drain = true)),
        ("width 1, turns of 5 ms", of(|rules| rules.quantum = Nanos::millis(5))),
        (
            "width 1, turns of 20 ms",
            of(|rules| {
                (rules.quantum, rules.round) = (Nanos::millis(20), Nanos::millis(60));
            }),
        ),
        ("width 1, depth 1 ms", of(|rules| rules.depth = Nanos::millis(1))),
        ("width 1, depth 16 ms", of(|rules| rules.depth = Nanos::millis(16))),
    ]
}

fn loads() -> Vec<(&'static str, Load)> {
    let mixed = Load::Saturating { kernels: Lengths::LogUniform(50 * US, 40 * MS), ahead: 16 };
    vec![
        ("Saturating, kernels of 50 us", Load::saturating(50 * US)),
        ("Saturating, kernels of 1 ms", Load::saturating(MS)),
        ("Saturating, kernels of 0.05 to 40 ms", mixed),
        ("Waiting for each kernel of 1 ms, 0.2 ms between", Load::synchronous(MS, 200 * US)),
        ("Waiting for each kernel of 0.3 ms, 0.1 ms between", Load::synchronous(300 * US, 100 * US)),
        ("Waiting for each kernel of 0.1 ms, 0.05 ms between", Load::synchronous(100 * US, 50 * US)),
        ("Waiting for each kernel of 0.05 ms, 0.2 ms between", Load::synchronous(50 * US, 200 * US)),
    ]
}

fn row(name: &str, report: &Report) {
    let (mean, worst) = report.errors(&PROMISED);
    let (used, looks) = (report.busy(), report.looks * S / report.length);
    println!("| {name} | {used:.1} % | {mean:.2} pp | {worst:.2} pp | {looks} |");
}

/// Prints latencies of inference beside training.
fn priorities() {
    println!("\nOne kernel of 1 ms fifty times a second at priority 1, beside training that saturates\n");
    println!(
        "| training's kernel | p99 alone | unscheduled | under the arbiter | training keeps of what is left |"
    );
    println!("|---|---|---|---|---|");
    for kernel in [100 * US, 500 * US, MS, 2 * MS, 10 * MS] {
        let gap = Lengths::Uniform(9 * MS, 29 * MS);
        let load = Load::Rounds { kernels: Lengths::Fixed(MS), batch: 1, gap };
        let inference = Tenant::new(ComputeTerms { priority: Priority::new(1), ..fair(300) }, load);
        let setup = Setup::new(vec![inference, Tenant::new(fair(700), Load::saturating(kernel))]);
        let p99 = |setup: &Setup| run(setup, GAME).p99(0) as f64 / MS as f64;
        let report = run(&setup, GAME);
        let kept = 100.0 * report.percent(1) / (100.0 - report.percent(0));
        println!(
            "| {} ms | {:.2} ms | {:.2} ms | {:.2} ms | {kept:.1} % |",
            kernel as f64 / MS as f64,
            p99(&setup.alone(0)),
            p99(&setup.under(Policy::Unscheduled)),
            report.p99(0) as f64 / MS as f64,
        );
    }
}
