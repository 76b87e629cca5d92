//! Time from one slice's last kernel to the first of the next.

use std::time::Duration;

use bench::Result;
use bench::report::Report;
use bench::stats::{quantile, sorted};

use crate::curve::handovers_us;
use crate::lab::{Lab, variant};
use crate::load::{Load, MS, SHORT, Tenant};

/// Two tenants that saturate the GPU. Of the hand-over the cost of the hardware's own switch is no part.
pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    let Some(switch) = lab.handover_us() else {
        println!("NOTE: a real GPU has no log of its turns: hand-overs are not measured");
        return Ok(());
    };
    let node = lab.node()?;
    for (name, kernel) in [("1ms", MS), ("50us", SHORT)] {
        if lab.is_quick() && kernel != MS {
            continue;
        }
        let tenants = [50.0, 50.0].map(|percent| Tenant::new(percent, Load::saturating(kernel)));
        for scheduled in [true, false] {
            let mut game = lab.begin(&node, &tenants, scheduled)?;
            let (from, to) = game.watch(Duration::from_secs(lab.windows(scheduled)))?;
            let handovers = handovers_us(&game.curves(), from, to);
            if handovers.is_empty() {
                return Err(format!("the GPU was never handed over, {}", variant(scheduled)));
            }
            let p50 = report.figure(&format!("handover_{name}"), variant(scheduled), "us", &handovers);
            let p99 = quantile(&sorted(&handovers), 0.99);
            report.figure(&format!("handover_p99_{name}"), variant(scheduled), "us", &[p99]);
            if scheduled {
                report.at_most(&format!("handover_beyond_switch_p50_{name}"), p50 - switch, "us", 10.0);
                report.undecided_in_simulation();
            }
        }
    }
    Ok(())
}
