//! The engine over a real file, with several invented processes and an invented clock.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::*;

const MS: u64 = 1_000_000;

/// Time that moves on command, and processes that die on command.
#[derive(Clone, Debug, Default)]
struct Stage {
    now: Arc<AtomicU64>,
    dead: Arc<Mutex<HashSet<u32>>>,
    pid: u32,
}

impl World for Stage {
    fn now(&self) -> Time {
        Time(self.now.load(SeqCst))
    }
    fn myself(&self) -> Stamp {
        Stamp::new(self.pid, 1)
    }
    fn is_alive(&self, process: Stamp) -> bool {
        !self.dead.lock().unwrap().contains(&process.id())
    }
}

struct Play {
    _folder: tempfile::TempDir,
    path: std::path::PathBuf,
    stage: Stage,
    node: Node,
}

impl Play {
    fn on(preset: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        Node::create(&path, &NodeSpec::preset(preset).unwrap()).unwrap();
        let stage = Stage::default();
        let node = Node::attach_in(&path, Box::new(stage.clone())).unwrap();
        Self { _folder: folder, path, stage, node }
    }

    fn process(&self, pid: u32) -> Process {
        let world = Stage { pid, ..self.stage.clone() };
        Node::attach_in(&self.path, Box::new(world)).unwrap().register().unwrap()
    }

    fn gpu(&self, index: usize) -> Gpu {
        self.node.gpu(index).unwrap()
    }

    fn pass(&self, nanos: u64) {
        self.stage.now.fetch_add(nanos, SeqCst);
    }

    fn kill(&self, process: u32) {
        self.stage.dead.lock().unwrap().insert(process);
    }
}

fn kernel(lane: u64, millis: u64) -> Work {
    Work {
        lane: Lane::Blocking(lane),
        kind: WorkKind::Kernel,
        duration: Duration::from_millis(millis),
        after: None,
    }
}

fn mark(lane: u64, after: Option<Ticket>) -> Work {
    Work { kind: WorkKind::Mark, after, ..kernel(lane, 0) }
}

#[test]
fn all_memory_of_a_v100_can_be_taken_and_not_a_block_more() {
    let play = Play::on("v100x8");
    let (process, gpu) = (play.process(7), play.gpu(2));
    let context = process.create_context(gpu).unwrap();
    let free = Blocks(16255 - 154);
    assert_eq!(play.node.used(gpu).mib(), 308);
    process.take_blocks(gpu, free).unwrap();
    let refusal = process.take_blocks(gpu, Blocks(1)).unwrap_err();
    assert_eq!(refusal, Refusal::OutOfMemory { gpu, wanted: Blocks(1), free: Blocks::ZERO });
    process.give_blocks(gpu, free);
    process.destroy_context(context);
    assert_eq!(play.node.used(gpu), Blocks::ZERO);
}

#[test]
fn memory_is_exact_under_many_threads() {
    let play = Play::on("h200x1");
    let (process, gpu) = (play.process(7), play.gpu(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..500 {
                    process.take_blocks(gpu, Blocks(round % 7)).unwrap();
                    process.give_blocks(gpu, Blocks(round % 7));
                }
                process.take_blocks(gpu, Blocks(3)).unwrap();
            });
        }
    });
    assert_eq!(play.node.used(gpu), Blocks(12));
}

#[test]
fn giving_back_more_than_was_taken_gives_back_what_was_taken() {
    let play = Play::on("h200x1");
    let gpu = play.gpu(0);
    let (one, other) = (play.process(1), play.process(2));
    one.take_blocks(gpu, Blocks(5)).unwrap();
    other.take_blocks(gpu, Blocks(5)).unwrap();
    one.give_blocks(gpu, Blocks(50));
    assert_eq!(play.node.used(gpu), Blocks(5));
}

