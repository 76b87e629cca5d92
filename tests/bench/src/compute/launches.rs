//! Cost of a launch, on a driver that launches at once: the rest is the slice's.

use bench::Result;
use bench::client::Client;
use bench::node::{Node, SLICE};
use bench::report::Report;
use bench::stage::Driver;
use bench::variant::Variant;

use crate::lab::Lab;

const VARIANTS: [Variant; 2] = [Variant::Native, Variant::Ours];

/// Rounds of two figures, on the bare driver and in a slice.
type Rounds = [[Vec<f64>; 2]; 2];

pub(crate) fn all(lab: &Lab, report: &mut Report) -> Result<()> {
    let node = Node::empty(lab.stage(), Driver::Stub)?;
    node.create(SLICE, &["-g", "0.8", "--limit", "90%"])?;
    // A second slice exists too: the depth of a lone one is not bounded.
    node.create("neighbour", &["-g", "0.1"])?;
    let open = rounds(lab, &node, "0", "launches 400000")?;
    enter(report, "launch", &[&open[0][0], &open[1][0]], 5.0);
    enter(report, "launch_mean", &[&open[0][1], &open[1][1]], 60.0);
    // Kernels take 50 us here. Each burst launches two milliseconds of them and waits, so that it reaches the gate and
    // is marked as often as a program alone is. Bursts use all of the GPU, which a lower limit would not permit.
    node.resize(SLICE, &["--limit", "100%"])?;
    let marked = rounds(lab, &node, "50000", "bursts 200 40")?;
    enter(report, "launch_mean_with_marks", &[&marked[0][0], &marked[1][0]], 60.0);
    let slower = marked[1][1].iter().zip(&marked[0][1]).map(|(ours, native)| 100.0 * (ours / native - 1.0));
    let median = report.figure("program_slowdown", "ours", "%", &slower.collect::<Vec<_>>());
    report.at_most("program_slowdown", median, "%", 1.0);
    Ok(())
}

fn rounds(lab: &Lab, node: &Node, kernel_ns: &str, order: &str) -> Result<Rounds> {
    let begin = |variant: &Variant| {
        let mut command = node.program(variant, lab.stage().client());
        let mut client = Client::start(command.arg("serve").env("STUB_KERNEL_NS", kernel_ns))?;
        client.ask("begin").map(|_| client)
    };
    let mut clients: Vec<Client> = VARIANTS.iter().map(begin).collect::<Result<_>>()?;
    let mut rounds = Rounds::default();
    for _ in 0..lab.either(15, 3) {
        for (client, [first, second]) in clients.iter_mut().zip(&mut rounds) {
            let answer = client.ask_both(order)?;
            first.push(answer[0]);
            second.push(answer[1]);
        }
    }
    Ok(rounds)
}

fn enter(report: &mut Report, name: &str, times: &[&Vec<f64>; 2], goal: f64) {
    for (variant, times) in VARIANTS.iter().zip(times) {
        report.figure(&format!("{name}_ns"), variant.name(), "ns", times);
    }
    let added: Vec<f64> = times[1].iter().zip(times[0]).map(|(ours, native)| ours - native).collect();
    let name = format!("{name}_added_ns");
    let median = report.figure(&name, "ours", "ns", &added);
    report.at_most(&name, median, "ns", goal);
}
