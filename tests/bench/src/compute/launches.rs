//! What a launch costs.

use bench::Result;
use bench::client::Client;
use bench::node::{Driver, Node, SLICE, Variant};
use bench::report::Report;

use crate::lab::Lab;

pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = Node::empty(lab.stage(), Driver::Stub)?;
    node.create(SLICE, &["-g", "0.8", "--limit", "90%"])?;
    // Somebody else has a slice too: what a lone tenant may have outstanding is not bounded at all.
    node.create("neighbour", &["-g", "0.1"])?;
    let variants = [Variant::Native, Variant::Ours];
    let mut clients: Vec<Client> =
        variants.iter().map(|variant| node.client(variant)).collect::<Result<_>>()?;
    let mut times = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for _ in 0..lab.either(15, 3) {
        for (client, [medians, means]) in clients.iter_mut().zip(&mut times) {
            let [median, mean] = client.ask_both("launches 400000")?;
            medians.push(median);
            means.push(mean);
        }
    }
    for (at, name, goal) in [(0, "launch", 5.0), (1, "launch_mean", 60.0)] {
        for (variant, times) in variants.iter().zip(&times) {
            report.figure(&format!("{name}_ns"), variant.name(), "ns", &times[at]);
        }
        let pairs = times[1][at].iter().zip(&times[0][at]);
        let added: Vec<f64> = pairs.map(|(ours, native)| ours - native).collect();
        let name = format!("{name}_added_ns");
        let median = report.figure(&name, "ours", "ns", &added);
        report.at_most(&name, median, "ns", goal);
    }
    Ok(())
}