#[test]
fn what_a_dead_process_held_is_there_for_the_next() {
    let play = Play::on("v100x8");
    let gpu = play.gpu(0);
    let dying = play.process(1);
    dying.create_context(gpu).unwrap();
    dying.take_blocks(gpu, Blocks(16000)).unwrap();
    let other = play.process(2);
    assert!(other.take_blocks(gpu, Blocks(16000)).is_err());
    play.kill(1);
    other.take_blocks(gpu, Blocks(16255)).unwrap();
    assert_eq!(play.node.holdings(gpu).iter().map(|held| held.pid).collect::<Vec<_>>(), [2]);
}

#[test]
fn the_dead_stay_for_as_long_as_they_are_told_to() {
    let play = Play::on("v100x8");
    let gpu = play.gpu(1);
    let (dying, other) = (play.process(1), play.process(2));
    play.node.set(gpu, Setting::Linger(Duration::from_millis(500)));
    dying.take_blocks(gpu, Blocks(16000)).unwrap();
    dying.take_blocks(play.gpu(0), Blocks(1)).unwrap();
    play.kill(1);
    let listed = || play.node.holdings(gpu).iter().map(|held| held.memory).collect::<Vec<_>>();
    assert_eq!(listed(), [Blocks(16000)]);
    play.pass(498 * MS);
    assert!(other.take_blocks(gpu, Blocks(256)).is_err(), "they keep what they have");
    play.pass(3 * MS);
    other.take_blocks(gpu, Blocks(16255)).unwrap();
    assert_eq!(play.node.used(play.gpu(0)), Blocks::ZERO);
}

#[test]
fn what_the_driver_takes_for_a_process_goes_with_it() {
    let play = Play::on("v100x8");
    let gpu = play.gpu(0);
    let process = play.process(1);
    process.create_context(gpu).unwrap();
    assert_eq!(play.node.take_for(gpu, 1, Blocks(10)), Some(Ok(())));
    assert_eq!(play.node.take_for(gpu, 2, Blocks(10)), None);
    assert!(play.node.take_for(gpu, 1, Blocks(16255)).unwrap().is_err());
    assert_eq!(play.node.used(gpu), Blocks(164));
    play.kill(1);
    assert_eq!(play.node.used(gpu), Blocks::ZERO);
}

#[test]
fn shared_memory_is_counted_once_until_its_last_holder_is_gone() {
    let play = Play::on("v100x8");
    let gpu = play.gpu(0);
    let (maker, other, third) = (play.process(1), play.process(2), play.process(3));
    let seen = || play.node.holdings(gpu).iter().map(|held| (held.pid, held.memory.0)).collect::<Vec<_>>();
    maker.take_blocks(gpu, Blocks(10)).unwrap();
    let shared = maker.share(gpu, Blocks(7)).unwrap();
    other.join(shared).unwrap();
    third.join(shared).unwrap();
    assert_eq!((seen(), play.node.used(gpu)), (vec![(1, 10)], Blocks(10)));
    maker.leave(shared);
    maker.leave(shared);
    assert_eq!((seen(), play.node.used(gpu)), (vec![(1, 3), (2, 7)], Blocks(10)));
    play.kill(2);
    assert_eq!((seen(), play.node.used(gpu)), (vec![(1, 3), (3, 7)], Blocks(10)));
    third.leave(shared);
    assert_eq!((seen(), play.node.used(gpu)), (vec![(1, 3)], Blocks(3)));
    assert_eq!(third.join(shared), Err(Refusal::Gone(gpu)));
}

#[test]
fn the_most_that_was_ever_in_use_is_remembered_until_asked_for() {
    let play = Play::on("h200x1");
    let (process, gpu) = (play.process(1), play.gpu(0));
    process.take_blocks(gpu, Blocks(9)).unwrap();
    process.give_blocks(gpu, Blocks(5));
    process.take_blocks(gpu, Blocks(1)).unwrap();
    assert_eq!(play.node.take_used_high(gpu), Blocks(9));
    assert_eq!(play.node.take_used_high(gpu), Blocks(5));
}

