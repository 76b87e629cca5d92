//! GPU time of tenants beside their shares.

use bench::Result;
use bench::node::Node;
use bench::report::Report;
use bench::stats::{greatest, mean};

use crate::curve::Curve;
use crate::ideal;
use crate::lab::{Lab, Played, variant};
use crate::load::{Load, MS, SHORT, Tenant};

/// A load, and the share that each tenant was promised, in percent.
struct Case {
    name: String,
    promised: Vec<f64>,
    tenants: Vec<Tenant>,
    /// Index of the tenant with several processes. Switches between their contexts are charged to its share.
    crowd: Option<usize>,
}

impl Case {
    fn new(name: &str, promised: &[f64], load: &Load) -> Self {
        let tenants = promised.iter().map(|percent| Tenant::new(*percent, load.clone())).collect();
        Self { name: name.into(), promised: promised.to_vec(), tenants, crowd: None }
    }

    /// Distance of each tenant from its share in a window, in percentage points.
    ///
    /// A crowd loses time by its own switches, so that it may be below its part of the sum; each other tenant must then
    /// have its share of the time.
    fn off(&self, parts: &[f64], got: &[f64]) -> Vec<f64> {
        let off = |(tenant, promised): (usize, &f64)| match self.crowd {
            None => (parts[tenant] - promised).abs(),
            Some(crowd) if crowd == tenant => (parts[tenant] - promised).max(0.0),
            Some(_) => (promised - got[tenant]).max(0.0),
        };
        self.promised.iter().enumerate().map(off).collect()
    }

    fn all_off(&self, played: &Played) -> Vec<Vec<f64>> {
        played.parts.iter().zip(&played.got).map(|(parts, got)| self.off(parts, got)).collect()
    }

    /// Mean and greatest distance over windows and tenants.
    fn errors(&self, played: &Played) -> (f64, f64) {
        let all = self.all_off(played).concat();
        (mean(&all), greatest(&all))
    }

    fn longest_ms(&self) -> f64 {
        let longest = self.tenants.iter().map(|tenant| tenant.load.longest()).max();
        longest.unwrap_or(0) as f64 / 1e6
    }
}

fn cases(quick: bool) -> Vec<Case> {
    let weights: [(&str, &[f64]); 4] = [
        ("50_30_20", &[50.0, 30.0, 20.0]),
        ("70_30", &[70.0, 30.0]),
        ("90_10", &[90.0, 10.0]),
        ("8_equal", &[12.5; 8]),
    ];
    let mut cases = Vec::new();
    for (kernel, length) in [("1ms", MS), ("50us", SHORT)] {
        for (name, promised) in weights {
            cases.push(Case::new(&format!("{name}_{kernel}"), promised, &Load::saturating(length)));
        }
    }
    cases.push(Case::new("50_30_20_graphs", &[50.0, 30.0, 20.0], &Load::Graphs { kernel: SHORT }));
    let mut processes = Case::new("50_50_of_4_processes_and_1", &[50.0, 50.0], &Load::saturating(MS));
    processes.tenants[0].processes = 4;
    processes.crowd = Some(0);
    let mut streams = Case::new("50_50_of_4_streams_and_1", &[50.0, 50.0], &Load::saturating(MS));
    streams.tenants[0].load = Load::Saturating { kernel: MS, streams: 4 };
    cases.extend([processes, streams]);
    if quick {
        cases.retain(|case| case.name == "50_30_20_1ms");
    }
    cases
}

pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = lab.node()?;
    for case in cases(lab.is_quick()) {
        let [ours, bare] = both(lab, &node, &case, report)?;
        let (mean_error, worst) = case.errors(&ours);
        report.at_most(&format!("share_error_mean_{}", case.name), mean_error, "pp", 1.0);
        report.undecided_in_simulation();
        let goal = 3.0 + case.longest_ms() / 10.0;
        report.at_most(&format!("share_error_worst_{}", case.name), worst, "pp", goal);
        report.undecided_in_simulation();
        let ratio = mean(&ours.used) / mean(&bare.used);
        report.at_least(&format!("throughput_{}", case.name), ratio, "", 0.98);
        report.undecided_in_simulation();
    }
    match lab.is_quick() {
        true => Ok(()),
        false => mixed(lab, &node, report),
    }
}

/// Runs a load in slices and bare, and claims that the bare one uses the GPU as its law states.
fn both(lab: &Lab, node: &Node, case: &Case, report: &mut Report) -> Result<[Played; 2]> {
    let ours = played(lab, node, case, true, report)?;
    let bare = played(lab, node, case, false, report)?;
    if let Some(lawful) = lab.lawful_use() {
        let name = format!("unscheduled_use_{}", case.name);
        report.near(&name, mean(&bare.used), "%", (lawful * 10.0).round() / 10.0, 1.5);
        report.undecided_in_simulation();
    }
    Ok([ours, bare])
}

fn played(lab: &Lab, node: &Node, case: &Case, scheduled: bool, report: &mut Report) -> Result<Played> {
    let played = lab.play(node, &case.tenants, scheduled)?;
    enter(&played, case, variant(scheduled), report);
    Ok(played)
}

fn enter(played: &Played, case: &Case, variant: &str, report: &mut Report) {
    for (tenant, promised) in case.promised.iter().enumerate() {
        let parts: Vec<f64> = played.parts.iter().map(|parts| parts[tenant]).collect();
        report.figure(&format!("share_{}_{tenant}_of_{promised}", case.name), variant, "%", &parts);
    }
    let worst: Vec<f64> = case.all_off(played).iter().map(|off| greatest(off)).collect();
    report.figure(&format!("share_error_{}", case.name), variant, "pp", &worst);
    report.figure(&format!("used_{}", case.name), variant, "%", &played.used);
}

/// Kernels of 0.05 to 40 ms, beside an ideal scheduler that cannot interrupt them either.
fn mixed(lab: &Lab, node: &Node, report: &mut Report) -> Result<()> {
    let mut case = Case::new("50_30_20_mixed", &[50.0, 30.0, 20.0], &Load::Idle);
    let traces: Vec<Vec<u64>> = (0..3).map(|seed| ideal::trace(seed, 50e3, 40e6)).collect();
    for (tenant, trace) in case.tenants.iter_mut().zip(&traces) {
        tenant.load = Load::Mixed { trace: trace.clone() };
    }
    let windows = lab.windows(true);
    let curves = ideal::run(&case.promised, &traces, (windows + 1) * 1_000_000_000);
    let ideal = Played::of(&curves.iter().collect::<Vec<&Curve>>(), 1_000_000_000, windows);
    enter(&ideal, &case, "ideal", report);
    let [ours, _] = both(lab, node, &case, report)?;
    let (due, found) = (case.errors(&ideal), case.errors(&ours));
    report.at_most("share_error_mean_mixed_beyond_ideal", found.0 - due.0, "pp", 0.5);
    report.undecided_in_simulation();
    report.at_most("share_error_worst_mixed_beyond_ideal", found.1 - due.1, "pp", 1.5);
    report.undecided_in_simulation();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowd_below_its_share_is_no_error() {
        let mut case = Case::new("a", &[50.0, 50.0], &Load::Idle);
        assert_eq!(case.off(&[45.0, 55.0], &[43.0, 52.0]), [5.0, 5.0]);
        case.crowd = Some(0);
        assert_eq!(case.off(&[45.0, 55.0], &[43.0, 52.0]), [0.0, 0.0]);
        assert_eq!(case.off(&[53.0, 47.0], &[52.0, 46.0]), [3.0, 4.0]);
    }
}
