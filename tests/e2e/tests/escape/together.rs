//! All slices of a full GPU at once, and a slice that is resized while it is full.

use e2e::{Node, Process, eventually};
use tranche_domain::units::Bytes;

use crate::observer::{Observer, Watch};
use crate::trial::program;

/// A program that fills its slice at the start, and again at each line `again`.
struct Hoarder {
    process: Process,
    watch: Watch,
}

impl Hoarder {
    #[track_caller]
    fn begin(node: &Node, options: &[&str], route: &str) -> Self {
        let program = program();
        let words = [program.as_os_str(), route.as_ref()];
        let process = Process::start(&mut node.run_in_slice(options, &words));
        let watch = Watch::begin(Observer::of(&node.gpus(), process.pid()));
        Self { process, watch }
    }

    /// Waits until its slice is full; returns its memory on the first GPU.
    #[track_caller]
    fn full(&mut self) -> Bytes {
        assert_eq!(self.process.line().as_deref(), Some("full"));
        self.watch.observer().held()[0].memory
    }

    /// Makes it fill its slice again; returns its memory on the first GPU.
    #[track_caller]
    fn again(&mut self) -> Bytes {
        assert!(self.process.say("again"));
        self.full()
    }
}

#[track_caller]
fn assert_full(held: Bytes, cap: Bytes, whose: &str) {
    assert!(held <= cap, "{whose} holds {held} of {cap}");
    assert!(held.get() * 1000 >= cap.get() * 999, "{whose} holds {held} of {cap} only");
}

#[test]
fn all_slices_of_a_gpu_are_full_at_once_and_none_is_over() {
    let node = Node::simulated("v100x8");
    let shares = [
        ("half", "0.5", "plain_large"),
        ("third", "0.3", "stream_ordered"),
        ("fifth", "0.2", "physical_memory"),
    ];
    let mut hoarders: Vec<Hoarder> = shares
        .iter()
        .map(|(name, share, route)| {
            Hoarder::begin(&node, &["-g", share, "--gpu", "0", "--name", name], route)
        })
        .collect();
    let held: Vec<Bytes> = hoarders.iter_mut().map(Hoarder::full).collect();
    let snapshot = node.smi();
    let caps: Vec<Bytes> = shares.iter().map(|(name, _, _)| snapshot.slice(name).cap()).collect();
    assert_eq!(caps.iter().copied().sum::<Bytes>(), snapshot.gpus[0].capacity, "the GPU is all handed out");
    for ((name, _, _), (held, cap)) in shares.iter().zip(held.iter().zip(&caps)) {
        assert_full(*held, *cap, name);
    }
    for (hoarder, cap) in hoarders.into_iter().zip(caps) {
        let seen = hoarder.watch.end();
        assert!(seen.most <= cap && seen.looks > 0, "{seen:?} of {cap}");
        assert!(seen.ever <= snapshot.gpus[0].capacity, "{seen:?}");
    }
}

#[test]
fn a_slice_resized_in_the_middle_never_gets_more_than_it_may() {
    let node = Node::simulated("v100x8");
    let mut hoarder = Hoarder::begin(&node, &["--memory", "4Gi", "--name", "moving"], "again_and_again");
    let before = hoarder.full();
    assert_full(before, Bytes::mib(4096), "at first");
    node.tranche(&["slice", "resize", "moving", "--memory", "2Gi"]).success();
    assert_eq!(hoarder.again(), before, "memory over the new cap stays, and nothing is added");
    node.tranche(&["slice", "resize", "moving", "--memory", "6Gi"]).success();
    eventually("the larger size is usable", || match hoarder.again() {
        held if held.get() * 1000 >= Bytes::mib(6144).get() * 999 => Ok(()),
        held => Err(format!("{held} held")),
    });
    assert_full(hoarder.again(), Bytes::mib(6144), "at last");
    let seen = hoarder.watch.end();
    assert!(seen.ever <= Bytes::mib(6144), "{seen:?}");
}
