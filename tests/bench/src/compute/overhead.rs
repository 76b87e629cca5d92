//! Processor time of the daemon, with idle slices and with busy ones.

use std::thread;
use std::time::{Duration, Instant};

use bench::Result;
use bench::client::Client;
use bench::node::Node;
use bench::report::Report;
use bench::stage::Driver;
use bench::stats::mean;

use crate::lab::Lab;
use crate::load::{Load, MS, SHORT, Tenant};

pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    idle(lab, report)?;
    busy(lab, report)
}

/// Processor time of the daemon in each window, in percent of a core.
fn cpu(node: &Node, windows: u64, mut pass: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let mut used = Vec::new();
    for _ in 0..windows {
        let (before, begun) = (node.daemon_cpu_us(), Instant::now());
        pass()?;
        used.push(100.0 * (node.daemon_cpu_us() - before) / begun.elapsed().as_micros() as f64);
    }
    Ok(used)
}

/// Slices with idle processes on the driver stub: the daemon alone uses the processor.
fn idle(lab: &Lab, report: &mut Report) -> Result<()> {
    const PROCESSES_OF_A_SLICE: usize = 4;
    let slices = lab.either(64, 8);
    let node = Node::empty(lab.stage(), Driver::Stub)?;
    let mut clients = Vec::new();
    for slice in 0..slices {
        let name = format!("idle-{slice}");
        node.create(&name, &["--memory", "1Gi", "--compute", "1%"])?;
        let mut client = Client::start(node.in_slice(&name, lab.stage().client()).arg("serve"))?;
        client.ask("begin")?;
        client.ask(&format!("crowd {} {}", PROCESSES_OF_A_SLICE - 1, 2 << 20))?;
        clients.push(client);
    }
    thread::sleep(lab.settle());
    let pass = || {
        thread::sleep(Duration::from_secs(lab.either(5, 2)));
        Ok(())
    };
    let used = cpu(&node, lab.either(6, 1), pass)?;
    let name = format!("daemon_cpu_{slices}_idle_slices_{}_processes", slices * PROCESSES_OF_A_SLICE);
    report.figure(&name, "ours", "%", &used);
    report.at_most(&name, mean(&used), "%", 1.0);
    for client in &mut clients {
        client.ask("endcrowd")?;
    }
    Ok(())
}

/// Slices that saturate the GPU together.
fn busy(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = lab.node()?;
    for (name, kernel) in [("1ms", MS), ("50us", SHORT)] {
        let tenants = vec![Tenant::new(12.5, Load::saturating(kernel)); 8];
        let mut game = lab.begin(&node, &tenants, true)?;
        let pass = || game.watch(Duration::from_secs(1)).map(drop);
        let used = cpu(&node, lab.either(10, 2), pass)?;
        let name = format!("daemon_cpu_8_busy_slices_{name}");
        report.figure(&name, "ours", "%", &used);
        report.at_most(&name, mean(&used), "%", 4.0);
        report.undecided_in_simulation();
    }
    Ok(())
}
