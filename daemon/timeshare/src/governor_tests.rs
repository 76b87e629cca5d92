use super::*;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tempfile::TempDir;
use tranche_domain::compute::Priority;
use tranche_domain::request::ComputeMode;
use tranche_domain::slice::Part;
use tranche_domain::units::Bytes;
use tranche_shm::compute::{CompletionMark, Tally};
use tranche_shm::control::ProcessIdentity;
use tranche_shm::lease::Lease;
use tranche_shm::{CountedTransfers, DeviceSlot, Slot};

use crate::member::ScheduledSlice;
use crate::rounds::HEARTBEAT;
use tranche_slices::regions::Regions;
use tranche_slices::worker::Workers;

const GPU: GpuUuid = GpuUuid::from_bytes([1; 16]);
const PATIENCE: Duration = Duration::from_secs(10);

struct Place {
    directory: TempDir,
    governor: Arc<Governor>,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, governor: Arc::new(Governor::new(CountedTransfers::None).unwrap()) }
    }

    /// A slice with one process in it.
    fn slice(&self, name: &str, permille: u32) -> (Slice, Arc<SliceRuntime>) {
        let directory = self.directory.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        let part = Part { gpu: GPU, cap: Bytes::mib(100) };
        let slice = slice(name, permille, part);
        let regions = Regions::create(&directory, 1, 1, false).unwrap();
        let thread = Workers::default().start(&slice.name).unwrap();
        let runtime = SliceRuntime::new(
            slice.name.clone(),
            thread,
            &directory,
            regions,
            &[(part, Bytes::ZERO)],
            false,
            0,
        );
        let runtime = Arc::new(runtime);
        runtime.regions.control().occupy(seat(), ProcessIdentity { pid: 7, start_time: 7, inner_pid: 7 });
        self.governor.admit(&slice, &runtime).unwrap();
        (slice, runtime)
    }
}

fn slice(name: &str, permille: u32, part: Part) -> Slice {
    Slice {
        name: name.parse().unwrap(),
        share: "0.5".parse().unwrap(),
        parts: vec![part],
        compute: Permille::try_from(permille).unwrap(),
        limit: Permille::WHOLE,
        mode: ComputeMode::Fair,
        priority: Priority::DEFAULT,
        latency: None,
        gang: None,
        project: None,
        frozen: false,
        parked: None,
        returned: false,
        ephemeral: false,
        park_idle: None,
        rotates: false,
        several_containers: false,
        pod: None,
        job: None,
        owner_uid: 0,
        created_unix_ms: 0,
    }
}

fn seat() -> Slot {
    Slot::new(0).unwrap()
}

fn lease(runtime: &SliceRuntime) -> Lease {
    runtime.regions.control().reader().lease()
}

/// One launch of that length is outstanding from now on.
fn launch(runtime: &SliceRuntime, sequence: u32, estimate_us: u32) {
    let record = runtime.regions.compute().record(seat());
    let device = DeviceSlot::new(0).unwrap();
    record.busy_since_ns(device).store(monotonic_ns(), Relaxed);
    record.marks().submit(CompletionMark { sequence, device, estimate_us });
}

fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !look() {
        assert!(start.elapsed() < PATIENCE, "still not so: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn lone_slice_is_open_and_heartbeat_advances() {
    let place = Place::new();
    let (_, runtime) = place.slice("a", 500);
    assert_eq!(runtime.regions.control().reader().heartbeat_ns(), 0, "no beat before a decision");
    let _running = place.governor.start().unwrap();
    eventually("it may launch", || lease(&runtime).governed && lease(&runtime).open);
    let control = runtime.regions.control().reader();
    let before = control.heartbeat_ns();
    eventually("the heart beats", || control.heartbeat_ns() > before + 2 * HEARTBEAT.get());
}

#[test]
fn transfers_mode_is_published_by_each_daemon() {
    let place = Place::new();
    let (slice, runtime) = place.slice("a", 500);
    let word = runtime.regions.control().reader().transfers_word();
    for counted in [CountedTransfers::All, CountedTransfers::Inside, CountedTransfers::None] {
        Governor::new(counted).unwrap().admit(&slice, &runtime).unwrap();
        assert_eq!(CountedTransfers::of_word(word.load(Relaxed)), counted);
    }
}

#[test]
fn frozen_slice_is_closed_until_thawed() {
    let place = Place::new();
    let (slice, runtime) = place.slice("a", 500);
    let _running = place.governor.start().unwrap();
    eventually("it may launch", || lease(&runtime).open);
    place.governor.change(&Slice { frozen: true, ..slice.clone() });
    eventually("it is frozen", || lease(&runtime).frozen && !lease(&runtime).open);
    runtime.regions.compute().record(seat()).tally(Tally::Waiting).store(1, Relaxed);
    runtime.regions.bell().write(1).unwrap();
    eventually("it is said", || place.governor.show(&slice.name).unwrap().why == Some(Why::Frozen));
    place.governor.change(&slice);
    eventually("it is thawed", || !lease(&runtime).frozen && lease(&runtime).open);
}

#[test]
fn signalling_waiter_gets_the_gpu_of_a_silent_holder() {
    let place = Place::new();
    let (_, holder) = place.slice("holder", 500);
    let (_, other) = place.slice("other", 500);
    let _running = place.governor.start().unwrap();
    launch(&holder, 1, 1_000_000);
    holder.regions.bell().write(1).unwrap();
    other.regions.compute().record(seat()).tally(Tally::Waiting).store(1, Relaxed);
    other.regions.bell().write(1).unwrap();
    eventually("the other may launch", || lease(&other).open);
}

#[test]
fn use_is_published_and_reported() {
    let place = Place::new();
    let (slice, runtime) = place.slice("a", 500);
    let _running = place.governor.start().unwrap();
    launch(&runtime, 1, 60_000_000);
    runtime.regions.bell().write(1).unwrap();
    let device = DeviceSlot::new(0).unwrap();
    eventually("its programs see it", || runtime.regions.control().reader().utilization(device).0 > 90);
    let shown = place.governor.show(&slice.name).unwrap();
    assert!(shown.used[0].0.get() > 900, "{shown:?}");
    place.governor.leave(&slice.name);
    assert!(place.governor.show(&slice.name).is_none());
}

/// Processor time that the scheduling thread has used.
fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let governs = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "idle-node\n")
    };
    let used = tasks.filter(governs).map(|task| {
        let stat = std::fs::read_to_string(task.join("schedstat")).unwrap();
        Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
    });
    used.sum()
}

