//! Measurements of memory management, and the claims of each.

use std::thread;

use bench::Result;
use bench::client::Client;
use bench::node::{MIB, Node, run};
use bench::report::Report;
use bench::stage::{Driver, Stage};
use bench::stats::{quantile, sorted};
use bench::variant::Variant;
use clap::ValueEnum;

use crate::amounts::{BLOCK, STEPS};
use crate::{answers, instructions};

const SMALL: u64 = 64 << 10;

/// Part that can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Cost and rate of allocations.
    Calls,
    /// Starts of 256 processes at once.
    Starts,
    /// Time of queries and of refusals.
    Answers,
    /// Time until freed memory or a new size takes effect.
    Changes,
    /// Instructions that a slice adds to an allocation.
    Instructions,
    /// Memory beyond a cap under a storm of allocations.
    Overshoot,
}

/// Loops that each variant runs each round: name, order, and preparation.
fn loops() -> Vec<(&'static str, String, Before)> {
    let pairs = |bytes: u64, live: u32| format!("pairs {bytes} {live} {STEPS}");
    vec![
        ("alloc_free_10", pairs(BLOCK, 10), Before::Empty),
        ("alloc_free_10000", pairs(BLOCK, 10_000), Before::Empty),
        ("alloc_free_full", pairs(BLOCK, 10), Before::NearlyFull),
        ("alloc_free_small_10", pairs(SMALL, 10), Before::Empty),
        ("alloc_free_small_10000", pairs(SMALL, 10_000), Before::Empty),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Empty,
    NearlyFull,
}

/// Makes the measurements of these parts, of all if there are none, and records them in the report.
pub(crate) fn all(stage: &Stage, quick: bool, only: &[Part], report: &mut Report) -> Result<()> {
    let wants = |part: Part| only.is_empty() || only.contains(&part);
    let rounds = if quick { 3 } else { 15 };
    let many = if quick { 20 } else { 100 };
    let node = Node::start(stage, Driver::Stub, "0.9")?;
    let variants: Vec<Variant> =
        [Variant::Native, Variant::Ours].into_iter().chain(Variant::peer()).collect();
    if wants(Part::Calls) {
        call_costs(&node, &variants, rounds, report)?;
        answers::recalls(&node, many, report)?;
        rates(&node, &variants, rounds, report)?;
    }
    if wants(Part::Starts) {
        starts(&node, &variants, rounds, "_on_stub", report)?;
    }
    if wants(Part::Answers) {
        answers::views(&node, &variants, rounds, "", report)?;
        answers::rejections(&node, &variants, rounds, "", report)?;
        answers::crowded(&node, rounds, report)?;
        answers::rejections_with_credit_elsewhere(&node, many, report)?;
    }
    if wants(Part::Changes) {
        reclaims(&node, many, report)?;
        resizes(&node, many / 2, report)?;
    }
    if wants(Part::Instructions) {
        counted(&node, stage, &variants, report)?;
    }
    drop(node);
    if wants(Part::Starts) {
        let node = Node::start(stage, Driver::Simulated, "1")?;
        let ratio = starts(&node, &variants, 2 * rounds, "", report)?;
        report.at_most("startup_256_procs_ratio", ratio, "", 1.25);
    }
    if wants(Part::Overshoot) {
        overshoot(stage, if quick { 1 } else { 5 }, report)?;
    }
    Ok(())
}

fn call_costs(node: &Node, variants: &[Variant], rounds: usize, report: &mut Report) -> Result<()> {
    let mut clients: Vec<Client> =
        variants.iter().map(|variant| node.client(variant)).collect::<Result<_>>()?;
    let loops = loops();
    let mut times = vec![vec![Vec::new(); loops.len()]; variants.len()];
    for _ in 0..rounds {
        for (at, (_, order, before)) in loops.iter().enumerate() {
            for (client, times) in clients.iter_mut().zip(&mut times) {
                if *before == Before::NearlyFull {
                    client.ask(&format!("fill {}", 64 << 20))?;
                }
                times[at].push(client.ask(order)?);
                client.ask("drop")?;
            }
        }
    }
    let (mut added, mut medians) = (Vec::new(), Vec::new());
    for (at, (name, ..)) in loops.iter().enumerate() {
        for (variant, times) in variants.iter().zip(&times) {
            report.figure(&format!("{name}_ns"), variant.name(), "ns", &times[at]);
        }
        let beyond: Vec<f64> =
            times[1][at].iter().zip(&times[0][at]).map(|(ours, native)| ours - native).collect();
        medians.push(report.figure(&format!("{name}_added_ns"), "ours", "ns", &beyond));
        added.push(beyond);
    }
    report.at_most("alloc_free_added_ns", medians[0].max(medians[1]).max(medians[2]), "ns", 60.0);
    let over = |part: usize, whole: usize| median_ratio(&added[part], &added[whole]);
    report.at_most("alloc_free_added_10000_over_10", over(1, 0), "", 1.5);
    report.at_most("alloc_free_added_full_over_empty", over(2, 0), "", 1.5);
    report.at_most("alloc_free_added_small_10000_over_10", over(4, 3), "", 1.5);
    Ok(())
}

/// Median of the ratios of values that were measured in the same rounds.
fn median_ratio(values: &[f64], to: &[f64]) -> f64 {
    let ratios: Vec<f64> = values.iter().zip(to).map(|(value, to)| value / to).collect();
    quantile(&sorted(&ratios), 0.5)
}

fn rates(node: &Node, variants: &[Variant], rounds: usize, report: &mut Report) -> Result<()> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut clients: Vec<Client> =
        variants.iter().map(|variant| node.client(variant)).collect::<Result<_>>()?;
    let counts = [cores, 64, 256];
    let mut rates = vec![vec![Vec::new(); counts.len()]; variants.len()];
    for round in 0..rounds {
        for (at, count) in counts.iter().enumerate() {
            for (variant, (client, rates)) in variants.iter().zip(clients.iter_mut().zip(&mut rates)) {
                // A third party's library may take half a minute to start 256 processes.
                if *count == 256 && round > 0 && matches!(variant, Variant::Peer { .. }) {
                    continue;
                }
                rates[at].push(client.ask(&format!("rate {count} {BLOCK} 200"))? / 1e6);
            }
        }
    }
    for (at, count) in counts.iter().enumerate() {
        for (variant, rates) in variants.iter().zip(&rates) {
            report.figure(&format!("alloc_rate_{count}_procs"), variant.name(), "M/s", &rates[at]);
        }
    }
    for (at, name) in [(1, "alloc_rate_64_procs_vs_cores"), (2, "alloc_rate_256_procs_vs_cores")] {
        let ratios: Vec<f64> = rates[1][at].iter().zip(&rates[1][0]).map(|(many, few)| many / few).collect();
        let median = report.figure(name, "ours", "", &ratios);
        if at == 1 {
            report.at_least(name, median, "", 0.8);
        }
    }
    Ok(())
}

