//! Programs on several GPUs continue, whatever parts of each other they wait for.
//!
//! A slice over several GPUs has them whole; slices that share them with others are played in `tests/arena`.

use std::thread::sleep;
use std::time::Duration;

use e2e::{Node, Process, compile};

use crate::load::{Load, MEASURE, SATURATING, SETTLE, alone, since};

/// Options of a slice with half of the GPU that follows them.
const HALF: &[&str] = &["--memory", "4Gi", "--compute", "50%", "--gpu"];

#[track_caller]
fn create(node: &Node, name: &str, options: &[&str]) {
    node.tranche(&[&["slice", "create", name], options].concat()).success();
}

/// Starts a load with half of a GPU, which always has work.
#[track_caller]
fn neighbour(node: &Node, gpu: &str) -> Load {
    Load::start(node, &[HALF, &[gpu]].concat(), SATURATING)
}

/// Starts a program whose kernels wait for another's, with a context on one of its slice's GPUs.
///
/// They wait in each of twenty rounds, as the ranks of a collective operation do.
#[track_caller]
fn rank(node: &Node, slice: &str, device: &str) -> Process {
    let program = compile("tests/e2e/clients/launch.c", &[]).expect("the tests need a C compiler");
    let (program, place) = (program.display().to_string(), node.dir().join("meet").display().to_string());
    let words = [program.as_str(), "meet", &place, device];
    let mut rank = Process::start(&mut node.run_in_slice(&["--slice", slice], &words));
    let line = rank.line().unwrap_or_default();
    assert!(line.starts_with("ready "), "{line:?}");
    rank
}

/// Starts two ranks one after the other, and fails unless they complete all rounds.
#[track_caller]
fn assert_meet(mut ranks: [Process; 2]) {
    for rank in &mut ranks {
        assert!(rank.say("go"), "a rank has ended");
        sleep(Duration::from_millis(300));
    }
    assert_met(&mut ranks);
}

/// Fails unless each rank completes twenty rounds of two launches.
#[track_caller]
fn assert_met(ranks: &mut [Process]) {
    for rank in ranks {
        let line = rank.line_within(Duration::from_secs(20)).unwrap_or_default();
        assert!(line.starts_with("done 40 "), "{line:?}");
    }
}

#[test]
fn ranks_on_the_gpus_of_one_slice_meet_and_do_so_after_a_pause_too() {
    let _alone = alone();
    let node = Node::simulated("v100x8");
    create(&node, "both", &["-g", "2"]);
    assert_meet(["0", "1"].map(|device| rank(&node, "both", device)));
    let mut ranks = ["1", "0"].map(|device| rank(&node, "both", device));
    node.tranche(&["slice", "freeze", "both"]).success();
    ranks.iter_mut().for_each(|rank| assert!(rank.say("go"), "a rank has ended"));
    sleep(SETTLE);
    node.tranche(&["slice", "thaw", "both"]).success();
    assert_met(&mut ranks);
}

#[test]
fn a_slice_over_two_gpus_has_both_or_none() {
    let _alone = alone();
    let node = Node::simulated("v100x8");
    create(&node, "both", &["-g", "2"]);
    let on = |device| Load::start(&node, &["--slice", "both"], &[SATURATING, &["--device", device]].concat());
    let both = ["0", "1"].map(on);
    let had = || {
        sleep(SETTLE);
        let from = [0, 1].map(|gpu| node.timeline(gpu).end());
        sleep(SETTLE);
        [0, 1].map(|gpu| since(&node, gpu, from[gpu], &[&both[gpu]])[0])
    };
    let before = had();
    assert!(before.iter().all(|percent| *percent > 40.0), "{before:.1?}");
    node.tranche(&["slice", "freeze", "both"]).success();
    assert_eq!(had(), [0.0, 0.0]);
    node.tranche(&["slice", "thaw", "both"]).success();
    let after = had();
    assert!(after.iter().all(|percent| *percent > 40.0), "{after:.1?}");
}

#[test]
fn slices_on_two_gpus_continue_despite_mutual_waits() {
    let _alone = alone();
    let node = Node::simulated("v100x8");
    let gpus = ["0", "1"];
    let _others = gpus.map(|gpu| neighbour(&node, gpu));
    gpus.iter().for_each(|gpu| create(&node, &format!("on-{gpu}"), &[HALF, &[gpu]].concat()));
    assert_meet(["on-0", "on-1"].map(|slice| rank(&node, slice, "0")));
}

#[test]
fn slices_of_one_gang_have_their_turns_together() {
    let _alone = alone();
    let node = Node::simulated("v100x8");
    let gpus = ["0", "1"];
    let _others = gpus.map(|gpu| neighbour(&node, gpu));
    let loads =
        gpus.map(|gpu| Load::start(&node, &[HALF, &[gpu], &["--gang", "ranks"]].concat(), SATURATING));
    sleep(SETTLE);
    let from = node.timeline(0).end();
    sleep(MEASURE);
    let timelines = [0, 1].map(|gpu| node.timeline(gpu));
    let to = timelines[0].end().min(timelines[1].end());
    let had = [0, 1].map(|at| timelines[at].percent(&[loads[at].pid], from, to));
    let had = had[0].min(had[1]);
    let both = timelines[0].percent_with(loads[0].pid, (&timelines[1], loads[1].pid), from, to);
    // Turns of two slices without a gang coincide for half of their time.
    assert!(had > 35.0 && both > 0.8 * had, "{both:.1} % at the same time, of {had:.1} %");
}

#[test]
fn ranks_on_one_gpu_meet_while_another_slice_wants_it() {
    let _alone = alone();
    let node = Node::simulated("v100x8");
    create(&node, "work", &[HALF, &["0"]].concat());
    let _other = neighbour(&node, "0");
    assert_meet(["0", "0"].map(|device| rank(&node, "work", device)));
}