#[test]
fn idle_slices_cost_under_a_hundredth_of_a_processor() {
    let place = Place::new();
    for number in 0..64 {
        let (_, runtime) = place.slice(&format!("s{number}"), 10);
        for pid in 1..4 {
            let identity = ProcessIdentity { pid, start_time: 7, inner_pid: pid };
            runtime.regions.control().occupy(Slot::new(pid as usize).unwrap(), identity);
        }
    }
    let governor = Arc::clone(&place.governor);
    let thread = thread::Builder::new().name("idle-node".into()).spawn(move || governor.run()).unwrap();
    thread::sleep(Duration::from_millis(500));
    let before = processor_time();
    thread::sleep(Duration::from_secs(2));
    let used = processor_time() - before;
    place.governor.stopping.store(true, Ordering::Release);
    place.governor.wake();
    thread.join().unwrap();
    assert!(used < Duration::from_millis(20), "{used:?} in two seconds");
    println!("{used:?} in two seconds");
}

#[test]
fn continuously_signalling_slice_is_muted() {
    let place = Place::new();
    let (_, runtime) = place.slice("a", 500);
    let wakeups = Wakeups::new().unwrap();
    let number = Number::FIRST;
    wakeups.add(runtime.regions.bell(), number).unwrap();
    let gpus = runtime.gpus.clone();
    let mut member = ScheduledSlice::new(SliceHandle::new(runtime, number, Arc::new(wakeups)), &gpus);
    let at = |us: u64| Instant::from_nanos(1_000_000_000 + us * 1000);
    for _ in 0..256 {
        member.count_wakeup(at(0));
    }
    assert_eq!(member.unmute(at(0)), None, "what may be saved up is heard");
    member.count_wakeup(at(0));
    assert_eq!(member.unmute(at(0)), Some(at(1000)));
    assert!(member.needs_look(at(0)), "it is looked at instead");
    assert_eq!(member.unmute(at(1000)), None);
    member.count_wakeup(at(1000));
    assert_eq!(member.unmute(at(1000)), None, "a millisecond is worth ten rings");
}

#[test]
fn use_that_the_driver_measures_is_shown_and_counted() {
    let place = Place::new();
    let (slice, _runtime) = place.slice("a", 500);
    let shown = || place.governor.show(&slice.name).unwrap();
    assert_eq!((shown().used[0].0.get(), shown().why), (0, Some(Why::NoWork)));
    let least = Duration::from_millis(18);
    place.governor.measure(&slice.name, GPU, 100);
    thread::sleep(Duration::from_millis(20));
    place.governor.measure(&slice.name, GPU, 90);
    assert_eq!((shown().used[0].0.get(), shown().why), (900, Some(Why::Running)));
    assert!(shown().busy[0] >= least && place.governor.total(GPU) >= least);
    assert_eq!(place.governor.readings().live[&(slice.name.clone(), GPU)], shown().busy[0]);
    // A slice of another name is not scheduled, and has no account.
    place.governor.measure(&"b".parse().unwrap(), GPU, 90);
    assert!(!place.governor.readings().live.contains_key(&("b".parse().unwrap(), GPU)));
    place.governor.leave(&slice.name);
    assert!(place.governor.total(GPU) >= least, "the use of a slice that ended stays counted");
}
