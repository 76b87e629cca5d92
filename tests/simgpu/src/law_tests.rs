//! The law of time, in virtual time.

use super::*;
use crate::lane::{Lane, WorkKind};
use std::collections::HashMap;

const MS: u64 = 1_000_000;
const RULES: Rules =
    Rules { slice: 2 * MS, switch: 190_000, handover: 40_000, concurrent: 4, quirks: Quirks::NONE };

#[derive(Default)]
struct Record {
    ran: HashMap<usize, u64>,
    finished: HashMap<u64, u64>,
    last: u64,
}

impl Witness for Record {
    fn ran(&mut self, context: usize, _: Ran, from: u64, to: u64) {
        assert!(from >= self.last && to > from, "two things ran at once or time stood still");
        self.last = to;
        *self.ran.entry(context).or_default() += to - from;
    }

    fn finished(&mut self, _: usize, piece: &Piece, at: u64) -> ControlFlow<()> {
        self.finished.insert(piece.sequence, at);
        Continue(())
    }
}

fn piece(sequence: u64, lane: Lane, kind: WorkKind, remaining: u64) -> Piece {
    Piece { sequence, place: 0, lane, kind, remaining, after: After::Nothing }
}

fn kernel(sequence: u64, lane: u64, length: u64) -> Piece {
    piece(sequence, Lane::Blocking(lane), WorkKind::Kernel, length)
}

fn gpu(queues: &[&[Piece]]) -> Timeline {
    let queue = |(context, pieces): (usize, &&[Piece])| Queue {
        context,
        slice: None,
        pieces: pieces.iter().copied().collect(),
    };
    Timeline { queues: queues.iter().enumerate().map(queue).collect(), ..Timeline::default() }
}

fn run(timeline: &mut Timeline, until: u64) -> Record {
    run_with(Quirks::NONE, timeline, until)
}

fn run_with(quirks: Quirks, timeline: &mut Timeline, until: u64) -> Record {
    let mut record = Record::default();
    timeline.advance(until, Rules { quirks, ..RULES }, &mut record);
    record
}

#[test]
fn one_context_alone_has_the_gpu_from_the_first_moment() {
    let record = run(&mut gpu(&[&[kernel(1, 1, 5 * MS), kernel(2, 1, 7 * MS)]]), 100 * MS);
    assert_eq!((record.finished[&1], record.finished[&2]), (5 * MS, 12 * MS));
    assert_eq!(record.ran[&0], 12 * MS);
}

#[test]
fn two_saturating_contexts_get_half_each_within_a_slice() {
    let endless = [kernel(1, 1, u64::MAX)];
    let other = [kernel(2, 1, u64::MAX)];
    let record = run(&mut gpu(&[&endless, &other]), 1000 * MS);
    let (first, second) = (record.ran[&0], record.ran[&1]);
    assert!(first.abs_diff(second) <= RULES.slice, "{first} and {second}");
    let lost = (1000 * MS - first - second) / MS;
    assert!((80..=90).contains(&lost), "switches lose as much as was measured on GPUs: {lost} permille");
}

#[test]
fn a_context_with_a_longer_slice_gets_more() {
    let mut timeline = gpu(&[&[kernel(1, 1, u64::MAX)], &[kernel(2, 1, u64::MAX)]]);
    timeline.queues[1].slice = Some(6 * MS);
    let record = run(&mut timeline, 1000 * MS);
    assert!(record.ran[&1].abs_diff(3 * record.ran[&0]) <= 12 * MS, "{:?}", record.ran);
}

#[test]
fn four_contexts_of_short_kernels_share_alike() {
    let queues: Vec<Vec<Piece>> =
        (0..4).map(|context| (0..200).map(|n| kernel(context * 1000 + n, 1, 5 * MS)).collect()).collect();
    let queues: Vec<&[Piece]> = queues.iter().map(Vec::as_slice).collect();
    let record = run(&mut gpu(&queues), 400 * MS);
    for context in 0..4 {
        assert!(record.ran[&context].abs_diff(record.ran[&0]) <= RULES.slice);
    }
}

#[test]
fn a_context_that_idles_leaves_its_time_to_the_other() {
    let record = run(&mut gpu(&[&[kernel(1, 1, 3 * MS)], &[kernel(2, 1, 50 * MS)]]), 200 * MS);
    assert_eq!((record.ran[&0], record.ran[&1]), (3 * MS, 50 * MS));
    assert!(record.finished[&2] <= 53 * MS + 4 * RULES.switch, "no time is lost but in switches");
}

#[test]
fn the_turn_of_a_killed_context_goes_to_the_others() {
    let mut timeline = gpu(&[&[kernel(1, 1, u64::MAX)], &[kernel(2, 1, u64::MAX)]]);
    run(&mut timeline, 100 * MS);
    timeline.remove(0);
    let record = run(&mut timeline, 200 * MS);
    assert!(record.ran[&1] >= 100 * MS - RULES.switch);
    assert!(!record.ran.contains_key(&0));
}

