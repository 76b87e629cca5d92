//! Waits of requests beside training.

use std::time::Duration;

use bench::Result;
use bench::node::Node;
use bench::report::Report;

use crate::lab::{Lab, variant};
use crate::load::{Load, MS, Tenant};

/// One kernel of a millisecond about fifty times a second.
fn serving() -> Tenant {
    let load = Load::Rounds { kernel: MS, gap: (9 * MS, 29 * MS) };
    Tenant::new(30.0, load).with(&["--priority", "5"])
}

pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = lab.node()?;
    let solo = requests(lab, &node, &[serving()], false, "solo", report)?;
    for (name, kernel) in [("0.1ms", MS / 10), ("0.5ms", MS / 2), ("1ms", MS), ("2ms", 2 * MS)] {
        if lab.is_quick() && kernel != MS {
            continue;
        }
        let tenants = [serving(), Tenant::new(70.0, Load::saturating(kernel))];
        requests(lab, &node, &tenants, false, &format!("beside_{name}"), report)?;
        let ours = requests(lab, &node, &tenants, true, &format!("beside_{name}"), report)?;
        let goal = solo.p99_ms + 2.0 * kernel as f64 / 1e6 + 0.06;
        let goal = (goal * 1000.0).round() / 1000.0;
        report.at_most(&format!("request_p99_beside_{name}"), ours.p99_ms, "ms", goal);
        report.undecided_in_simulation();
        report.at_least(&format!("training_keeps_{name}"), ours.kept, "", 0.85);
        report.undecided_in_simulation();
    }
    Ok(())
}

struct Served {
    p99_ms: f64,
    /// Part of the GPU time left by serving that training used.
    kept: f64,
}

fn requests(
    lab: &Lab,
    node: &Node,
    tenants: &[Tenant],
    scheduled: bool,
    name: &str,
    report: &mut Report,
) -> Result<Served> {
    let mut game = lab.begin(node, tenants, scheduled)?;
    game.latencies(0)?;
    let (from, to) = game.watch(Duration::from_secs(lab.windows(true) + 1))?;
    let [count, p50, p99, greatest] = game.latencies(0)?;
    if count < 1.0 {
        return Err(format!("no request was served {name}"));
    }
    let variant = variant(scheduled);
    for (what, us) in [("p50", p50), ("p99", p99), ("greatest", greatest)] {
        report.figure(&format!("request_{what}_{name}"), variant, "ms", &[us / 1e3]);
    }
    let curves = game.curves();
    let kept = curves
        .get(1)
        .map_or(f64::NAN, |training| training.percent(from, to) / (100.0 - curves[0].percent(from, to)));
    if tenants.len() > 1 {
        report.figure(&format!("training_keeps_{name}"), variant, "", &[kept]);
    }
    Ok(Served { p99_ms: p99 / 1e3, kept })
}