#[test]
fn registering_again_forgets_what_was_held_before() {
    let play = Play::on("v100x8");
    play.process(1).take_blocks(play.gpu(0), Blocks(9)).unwrap();
    play.process(1);
    assert_eq!(play.node.used(play.gpu(0)), Blocks::ZERO);
}

#[test]
fn kernels_of_one_lane_end_one_after_the_other() {
    let play = Play::on("v100x8");
    let (process, gpu) = (play.process(1), play.gpu(0));
    let context = process.create_context(gpu).unwrap();
    let first = process.submit(context, kernel(1, 5)).unwrap();
    let second = process.submit(context, kernel(1, 5)).unwrap();
    let end = process.submit(context, mark(1, None)).unwrap();
    play.pass(6 * MS);
    assert!(play.node.is_done(first) && !play.node.is_done(second));
    assert_eq!(play.node.finished_at(end), None);
    play.pass(100 * MS);
    assert_eq!(play.node.finished_at(end), Some(Time(10 * MS)));
    assert_eq!(process.busy_ns(gpu), 10 * MS);
}

#[test]
fn shared_memory_outlasts_no_holder_that_was_killed_while_it_left() {
    let play = Play::on("h200x1");
    let gpu = play.gpu(0);
    let [maker, other, bystander] = [1, 2, 3].map(|pid| play.process(pid));
    maker.take_blocks(gpu, Blocks(7)).unwrap();
    let shared = maker.share(gpu, Blocks(7)).unwrap();
    other.join(shared).unwrap();
    let dies_while_it_leaves = |process: &Process, pid: u32| {
        play.node.ground(gpu).leave_unsettled(process.slot(), shared.serial());
        play.kill(pid);
        play.node.used(gpu)
    };
    assert_eq!(dies_while_it_leaves(&maker, 1), Blocks(7));
    let pays = play.node.holdings(gpu);
    assert_eq!(
        pays.iter().map(|holding| (holding.pid, holding.memory)).collect::<Vec<_>>(),
        [(2, Blocks(7))]
    );
    assert_eq!(dies_while_it_leaves(&other, 2), Blocks::ZERO);
    assert_eq!(bystander.join(shared), Err(Refusal::Gone(gpu)));
}

#[test]
fn two_processes_share_a_gpu_and_the_log_says_who_ran_when() {
    let play = Play::on("v100x8");
    let gpu = play.gpu(0);
    let processes = [play.process(1), play.process(2)];
    for process in &processes {
        let context = process.create_context(gpu).unwrap();
        process.submit(context, kernel(1, 10_000)).unwrap();
    }
    play.pass(1_000 * MS);
    let [one, other] = processes.map(|process| process.busy_ns(gpu));
    assert!(one.abs_diff(other) <= 2 * MS && one + other > 900 * MS, "{one} {other}");
    let log = play.node.log(gpu);
    let logged =
        |pid| log.iter().filter(|entry| entry.pid == pid).map(|entry| entry.to.0 - entry.from.0).sum();
    assert_eq!((one, other), (logged(1), logged(2)));
    assert!(log.windows(2).all(|pair| pair[0].to <= pair[1].from));
    let last = log.len() as u64 - 1;
    assert_eq!(play.node.log_from(gpu, last), (last, vec![log[log.len() - 1]]));
    assert_eq!(play.node.log_from(gpu, last + 1), (last + 1, Vec::new()));
}

#[test]
fn time_is_recorded_once_where_a_process_is_killed_before_it_stores_it() {
    let play = Play::on("v100x8");
    let (process, gpu) = (play.process(1), play.gpu(0));
    let context = process.create_context(gpu).unwrap();
    process.submit(context, kernel(1, 400)).unwrap();
    for _ in 0..3 {
        play.pass(100 * MS);
        let ground = play.node.ground(gpu);
        ground.run_until_now(&mut ground.load());
    }
    play.pass(900 * MS);
    assert_eq!(process.busy_ns(gpu), 400 * MS);
    let log = play.node.log(gpu);
    assert_eq!(log.iter().map(|entry| entry.to.0 - entry.from.0).sum::<u64>(), 400 * MS);
    assert!(log.windows(2).all(|pair| pair[0].to <= pair[1].from));
}