#[test]
fn looking_often_or_seldom_gives_the_same_history() {
    let queues = [vec![kernel(1, 1, 9 * MS), kernel(3, 2, 4 * MS)], vec![kernel(2, 1, 11 * MS)]];
    let queues: Vec<&[Piece]> = queues.iter().map(Vec::as_slice).collect();
    let seldom = run(&mut gpu(&queues), 100 * MS);
    let mut timeline = gpu(&queues);
    let mut often = Record::default();
    for step in 1..=1000 {
        timeline.advance(step * 100_000, RULES, &mut often);
    }
    assert_eq!((often.finished, often.ran), (seldom.finished, seldom.ran));
}

#[test]
fn lanes_of_one_context_run_side_by_side_up_to_the_limit() {
    let kernels: Vec<Piece> = (1..=5).map(|n| kernel(n, n, 10 * MS)).collect();
    let record = run(&mut gpu(&[&kernels]), 100 * MS);
    assert_eq!(record.finished[&4], 10 * MS);
    assert_eq!(record.finished[&5], 20 * MS, "the fifth has to wait, four can run");
}

#[test]
fn the_legacy_lane_waits_for_blocking_lanes_and_they_for_it_but_free_lanes_do_not() {
    let pieces = [
        kernel(1, 1, 10 * MS),
        piece(2, Lane::Legacy, WorkKind::Kernel, 10 * MS),
        kernel(3, 2, 10 * MS),
        piece(4, Lane::Free(9), WorkKind::Kernel, 5 * MS),
    ];
    let record = run(&mut gpu(&[&pieces]), 100 * MS);
    let at = |sequence| record.finished[&sequence] / MS;
    assert_eq!((at(1), at(2), at(3), at(4)), (10, 20, 30, 5));
}

#[test]
fn a_mark_is_passed_at_the_moment_what_is_before_it_ends() {
    let pieces = [kernel(1, 1, 3 * MS), piece(2, Lane::Blocking(1), WorkKind::Mark, 0), kernel(3, 1, MS)];
    assert_eq!(run(&mut gpu(&[&pieces]), 10 * MS).finished[&2], 3 * MS);
}

#[test]
fn what_crosses_the_bus_does_so_beside_whatever_runs() {
    let copies = [
        piece(2, Lane::Blocking(1), WorkKind::Upload, 10 * MS),
        piece(3, Lane::Blocking(2), WorkKind::Upload, 10 * MS),
        piece(4, Lane::Blocking(3), WorkKind::Download, 15 * MS),
        kernel(5, 1, MS),
    ];
    let record = run(&mut gpu(&[&[kernel(1, 1, 50 * MS)], &copies]), 100 * MS);
    let at = |sequence| record.finished[&sequence] / MS;
    assert_eq!((at(2), at(3), at(4)), (10, 20, 15), "one at a time in each direction, from the first moment");
    assert_eq!((record.ran[&0], record.ran[&1]), (50 * MS, MS), "only the kernels have had the GPU");
    assert!(record.finished[&5] > 10 * MS, "a lane keeps its order");
    assert!(record.finished[&1] <= 51 * MS + 2 * RULES.switch, "copies cost the kernels nothing");
}

#[test]
fn what_is_moved_inside_the_device_takes_turns_with_kernels() {
    let fills = [piece(2, Lane::Blocking(1), WorkKind::Copy, u64::MAX)];
    let record = run(&mut gpu(&[&[kernel(1, 1, u64::MAX)], &fills]), 1000 * MS);
    assert!(record.ran[&0].abs_diff(record.ran[&1]) <= RULES.slice, "{:?}", record.ran);
}

#[test]
fn a_shut_gate_holds_its_lane_and_no_other() {
    let pieces = [piece(1, Lane::Blocking(1), WorkKind::Gate, 1), kernel(2, 1, MS), kernel(3, 2, MS)];
    let mut timeline = gpu(&[&pieces]);
    let record = run(&mut timeline, 10 * MS);
    assert!(record.finished.contains_key(&3) && !record.finished.contains_key(&2));
    timeline.queues[0].pieces[0].remaining = 0;
    assert_eq!(run(&mut timeline, 20 * MS).finished[&2], 11 * MS);
}

#[test]
fn work_waits_for_a_piece_of_another_context_and_for_a_moment() {
    let behind = Piece { after: After::Piece(1), ..kernel(2, 1, MS) };
    let later = Piece { after: After::Moment(30 * MS), ..kernel(3, 2, MS) };
    let record = run(&mut gpu(&[&[kernel(1, 1, 6 * MS)], &[behind, later]]), 100 * MS);
    assert_eq!(record.finished[&2], 7 * MS + RULES.handover);
    assert_eq!(record.finished[&3], 31 * MS);
}

