//! Requests of slices with latency targets, beside training.

use std::time::Duration;

use bench::Result;
use bench::node::Node;
use bench::report::Report;

use crate::lab::{Lab, variant};
use crate::load::{Load, MS, SHORT, Tenant};

/// Latency target of each service.
const TARGET: (&str, f64) = ("8ms", 8_000.0);
/// Services with a target; each needs 2 ms of it.
const SERVICES: usize = 4;
/// Share of training in percent.
const TRAINING: f64 = 40.0;

/// Twenty kernels of 0.2 ms each 25 to 60 ms.
fn service() -> Tenant {
    let load = Load::Requests { kernel: MS / 5, kernels: 20, gap: (21 * MS, 56 * MS) };
    Tenant::new(15.0, load).with(&["--latency", TARGET.0])
}

/// A request is within its target if it takes no longer than alone, by the median, and the target.
pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = lab.node()?;
    let alone = alone_us(lab, &node, report)?;
    for (name, kernel) in [("50us", SHORT), ("1ms", MS), ("3ms", 3 * MS)] {
        if lab.is_quick() && kernel != MS {
            continue;
        }
        for scheduled in [false, true] {
            let mut tenants = vec![service(); SERVICES];
            tenants.push(Tenant::new(TRAINING, Load::saturating(kernel)));
            let (within, trained) = serve(lab, &node, &tenants, scheduled, alone + TARGET.1)?;
            let variant = variant(scheduled);
            report.figure(&format!("requests_within_target_{name}"), variant, "%", &within);
            report.figure(&format!("training_beside_targets_{name}"), variant, "%", &[trained]);
            if scheduled {
                let least = within.iter().copied().fold(f64::INFINITY, f64::min);
                report.at_least(&format!("requests_within_target_{name}"), least, "%", 99.0);
                report.undecided_in_simulation();
                let kept = trained / TRAINING;
                report.at_least(&format!("training_of_its_share_beside_targets_{name}"), kept, "", 0.9);
                report.undecided_in_simulation();
            }
        }
    }
    Ok(())
}

/// Median of a request without neighbours and slices, in microseconds.
fn alone_us(lab: &Lab, node: &Node, report: &mut Report) -> Result<f64> {
    let mut game = lab.begin(node, &[service()], false)?;
    game.latencies(0)?;
    game.watch(Duration::from_secs(lab.either(10, 2)))?;
    let [count, p50, p99, _] = game.latencies(0)?;
    if count < 1.0 {
        return Err("no request was served alone".into());
    }
    report.figure("request_with_target_alone_p50", variant(false), "ms", &[p50 / 1e3]);
    report.figure("request_with_target_alone_p99", variant(false), "ms", &[p99 / 1e3]);
    Ok(p50)
}

/// Requests of each service that took at most `within_us`, and GPU time of training, both in percent.
fn serve(
    lab: &Lab,
    node: &Node,
    tenants: &[Tenant],
    scheduled: bool,
    within_us: f64,
) -> Result<(Vec<f64>, f64)> {
    let mut game = lab.begin(node, tenants, scheduled)?;
    (0..SERVICES).try_for_each(|service| game.latencies(service).map(drop))?;
    let (from, to) = game.watch(Duration::from_secs(lab.windows(true) + 1))?;
    let mut within = Vec::new();
    for service in 0..SERVICES {
        let [count, inside] = game.within(service, within_us)?;
        if count < 1.0 {
            return Err(format!("service {service} served no request"));
        }
        within.push(100.0 * inside / count);
    }
    Ok((within, game.curves()[SERVICES].percent(from, to)))
}