#[test]
fn a_killed_process_loses_its_queue_and_its_turn() {
    let play = Play::on("v100x8");
    let gpu = play.gpu(0);
    let (one, other) = (play.process(1), play.process(2));
    for process in [&one, &other] {
        let context = process.create_context(gpu).unwrap();
        process.submit(context, kernel(1, 10_000)).unwrap();
    }
    play.pass(100 * MS);
    let before = other.busy_ns(gpu);
    play.kill(1);
    play.node.used(gpu);
    play.pass(100 * MS);
    assert!(other.busy_ns(gpu) - before > 99 * MS);
}

#[test]
fn work_waits_for_work_on_another_gpu() {
    let play = Play::on("v100x8");
    let process = play.process(1);
    let contexts = [0, 1].map(|index| process.create_context(play.gpu(index)).unwrap());
    let first = process.submit(contexts[0], kernel(1, 20)).unwrap();
    let event = process.submit(contexts[0], mark(1, None)).unwrap();
    process.submit(contexts[1], mark(1, Some(event))).unwrap();
    let last = process.submit(contexts[1], kernel(1, 5)).unwrap();
    play.pass(10 * MS);
    assert!(!play.node.is_done(first) && !play.node.is_done(last));
    play.pass(12 * MS);
    play.node.is_done(last);
    play.pass(10 * MS);
    assert!(play.node.is_done(last));
}

#[test]
fn utilisation_is_the_time_in_which_kernels_ran() {
    let play = Play::on("v100x8");
    let (process, gpu) = (play.process(1), play.gpu(0));
    let context = process.create_context(gpu).unwrap();
    for _ in 0..10 {
        process.submit(context, kernel(1, 50)).unwrap();
        play.pass(125 * MS);
    }
    assert_eq!(play.node.utilization(gpu), Utilization { gpu: 40, memory: 20 });
    assert_eq!(play.node.process_utilization(gpu)[0].utilization.gpu, 40);
    assert!(play.node.vitals(gpu).power_mw > 42_000);
    play.pass(2_000 * MS);
    assert_eq!(play.node.utilization(gpu), Utilization::default());
}

#[test]
fn a_gate_holds_until_it_is_opened() {
    let play = Play::on("v100x8");
    let process = play.process(1);
    let context = process.create_context(play.gpu(0)).unwrap();
    let gate = process.submit(context, Work { kind: WorkKind::Gate, ..kernel(1, 0) }).unwrap();
    let behind = process.submit(context, kernel(1, 1)).unwrap();
    play.pass(100 * MS);
    assert!(!play.node.is_done(behind));
    play.node.open_gate(gate);
    play.pass(MS);
    assert!(play.node.is_done(behind));
}

#[test]
fn modes_decide_who_may_make_contexts() {
    let play = Play::on("v100x8");
    let (one, other, gpu) = (play.process(1), play.process(2), play.gpu(0));
    play.node.set(gpu, Setting::ComputeMode(ComputeMode::ExclusiveProcess));
    one.create_context(gpu).unwrap();
    one.create_context(gpu).unwrap();
    assert_eq!(other.create_context(gpu), Err(Refusal::ComputeMode(gpu)));
    play.kill(1);
    other.create_context(gpu).unwrap();
    play.node.set(gpu, Setting::ComputeMode(ComputeMode::Prohibited));
    assert_eq!(other.create_context(gpu), Err(Refusal::ComputeMode(gpu)));
}

#[test]
fn a_lost_gpu_refuses_memory_and_work_and_ends_waiting() {
    let play = Play::on("v100x8");
    let (process, gpu) = (play.process(1), play.gpu(0));
    let context = process.create_context(gpu).unwrap();
    let ticket = process.submit(context, kernel(1, 10)).unwrap();
    play.node.set(gpu, Setting::Presence(Presence::Lost));
    assert_eq!(process.take_blocks(gpu, Blocks(1)), Err(Refusal::Lost(gpu)));
    assert_eq!(process.submit(context, kernel(1, 1)), Err(Refusal::Lost(gpu)));
    assert_eq!(play.node.wait(ticket), Err(Refusal::Lost(gpu)));
}

