//! Time until a new share takes effect.

use std::time::Duration;

use bench::Result;
use bench::report::Report;
use bench::stats::{quantile, sorted};

use crate::curve::delay_ms;
use crate::lab::Lab;
use crate::load::{Load, MS, Tenant};

/// Time from the request of a new share to its effect. The other tenant keeps 20 %, so that the first one's part is
/// 20 % with 5 % of the GPU and 80 % with 80 %.
pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = lab.node()?;
    let tenants = [5.0, 20.0].map(|percent| Tenant::new(percent, Load::saturating(MS)));
    let mut game = lab.begin(&node, &tenants, true)?;
    let mut delays = Vec::new();
    for turn in 0..lab.either(40, 4) {
        let (share, before, after) = if turn % 2 == 0 { ("80%", 20.0, 80.0) } else { ("5%", 80.0, 20.0) };
        let changed = game.resize(0, &["--compute", share])?;
        let (_, end) = game.watch(Duration::from_millis(600))?;
        delays.push(delay_ms(&game.curves(), changed, end, before, after));
    }
    report.figure("share_change_settled_after_ms", "ours", "ms", &delays);
    report.at_most("share_change_settled_after_ms_p50", quantile(&sorted(&delays), 0.5), "ms", 100.0);
    report.undecided_in_simulation();
    report.at_most("share_change_settled_after_ms_p90", quantile(&sorted(&delays), 0.9), "ms", 100.0);
    report.undecided_in_simulation();
    Ok(())
}
