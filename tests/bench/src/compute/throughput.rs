//! GPU time that is lost by sharing.

use bench::Result;
use bench::report::Report;
use bench::stats::mean;

use crate::lab::{Lab, variant};
use crate::load::{Load, MS, SHORT, Tenant};

pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    synchronous(lab, report)?;
    alone(lab, report)
}

/// Clients that wait for each kernel and pause before the next, as for work on the host.
fn synchronous(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = lab.node()?;
    let loads = [("1ms", MS, 200_000), ("0.3ms", 300_000, 100_000)];
    for (name, kernel, gap) in loads {
        let load = Load::Rounds { kernel, gap: (gap, gap) };
        let tenants = [50.0, 30.0, 20.0].map(|percent| Tenant::new(percent, load.clone()));
        let mut used = Vec::new();
        for scheduled in [true, false] {
            let played = lab.play(&node, &tenants, scheduled)?;
            report.figure(&format!("used_waiting_for_each_{name}"), variant(scheduled), "%", &played.used);
            for (tenant, percent) in [50, 30, 20].iter().enumerate() {
                let parts: Vec<f64> = played.parts.iter().map(|parts| parts[tenant]).collect();
                let name = format!("share_waiting_for_each_{name}_{tenant}_of_{percent}");
                report.figure(&name, variant(scheduled), "%", &parts);
            }
            used.push(mean(&played.used));
        }
        report.at_least(&format!("throughput_waiting_for_each_{name}"), used[0] / used[1], "", 0.9);
        report.undecided_in_simulation();
    }
    Ok(())
}

/// One tenant with a soft limit and no neighbour, in turns with the bare driver.
fn alone(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = lab.node()?;
    for (name, load) in [
        ("1ms", Load::saturating(MS)),
        ("50us", Load::saturating(SHORT)),
        ("waiting_for_each_1ms", Load::Rounds { kernel: MS, gap: (200_000, 200_000) }),
    ] {
        let tenants = [Tenant::new(30.0, load)];
        let mut used = [Vec::new(), Vec::new()];
        for round in 0..lab.either(6, 2) {
            let scheduled = round % 2 == 0;
            let mut game = lab.begin(&node, &tenants, scheduled)?;
            let (from, to) = game.watch(std::time::Duration::from_secs(lab.either(5, 1)))?;
            used[usize::from(scheduled)].push(game.curves()[0].percent(from, to));
        }
        let name = format!("alone_{name}");
        let [bare, ours] = [false, true].map(|scheduled| {
            let used = &used[usize::from(scheduled)];
            report.figure(&format!("used_{name}"), variant(scheduled), "%", used)
        });
        report.at_least(&format!("throughput_{name}"), ours / bare, "", 0.98);
        report.undecided_in_simulation();
    }
    Ok(())
}