#[test]
fn faults_are_counted_and_remembered_in_order() {
    let play = Play::on("v100x8");
    let gpu = play.gpu(0);
    let epoch = play.node.fault_epoch();
    play.node.raise_xid(gpu, 31);
    play.node.raise_xid(gpu, 79);
    assert_ne!(play.node.fault_epoch(), epoch);
    let codes: Vec<_> = play.node.xids_after(gpu, 0).iter().map(|xid| (xid.count, xid.code)).collect();
    assert_eq!(codes, [(1, 31), (2, 79)]);
    assert_eq!(play.node.xids_after(gpu, 1).len(), 1);
}

#[test]
fn a_destroyed_context_takes_no_more_work_and_its_work_counts_as_done() {
    let play = Play::on("v100x8");
    let process = play.process(1);
    let context = process.create_context(play.gpu(0)).unwrap();
    let ticket = process.submit(context, kernel(1, 10)).unwrap();
    process.destroy_context(context);
    process.destroy_context(context);
    assert!(play.node.is_done(ticket));
    assert_eq!(process.submit(context, kernel(1, 1)), Err(Refusal::Destroyed));
}

#[test]
fn requests_of_several_callers_are_carried_out_one_after_the_other() {
    let play = Play::on("v100x8");
    let process = play.process(7);
    let controlled = play.node.controlled(7).unwrap();
    let swapped: Vec<Gpu> = [1, 0, 2, 3, 4, 5, 6, 7].map(|index| play.gpu(index)).into();
    let wanted = [
        Request::Lock(None),
        Request::Lock(Some(Duration::from_millis(20))),
        Request::Checkpoint,
        Request::Restore(None),
        Request::Restore(Some(swapped)),
        Request::Unlock,
    ];
    let serve = || {
        let carried_out = (1..=wanted.len() as u64).map(|result| {
            let (number, request) =
                (0..500).find_map(|_| process.next_request(Duration::from_millis(20))).unwrap();
            process.answer(number, result, ProcessState::Locked);
            request
        });
        carried_out.collect::<Vec<_>>()
    };
    let (carried_out, results) = std::thread::scope(|scope| {
        let server = scope.spawn(serve);
        let callers: Vec<_> =
            wanted.iter().map(|one| scope.spawn(|| controlled.request(one).unwrap())).collect();
        let results: HashSet<u64> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
        (server.join().unwrap(), results)
    });
    assert!(wanted.iter().all(|one| carried_out.contains(one)), "{carried_out:?}");
    assert_eq!(results, (1..=6).collect());
    assert_eq!(controlled.state(), ProcessState::Locked);
}

#[test]
fn a_request_to_a_process_that_ends_ends_too() {
    let play = Play::on("v100x8");
    let _process = play.process(7);
    let controlled = play.node.controlled(7).unwrap();
    let asked = std::thread::spawn(move || controlled.request(&Request::Checkpoint));
    std::thread::sleep(Duration::from_millis(30));
    assert!(!asked.is_finished());
    play.kill(7);
    assert_eq!(asked.join().unwrap(), None);
    assert!(play.node.controlled(7).is_none());
}

#[test]
fn a_later_process_in_the_same_place_finds_no_request_of_the_first() {
    let play = Play::on("v100x8");
    let first = play.process(7);
    first.answer(1, 0, ProcessState::Failed);
    first.note_kept(5);
    assert_eq!(play.node.stopped().len(), 1);
    play.kill(7);
    let second = play.process(8);
    let controlled = play.node.controlled(8).unwrap();
    assert_eq!((controlled.state(), controlled.kept_bytes()), (ProcessState::Running, 0));
    assert_eq!(second.next_request(Duration::ZERO), None);
}
