//! Answers that a slice gives at once: free memory, and refusals at the cap.

use bench::Result;
use bench::awake::Awake;
use bench::client::Client;
use bench::node::Node;
use bench::report::Report;
use bench::variant::Variant;

use crate::amounts::{BLOCK, STEPS};

/// Times of `cuMemGetInfo`, again and again, and once after each change.
pub(crate) fn views(
    node: &Node,
    variants: &[Variant],
    rounds: usize,
    when: &str,
    report: &mut Report,
) -> Result<()> {
    let mut clients: Vec<Client> =
        variants.iter().map(|variant| node.client(variant)).collect::<Result<_>>()?;
    for (name, order, most) in [("mem_get_info", "info", Some(100.0)), ("mem_get_info_anew", "look", None)] {
        let mut times = vec![Vec::new(); variants.len()];
        for _ in 0..rounds {
            for (client, times) in clients.iter_mut().zip(&mut times) {
                times.push(client.ask(&format!("{order} {STEPS}"))?);
            }
        }
        for (variant, times) in variants.iter().zip(&times) {
            report.figure(&format!("{name}{when}_ns"), variant.name(), "ns", times);
        }
        let added: Vec<f64> = times[1].iter().zip(&times[0]).map(|(ours, native)| ours - native).collect();
        let name = format!("{name}{when}_added_ns");
        let median = report.figure(&name, "ours", "ns", &added);
        if let Some(most) = most {
            report.at_most(&name, median, "ns", most);
        }
    }
    Ok(())
}

/// Times of refusals in a full slice. The bare driver refuses nothing.
pub(crate) fn rejections(
    node: &Node,
    variants: &[Variant],
    rounds: usize,
    when: &str,
    report: &mut Report,
) -> Result<()> {
    let name = format!("reject_at_cap{when}_us");
    for variant in &variants[1..] {
        let mut client = node.client(variant)?;
        client.ask("fill 0")?;
        let times: Result<Vec<f64>> =
            (0..rounds).map(|_| client.ask(&format!("reject {} 2000", 1 << 30))).collect();
        match (times, variant) {
            (Ok(times), Variant::Ours) => {
                let median = report.figure(&name, variant.name(), "us", &times);
                report.at_most(&format!("{name}_p50"), median, "us", 1.0);
            }
            (Ok(times), _) => drop(report.figure(&name, variant.name(), "us", &times)),
            (Err(complaint), Variant::Ours) => return Err(complaint),
            (Err(complaint), _) => println!("SKIP: no refusal by {}: {complaint}", variant.name()),
        }
    }
    Ok(())
}

/// The same among 256 processes of the slice that do nothing.
pub(crate) fn crowded(node: &Node, rounds: usize, report: &mut Report) -> Result<()> {
    let variants = [Variant::Native, Variant::Ours];
    let mut crowd = node.client(&Variant::Ours)?;
    crowd.ask(&format!("crowd 256 {BLOCK}"))?;
    views(node, &variants, rounds, "_among_256", report)?;
    rejections(node, &variants, rounds, "_among_256", report)?;
    crowd.ask("endcrowd").map(drop)
}

/// Times of refusals while one sibling holds half of the slice and another has unused credit.
///
/// That credit, nearly half of the slice, would have to be recalled before anything is granted; the request would fit
/// into the slice, but not beside the first sibling.
pub(crate) fn rejections_with_credit_elsewhere(node: &Node, times: usize, report: &mut Report) -> Result<()> {
    let mut clients: Vec<Client> = (0..3).map(|_| node.client(&Variant::Ours)).collect::<Result<_>>()?;
    let total = clients[0].ask("total")?;
    let part = |part: f64| (total * part) as u64;
    clients[0].ask(&format!("fill {}", part(0.5)))?;
    let mut us = Vec::new();
    for _ in 0..times {
        clients[1].ask(&format!("take {}", part(0.4)))?;
        us.push(clients[2].ask(&format!("reject {} 1", part(0.7)))?);
    }
    let median = report.figure("reject_at_cap_with_recall_us", "ours", "us", &us);
    report.at_most("reject_at_cap_us_p50_with_recall", median, "us", 15.0);
    Ok(())
}

/// Times of allocations for which the daemon has to recall the credit of another process first.
///
/// Two processes take turns with more than half of the slice each. Beside them, in the same rhythm, the round trip to a
/// process that only echoes is measured: no daemon can answer faster. No processor goes idle meanwhile, so that both wait
/// for wake-ups of one kind.
pub(crate) fn recalls(node: &Node, turns: usize, report: &mut Report) -> Result<()> {
    let mut clients = [node.client(&Variant::Ours)?, node.client(&Variant::Ours)?];
    let bytes = (clients[0].ask("total")? * 0.6) as u64;
    let mut bare = node.client(&Variant::Native)?;
    let _awake = Awake::start();
    let (mut times, mut echoes) = (Vec::new(), Vec::new());
    for turn in 0..2 * turns {
        times.push(clients[turn % 2].ask(&format!("take {bytes}"))?);
        echoes.push(bare.ask("echo")?);
    }
    let echo = report.figure("socket_round_trip_us", "native", "us", &echoes[2..]);
    let median = report.figure("alloc_with_recall_us", "ours", "us", &times[2..]);
    report.at_most("alloc_with_recall_us_p50_over_socket", median - echo, "us", 15.0);
    Ok(())
}
