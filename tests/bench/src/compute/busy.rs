//! GPU time on a host whose processors other programs want.

use bench::Result;
use bench::hogs::Hogs;
use bench::options::cores;
use bench::report::Report;
use bench::stats::{greatest, mean};

use crate::lab::{Lab, variant};
use crate::load::{Load, MS, SHORT, Tenant};

/// Promised shares of the tenants in percent.
const PROMISED: [f64; 3] = [50.0, 30.0, 20.0];

/// Three tenants that saturate the GPU, while each processor has two other programs that never sleep.
pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = lab.node()?;
    let _hogs = Hogs::start(2 * cores())?;
    for (name, kernel) in [("1ms", MS), ("50us", SHORT)] {
        if lab.is_quick() && kernel != MS {
            continue;
        }
        let tenants = PROMISED.map(|percent| Tenant::new(percent, Load::saturating(kernel)));
        let (mut used, mut errors) = (Vec::new(), Vec::new());
        for scheduled in [true, false] {
            let played = lab.play(&node, &tenants, scheduled)?;
            let off = |parts: &Vec<f64>| -> Vec<f64> {
                parts.iter().zip(PROMISED).map(|(part, promised)| (part - promised).abs()).collect()
            };
            let all: Vec<Vec<f64>> = played.parts.iter().map(off).collect();
            let worst: Vec<f64> = all.iter().map(|window| greatest(window)).collect();
            report.figure(&format!("share_error_busy_host_{name}"), variant(scheduled), "pp", &worst);
            report.figure(&format!("used_busy_host_{name}"), variant(scheduled), "%", &played.used);
            used.push(mean(&played.used));
            errors.push(mean(&all.concat()));
        }
        report.at_least(&format!("work_busy_host_{name}"), used[0] / used[1], "", 0.95);
        report.undecided_in_simulation();
        report.at_most(&format!("share_error_mean_busy_host_{name}"), errors[0], "pp", 1.0);
        report.undecided_in_simulation();
    }
    Ok(())
}