/// Starts of 256 processes at once, beside bare ones; returns the median ratio of both times.
fn starts(node: &Node, variants: &[Variant], rounds: usize, when: &str, report: &mut Report) -> Result<f64> {
    const COUNT: f64 = 256.0;
    let mut clients: Vec<Client> =
        variants.iter().map(|variant| node.client(variant)).collect::<Result<_>>()?;
    let (mut wall, mut cpu) = (vec![Vec::new(); variants.len()], vec![Vec::new(); variants.len()]);
    let mut daemon = Vec::new();
    for round in 0..rounds {
        // In turns the first and the last, as a variant that always follows the same one meets what that leaves.
        let forwards = 0..variants.len();
        let order: Vec<usize> = if round % 2 == 0 { forwards.collect() } else { forwards.rev().collect() };
        for at in order {
            let variant = &variants[at];
            if round > 0 && matches!(variant, Variant::Peer { .. }) {
                continue;
            }
            let before = node.daemon_cpu_us();
            let [ms, us] = clients[at].ask_both("start 256")?;
            wall[at].push(ms);
            cpu[at].push(us);
            if matches!(variant, Variant::Ours) {
                daemon.push((node.daemon_cpu_us() - before) / COUNT);
            }
        }
    }
    for (at, variant) in variants.iter().enumerate() {
        report.figure(&format!("startup_256_procs{when}_ms"), variant.name(), "ms", &wall[at]);
        report.figure(&format!("startup_cpu_per_process{when}_us"), variant.name(), "us", &cpu[at]);
    }
    report.figure(&format!("startup_cpu_per_process_daemon{when}_us"), "ours", "us", &daemon);
    let ratios: Vec<f64> = wall[1].iter().zip(&wall[0]).map(|(ours, native)| ours / native).collect();
    Ok(report.figure(&format!("startup_256_procs{when}_ratio"), "ours", "", &ratios))
}