#[test]
fn what_is_foreseen_is_what_happens() {
    let timeline = gpu(&[&[kernel(1, 1, 9 * MS)], &[kernel(2, 1, 12 * MS)]]);
    let foreseen = timeline.foresee(2, u64::MAX, RULES);
    assert_eq!(foreseen, run(&mut timeline.clone(), 100 * MS).finished.get(&2).copied());
    assert_eq!(timeline.foresee(2, 5 * MS, RULES), None);
}

#[test]
fn mark_of_a_length_holds_its_lane_up() {
    let pieces = [kernel(1, 1, MS), piece(2, Lane::Blocking(1), WorkKind::Mark, 8_000), kernel(3, 1, MS)];
    let record = run(&mut gpu(&[&pieces]), 10 * MS);
    assert_eq!((record.finished[&2], record.finished[&3]), (MS + 8_000, 2 * MS + 8_000));
}

#[test]
fn kernel_that_is_not_preempted_ends_before_the_next_context_begins() {
    let quirks = Quirks { preempts: false, ..Quirks::NONE };
    let queues = [&[kernel(1, 1, 9 * MS), kernel(3, 1, MS)][..], &[kernel(2, 1, 4 * MS)]];
    let record = run_with(quirks, &mut gpu(&queues), 100 * MS);
    assert_eq!(record.finished[&1], 9 * MS);
    assert_eq!(record.finished[&2], 13 * MS + RULES.switch, "its slice was over with its first kernel");
    assert_eq!(record.finished[&3], 14 * MS + RULES.switch + RULES.handover);
}

#[test]
fn other_lanes_begin_nothing_while_an_unpreempted_kernel_ends() {
    let quirks = Quirks { preempts: false, ..Quirks::NONE };
    let first = [kernel(1, 1, 9 * MS), kernel(3, 2, MS), kernel(4, 2, MS), kernel(5, 2, MS)];
    let record = run_with(quirks, &mut gpu(&[&first, &[kernel(2, 1, MS)]]), 100 * MS);
    assert_eq!((record.finished[&3], record.finished[&4], record.finished[&1]), (MS, 2 * MS, 9 * MS));
    assert_eq!(record.finished[&2], 10 * MS + RULES.switch);
}

#[test]
fn newcomer_waits_for_the_rest_of_a_renewed_slice() {
    let newcomer = Piece { after: After::Moment(5 * MS), ..kernel(2, 1, MS) };
    let queues = [&[kernel(1, 1, 50 * MS)][..], &[newcomer]];
    let begins = |renews| {
        let record = run_with(Quirks { renews, ..Quirks::NONE }, &mut gpu(&queues), 100 * MS);
        record.finished[&2] - MS - RULES.switch
    };
    assert_eq!((begins(false), begins(true)), (5 * MS, 6 * MS));
}

#[test]
fn kernels_side_by_side_share_the_speed_of_as_many_as_fill_the_gpu() {
    let kernels: Vec<Piece> = (1..=4).map(|n| kernel(n, n, 10 * MS)).collect();
    for (abreast, at) in [(1, 40 * MS), (2, 20 * MS), (4, 10 * MS)] {
        let record = run_with(Quirks { abreast, ..Quirks::NONE }, &mut gpu(&[&kernels]), 100 * MS);
        assert_eq!((record.finished[&1], record.finished[&4]), (at, at), "{abreast} at full speed");
    }
}

#[test]
fn work_runs_at_half_speed_while_caches_are_cold() {
    let quirks = Quirks { cold: MS, ..Quirks::NONE };
    let behind = Piece { after: After::Piece(1), ..kernel(2, 1, 3 * MS) };
    let record = run_with(quirks, &mut gpu(&[&[kernel(1, 1, MS)], &[behind]]), 100 * MS);
    assert_eq!(record.finished[&1], MS, "the first context comes to an idle GPU");
    assert_eq!(record.finished[&2], MS + RULES.handover + MS + 5 * MS / 2);
}

#[test]
fn lengths_at_random_are_the_same_every_time_and_within_their_bounds() {
    let quirks = Quirks { slice_more: 2 * MS, switch_more: MS, ..Quirks::NONE };
    let game =
        || run_with(quirks, &mut gpu(&[&[kernel(1, 1, u64::MAX)], &[kernel(2, 1, u64::MAX)]]), 1000 * MS);
    let (one, other) = (game(), game());
    assert_eq!(one.ran, other.ran);
    let lost = 1000 - (one.ran[&0] + one.ran[&1]) / MS;
    assert!((160..=240).contains(&lost), "690 us of each 3.69 ms are lost: {lost} permille");
    assert!(one.ran[&0].abs_diff(one.ran[&1]) <= 60 * MS, "{:?}", one.ran);
}
