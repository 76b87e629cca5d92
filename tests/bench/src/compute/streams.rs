//! A program whose streams run side by side.

use bench::Result;
use bench::report::Report;
use bench::stats::mean;

use crate::lab::{Lab, variant};
use crate::load::{Load, MS, Tenant};

/// Eight streams of kernels that leave room for each other, alone and beside a program of one stream.
///
/// The kernels that both finish count: GPU time is the same whether one kernel runs in it or eight.
pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = lab.node()?;
    let wide = Tenant::new(50.0, Load::Saturating { kernel: MS, streams: 8 });
    let other = Tenant::new(50.0, Load::saturating(MS));
    for (name, tenants) in [("alone", vec![wide.clone()]), ("beside_1ms", vec![wide, other])] {
        if lab.is_quick() && tenants.len() > 1 {
            continue;
        }
        let mut work = Vec::new();
        for scheduled in [true, false] {
            let finished = lab.finished(&node, &tenants, scheduled, lab.windows(scheduled))?;
            for (tenant, windows) in ["eight_streams", "neighbour"].iter().zip(&finished) {
                let times: Vec<f64> = windows.iter().map(|[time, _]| *time).collect();
                report.figure(&format!("work_of_{tenant}_{name}"), variant(scheduled), "%", &times);
            }
            let times: Vec<f64> = finished.concat().iter().map(|[time, _]| *time).collect();
            work.push(mean(&times));
        }
        report.at_least(&format!("work_eight_streams_{name}"), work[0] / work[1], "", 0.95);
        report.undecided_in_simulation();
    }
    Ok(())
}
