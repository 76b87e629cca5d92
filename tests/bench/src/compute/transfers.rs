//! Cost of copies that are counted, and what they take from others if they are not.

use std::time::Duration;

use bench::Result;
use bench::node::Node;
use bench::report::Report;
use bench::stats::mean;

use crate::lab::{Lab, variant};
use crate::load::{Load, MS, SHORT, Tenant};

/// Variant of a daemon that counts transfers.
const COUNTED: &str = "counted";

/// A node with each setting of `transfers`.
struct Nodes {
    uncounted: Node,
    counted: Node,
}

pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    let nodes = Nodes {
        uncounted: lab.configured_node("transfers = \"uncounted\"\n")?,
        counted: lab.configured_node("transfers = \"counted\"\n")?,
    };
    alone(lab, &nodes, report)?;
    beside(lab, &nodes, report)
}

/// Programs that stream input from the host beside kernels, and that only copy inside the device.
fn programs(lab: &Lab) -> Vec<(&'static str, Load)> {
    let mut programs = vec![
        ("streaming_200us", Load::Feed { kernel: MS / 5, bytes: 256 << 10 }),
        ("streaming_50us", Load::Feed { kernel: SHORT, bytes: 64 << 10 }),
        ("large_copies_inside", Load::Copies { bytes: 256 << 20, ahead: 10 }),
        ("small_copies_inside", Load::Copies { bytes: 64 << 10, ahead: 100 }),
    ];
    programs.retain(|(name, _)| !lab.is_quick() || ["streaming_200us", "large_copies_inside"].contains(name));
    programs
}

/// One program in a slice without neighbours, in turns with the bare driver and the other setting.
fn alone(lab: &Lab, nodes: &Nodes, report: &mut Report) -> Result<()> {
    let Nodes { uncounted, counted } = nodes;
    let turns = [(uncounted, false, "unscheduled"), (uncounted, true, "ours"), (counted, true, COUNTED)];
    for (name, load) in programs(lab) {
        let tenants = [Tenant::new(50.0, load)];
        let mut rates = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..lab.either(6, 1) {
            for ((node, scheduled, _), rates) in turns.iter().zip(&mut rates) {
                let finished = lab.finished(node, &tenants, *scheduled, lab.either(3, 1))?;
                rates.push(mean(&finished[0].iter().map(|[_, number]| *number).collect::<Vec<_>>()));
            }
        }
        for ((_, _, variant), rates) in turns.iter().zip(&rates) {
            report.figure(&format!("{name}_alone"), variant, "/s", rates);
        }
        let [_, ours, counted] = rates.map(|rates| mean(&rates));
        // What counting by default would cost an honest program.
        report.at_least(&format!("{name}_alone_counted_over_uncounted"), counted / ours, "", 0.99);
        report.undecided_in_simulation();
    }
    Ok(())
}

/// Each of them beside kernels of a millisecond, with shares of 70 and 30 %.
fn beside(lab: &Lab, nodes: &Nodes, report: &mut Report) -> Result<()> {
    for (name, load) in programs(lab) {
        let tenants = [Tenant::new(70.0, load), Tenant::new(30.0, Load::saturating(MS))];
        let mut rates = Vec::new();
        for (node, called) in [(&nodes.uncounted, variant(true)), (&nodes.counted, COUNTED)] {
            let mut game = lab.begin(node, &tenants, true)?;
            let before = game.done()?;
            let (from, to) = game.watch(Duration::from_secs(lab.windows(false)))?;
            let number = (game.done()?[0][1] - before[0][1]) * 1e9 / (to - from) as f64;
            let kernels = game.curves()[1].percent(from, to);
            report.figure(&format!("{name}_70_beside_kernels"), called, "/s", &[number]);
            report.figure(&format!("kernels_30_beside_{name}"), called, "%", &[kernels]);
            rates.push((number, kernels));
        }
        let [(uncounted, _), (counted, kernels)] = rates[..] else { return Err("no rates".into()) };
        report.at_least(&format!("{name}_70_counted_over_uncounted"), counted / uncounted, "", 0.99);
        report.undecided_in_simulation();
        report.at_least(&format!("kernels_30_beside_{name}_counted"), kernels, "%", 28.0);
        report.undecided_in_simulation();
    }
    Ok(())
}
