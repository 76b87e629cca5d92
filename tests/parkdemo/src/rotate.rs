//! Four slices of 0.6 on one GPU: the shares of a minute, and the stays beside their switches.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use e2e::{Node, Process, Timeline, until};
use stress::report::{Claim, Report, commit};

/// Memory of each program, for which equal times and long stays are measured.
const MEMORY: [&str; 2] = ["512Mi", "2Gi"];
const SLICES: [&str; 4] = ["first", "second", "third", "fourth"];
const MINUTE: Duration = Duration::from_secs(60);
/// Longest wait until each has had its first stay.
const BEGIN: Duration = Duration::from_secs(120);
/// Largest deviation of a share, in hundredths of a percentage point.
const DEVIATION: u64 = 300;
/// Shortest stay, in tenths of its switch.
const STAY: u64 = 100;

/// Prints what each slice has of a minute, and writes it as claims.
pub(crate) fn run(node: &mut Node, report: Option<&Path>) -> io::Result<bool> {
    node.configure("memory_overcommit = 2.4");
    node.kill_daemon();
    node.start_daemon();
    let (mut claims, mut figures) = (Vec::new(), BTreeMap::new());
    let (timeline, pids, [from, to]) = play(node, MEMORY[0]);
    let mut farthest = 0;
    for (name, pid) in SLICES.iter().zip(&pids) {
        let (had, percent) = timeline.share(&[*pid], from, to);
        println!("{name:>8} {:>6.2} s {percent:>6.2} %", had.as_secs_f64());
        farthest = farthest.max((100.0 * (percent - 25.0).abs()).round() as u64);
    }
    claims.push(Claim::at_most("farthest_from_an_equal_share", farthest, "hundredths of a pp", DEVIATION));
    figures.insert("gpu_in_use_per_mille", (10.0 * timeline.percent(&pids, from, to)).round() as u64);
    for (memory, name) in MEMORY.iter().zip(["shortest_stay_512_mib", "shortest_stay_2_gib"]) {
        let shortest = if *memory == MEMORY[0] {
            shortest_stay(&timeline, &pids)
        } else {
            let (timeline, pids, _) = play(node, memory);
            shortest_stay(&timeline, &pids)
        };
        claims.push(Claim::at_least(name, shortest, "tenths of its switch", STAY));
    }
    let report_of = Report {
        device: "Tesla V100-SXM2-32GB".into(),
        simulated: true,
        commit: commit(),
        claims,
        figures,
        deaths_at: BTreeMap::new(),
    };
    report_of.show();
    report.map_or(Ok(()), |path| report_of.write(path))?;
    Ok(report_of.holds())
}

/// Lets four programs work for a minute once each has its memory. Returns the GPU's log, their pids and the minute.
fn play(node: &Node, memory: &str) -> (Timeline, Vec<u32>, [u64; 2]) {
    let workload = node.stage().workload().display().to_string();
    let program = [&workload, "--memory", memory, "--kernel-ns", "10000000", "--seconds", "600"];
    let program = program.map(str::to_string);
    let start = |name: &&str| {
        let options = ["-g", "0.6", "--gpu", "0", "--rotate", "--name", name];
        Process::start(&mut node.run_in_slice(&options, &program))
    };
    let programs: Vec<Process> = SLICES.iter().map(start).collect();
    let of =
        |name: &str| node.smi().find(name).and_then(|slice| slice.processes.first().map(|first| first.pid));
    let pids = || SLICES.iter().map(|name| of(name)).collect::<Option<Vec<u32>>>();
    let have_begun = until(BEGIN, || {
        let (pids, timeline) = (pids().ok_or("a program has no call yet")?, node.timeline(0));
        let has_computed = |pid: &u32| timeline.stays().iter().any(|stay| stay.0 == *pid);
        if pids.iter().all(has_computed) { Ok(()) } else { Err("a program has not computed".to_string()) }
    });
    assert_eq!(have_begun, Ok(()));
    let (pids, from, begun) = (pids().unwrap_or_default(), node.timeline(0).end(), Instant::now());
    sleep(MINUTE.saturating_sub(begun.elapsed()));
    let timeline = node.timeline(0);
    drop(programs);
    let gone = until(BEGIN, || match node.smi().slices.len() {
        0 => Ok(()),
        left => Err(format!("{left} slices are left")),
    });
    assert_eq!(gone, Ok(()));
    (timeline, pids, [from, from + MINUTE.as_nanos() as u64])
}

/// The shortest stay with a switch after it, in tenths of that switch.
fn shortest_stay(timeline: &Timeline, pids: &[u32]) -> u64 {
    let mut stays = timeline.stays();
    stays.retain(|(pid, ..)| pids.contains(pid));
    // The programs take their memory in the first of each, which came with nothing.
    let ratios = stays.windows(2).skip(2 * SLICES.len()).map(|pair| {
        let [(_, from, to), (_, next, _)] = [pair[0], pair[1]];
        let (stay, switch) = (to - from, next.saturating_sub(to));
        10 * stay / switch.max(1)
    });
    ratios.min().unwrap_or(0)
}
