//! Cost of copies and fills that are counted, and what they take from others if they are not.

use std::time::Duration;

use bench::Result;
use bench::node::Node;
use bench::report::Report;
use bench::stats::mean;

use crate::lab::Lab;
use crate::load::{Load, MS, SHORT, Tenant};

/// Settings of `transfers`, each with its variant in the report; the second is the default.
const SETTINGS: [(&str, &str); 3] = [("uncounted", "uncounted"), ("inside", "ours"), ("counted", "counted")];

pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = |(setting, variant): (&str, &'static str)| {
        Ok((lab.configured_node(&format!("transfers = \"{setting}\"\n"))?, variant))
    };
    let nodes = SETTINGS.into_iter().map(node).collect::<Result<Vec<_>>>()?;
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

/// One program in a slice without neighbours, in turns with the bare driver and the other settings.
fn alone(lab: &Lab, nodes: &[(Node, &'static str)], report: &mut Report) -> Result<()> {
    let bare = nodes.iter().take(1).map(|(node, _)| (node, false, "unscheduled"));
    let turns: Vec<_> = bare.chain(nodes.iter().map(|(node, variant)| (node, true, *variant))).collect();
    for (name, load) in programs(lab) {
        let tenants = [Tenant::new(50.0, load)];
        let mut rates = vec![Vec::new(); turns.len()];
        for _ in 0..lab.either(6, 1) {
            for ((node, scheduled, _), rates) in turns.iter().zip(&mut rates) {
                let finished = lab.finished(node, &tenants, *scheduled, lab.either(3, 1))?;
                rates.push(mean(&finished[0].iter().map(|[_, number]| *number).collect::<Vec<_>>()));
            }
        }
        for ((_, _, variant), rates) in turns.iter().zip(&rates) {
            report.figure(&format!("{name}_alone"), variant, "/s", rates);
        }
        // What the default costs an honest program.
        let ratio = mean(&rates[2]) / mean(&rates[1]);
        report.at_least(&format!("{name}_alone_inside_over_uncounted"), ratio, "", 0.99);
        report.undecided_in_simulation();
    }
    Ok(())
}

/// Each of them beside kernels of a millisecond, with shares of 70 and 30 %.
fn beside(lab: &Lab, nodes: &[(Node, &'static str)], report: &mut Report) -> Result<()> {
    for (name, load) in programs(lab) {
        let tenants = [Tenant::new(70.0, load), Tenant::new(30.0, Load::saturating(MS))];
        for (node, variant) in nodes {
            let mut game = lab.begin(node, &tenants, true)?;
            let before = game.done()?;
            let (from, to) = game.watch(Duration::from_secs(lab.windows(false)))?;
            let number = (game.done()?[0][1] - before[0][1]) * 1e9 / (to - from) as f64;
            let kernels = game.curves()[1].percent(from, to);
            report.figure(&format!("{name}_70_beside_kernels"), variant, "/s", &[number]);
            report.figure(&format!("kernels_30_beside_{name}"), variant, "%", &[kernels]);
            if *variant == "ours" {
                report.at_least(&format!("kernels_30_beside_{name}_by_default"), kernels, "%", 28.0);
                report.undecided_in_simulation();
            }
        }
    }
    Ok(())
}