/// Time from the end of a process, as the kernel reports it, until a sibling is granted its memory.
///
/// The stub has nothing else to tear down.
fn reclaims(node: &Node, times: usize, report: &mut Report) -> Result<()> {
    let mut client = node.client(&Variant::Ours)?;
    let bytes = (client.ask("total")? * 0.6) as u64;
    let ms: Result<Vec<f64>> = (0..times).map(|_| client.ask(&format!("reclaim {bytes}"))).collect();
    let ms = ms?;
    report.figure("reclaim_after_sigkill_ms", "ours", "ms", &ms);
    report.at_most("reclaim_after_sigkill_ms_p99", quantile(&sorted(&ms), 0.99), "ms", 5.0);
    Ok(())
}

/// Time from the start of `tranche slice resize` until a running process reads the new size.
fn resizes(node: &Node, times: usize, report: &mut Report) -> Result<()> {
    let mut client = node.client(&Variant::Ours)?;
    let mut ms = Vec::new();
    for turn in 0..times {
        let (total, since) = (client.ask("total")? as u64, client.ask("clock")? as u64);
        let order = format!("settle {total} {since}");
        client.say(&order)?;
        let share = if turn % 2 == 0 { "0.5" } else { "0.9" };
        run(node.tranche().args(["slice", "resize", "bench", "-g", share]))?;
        ms.push(client.hear::<1>(&order)?[0]);
    }
    report.figure("settle_after_resize_ms", "ours", "ms", &ms);
    report.at_most("settle_after_resize_ms_p99", quantile(&sorted(&ms), 0.99), "ms", 100.0);
    run(node.tranche().args(["slice", "resize", "bench", "-g", "0.9"])).map(drop)
}

fn counted(node: &Node, stage: &Stage, variants: &[Variant], report: &mut Report) -> Result<()> {
    if !instructions::possible() {
        println!("SKIP: instructions are not counted, as valgrind is not installed here");
        return Ok(());
    }
    for variant in variants {
        match instructions::of_a_pair(node, stage, variant) {
            Ok(count) => drop(report.figure("alloc_free_instructions", variant.name(), "", &[count])),
            Err(complaint) if matches!(variant, Variant::Peer { .. }) => {
                println!("SKIP: the peer does not run under valgrind: {complaint}");
            }
            Err(complaint) => return Err(complaint),
        }
    }
    Ok(())
}

/// Excess over the cap, by the GPU's count, when eight processes race for half of a simulated GPU.
fn overshoot(stage: &Stage, rounds: usize, report: &mut Report) -> Result<()> {
    let node = Node::start(stage, Driver::Simulated, "0.5")?;
    let (mut over, mut used) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut client = node.client(&Variant::Ours)?;
        let cap = client.ask("total")?;
        client.ask("race 8")?;
        let held = node.device_used()?;
        client.ask("endrace")?;
        over.push((held - cap).max(0.0));
        used.push(held / MIB);
    }
    report.figure("race_of_8_held_mib", "ours", "MiB", &used);
    let worst = report.figure("overshoot_bytes", "ours", "bytes", &over).max(quantile(&sorted(&over), 1.0));
    report.at_most("overshoot_bytes", worst, "bytes", 0.0);
    Ok(())
}
