//! Processes locked, checkpointed and restored by another process, on every driver that has the calls.
#![allow(clippy::unwrap_used, reason = "a test may end where something is not as it must be")]

mod bench;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bench::Bench;
use simgpu::{Blocks, Gpu, MigMode, Node, Setting, personalities};

/// Source of tenant and controller.
const CLIENT: &str = "checkpoint.c";
/// Longest wait for a line that has to come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time in which a line that must not come would have come.
const MOMENT: Duration = Duration::from_millis(300);
/// Results of the driver.
const SUCCESS: &str = "0";
const INVALID_VALUE: &str = "1";
const OUT_OF_MEMORY: &str = "2";
const NOT_INITIALIZED: &str = "3";
const OPERATING_SYSTEM: &str = "304";
const ILLEGAL_STATE: &str = "401";
const NOT_READY: &str = "600";
const NOT_SUPPORTED: &str = "801";

/// A program that answers each line with a line. Killed when dropped.
struct Talker {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Talker {
    fn start(mut program: Command) -> Self {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let all = BufReader::new(output).lines().map_while(Result::ok);
            all.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
        });
        Self { child, input, lines }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn hear(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    fn is_silent(&self) -> bool {
        self.lines.recv_timeout(MOMENT).is_err()
    }

    #[track_caller]
    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no answer to {line:?}"))
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A bench, its node, and a controller that has initialised its driver.
struct Scene {
    bench: Bench,
    node: Node,
    controller: Talker,
}

impl Scene {
    fn set(preset: &str, key: &str) -> Option<Self> {
        let bench = Bench::with_driver(preset, key, CLIENT)?;
        let node = Node::attach(&bench.path("node")).unwrap();
        let mut controller = Talker::start(program(&bench, &["control"]));
        assert_eq!(controller.hear(), "all six");
        assert_eq!(controller.ask("init"), SUCCESS);
        Some(Self { bench, node, controller })
    }

    fn tenant(&self) -> Talker {
        self.tenant_with(&[])
    }

    fn tenant_with(&self, settings: &[(&str, &str)]) -> Talker {
        let mut tenant = program(&self.bench, &[]);
        tenant.envs(settings.iter().copied());
        let tenant = Talker::start(tenant);
        assert_eq!(tenant.hear(), "ready");
        tenant
    }

    #[track_caller]
    fn call(&mut self, verb: &str, tenant: &Talker, more: &str) -> String {
        self.controller.ask(&format!("{verb} {} {more}", tenant.pid()))
    }

    /// Calls that have to succeed.
    #[track_caller]
    fn calls(&mut self, verbs: &[&str], tenant: &Talker) {
        for verb in verbs {
            assert_eq!(self.call(verb, tenant, ""), SUCCESS, "{verb}");
        }
    }

    #[track_caller]
    fn state(&mut self, tenant: &Talker) -> u32 {
        let answer = self.call("state", tenant, "");
        answer.strip_prefix("0 ").and_then(|state| state.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }

    fn gpu(&self, index: usize) -> Gpu {
        self.node.gpu(index).unwrap()
    }

    /// Memory of a process on a GPU, as NVML has it, if it is listed.
    fn listed(&self, gpu: usize, tenant: &Talker) -> Option<Blocks> {
        let listed = self.node.holdings(self.gpu(gpu));
        listed.into_iter().find(|held| held.pid == tenant.pid()).map(|held| held.memory)
    }
}

fn program(bench: &Bench, arguments: &[&str]) -> Command {
    let mut client = bench.client();
    client.args(arguments).env("SIMGPU_NODE", bench.path("node")).env("IPC_FILE", bench.path("ipc"));
    client.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    client
}

/// Drivers with the calls.
fn drivers() -> impl Iterator<Item = String> {
    let with = personalities().filter(|driver| driver.has(12_080)).map(|driver| driver.key);
    let with: Vec<String> = with.collect();
    assert!(with.len() >= 3, "{with:?}");
    with.into_iter()
}

/// Gives a tenant memory of every kind that can be kept.
fn fill(tenant: &mut Talker) -> String {
    for line in [
        "alloc plain 8192 1",
        "alloc plain 5 2",
        "alloc plain 700 3",
        "alloc pool 3000 4",
        "alloc virtual 4096 5",
        "alloc global 0 6",
        "alloc empty 4194304 0",
    ] {
        assert_eq!(tenant.ask(line), "done", "{line}");
    }
    tenant.ask("sum")
}

#[test]
fn drivers_before_570_have_none_of_the_calls() {
    for driver in personalities() {
        let Some(bench) = Bench::with_driver("h200x1", &driver.key, CLIENT) else { return };
        let controller = Talker::start(program(&bench, &["control"]));
        let wanted = if driver.has(12_080) { "all six" } else { "none" };
        assert_eq!(controller.hear(), wanted, "{}", driver.key);
    }
}

#[test]
fn contents_and_charges_come_back_as_they_were() {
    for key in drivers() {
        let Some(mut scene) = Scene::set("h200x1", &key) else { return };
        let mut tenant = scene.tenant();
        let before = fill(&mut tenant);
        let (used, listed) = (scene.node.used(scene.gpu(0)), scene.listed(0, &tenant).unwrap());
        assert!(listed.mib() > 4096 && used == listed, "{used}, {listed}");
        for round in 0..3 {
            scene.calls(&["lock", "checkpoint"], &tenant);
            assert_eq!(scene.listed(0, &tenant), None, "NVML lists it");
            assert_eq!(scene.node.used(scene.gpu(0)), Blocks::ZERO);
            let kept = scene.node.stopped();
            assert_eq!(kept.iter().map(|process| process.pid()).collect::<Vec<_>>(), [tenant.pid()]);
            assert!(kept[0].kept_bytes() > 4096 << 20, "{}", kept[0].kept_bytes());
            scene.calls(&["restore"], &tenant);
            assert_eq!(scene.listed(0, &tenant), Some(listed), "round {round}");
            scene.calls(&["unlock"], &tenant);
            assert_eq!(tenant.ask("sum"), before, "driver {key}, round {round}");
        }
        assert_eq!(tenant.ask("alloc plain 4096 7"), "done");
        assert_eq!(tenant.ask("spin 1"), "done");
    }
}

#[test]
fn each_call_needs_its_state() {
    let Some(mut scene) = Scene::set("h200x1", "580") else { return };
    let tenant = scene.tenant();
    let course = [("lock", 1), ("checkpoint", 2), ("restore", 1), ("unlock", 0)];
    assert_eq!(scene.state(&tenant), 0);
    let allowed = |state: u32, verb: &str| match state {
        0 => verb == "lock",
        1 => matches!(verb, "checkpoint" | "unlock"),
        _ => verb == "restore",
    };
    for (verb, after) in course {
        let state = scene.state(&tenant);
        for other in ["lock", "checkpoint", "restore", "unlock"] {
            if !allowed(state, other) {
                assert_eq!(scene.call(other, &tenant, ""), ILLEGAL_STATE, "{other} in {state}");
                assert_eq!(scene.state(&tenant), state);
            }
        }
        scene.calls(&[verb], &tenant);
        assert_eq!(scene.state(&tenant), after);
    }
}

#[test]
fn calls_of_a_locked_process_wait_and_queries_do_not() {
    let Some(mut scene) = Scene::set("h200x1", "610") else { return };
    let mut tenant = scene.tenant();
    scene.calls(&["lock"], &tenant);
    assert!(tenant.ask("who").ends_with(".0"), "the device is no secret");
    tenant.say("spin 1");
    assert!(tenant.is_silent(), "a launch passed in a locked process");
    scene.calls(&["checkpoint"], &tenant);
    assert!(tenant.is_silent(), "a launch passed without a GPU");
    scene.calls(&["restore", "unlock"], &tenant);
    assert_eq!(tenant.hear(), "done");
}

#[test]
fn a_lock_waits_for_submitted_work() {
    let Some(mut scene) = Scene::set("h200x1", "570") else { return };
    let mut tenant = scene.tenant();
    assert_eq!(tenant.ask("spin 400"), "done");
    let begin = Instant::now();
    scene.calls(&["lock"], &tenant);
    assert!(begin.elapsed() >= Duration::from_millis(350), "{:?}", begin.elapsed());
    scene.calls(&["unlock"], &tenant);
}

#[test]
fn a_lock_that_takes_too_long_leaves_the_process_running() {
    let Some(mut scene) = Scene::set("h200x1", "570") else { return };
    let mut tenant = scene.tenant();
    assert_eq!(tenant.ask("wait"), "done");
    let begin = Instant::now();
    assert_eq!(scene.call("lock", &tenant, "200"), NOT_READY);
    assert!((Duration::from_millis(200)..Duration::from_secs(5)).contains(&begin.elapsed()));
    assert_eq!(scene.state(&tenant), 0);
    assert_eq!(tenant.ask("alloc plain 4 1"), "done", "it runs on");
    assert_eq!(tenant.ask("go"), "done");
    assert_eq!(scene.call("lock", &tenant, "10000"), SUCCESS);
}

#[test]
fn events_keep_the_time_between_them() {
    let Some(mut scene) = Scene::set("h200x1", "580") else { return };
    let mut tenant = scene.tenant();
    assert_eq!(tenant.ask("timed"), "done");
    scene.calls(&["lock", "checkpoint", "restore", "unlock"], &tenant);
    let length: f64 = tenant.ask("time").parse().unwrap();
    assert!((3.0..4.0).contains(&length), "{length} ms");
}

#[test]
fn a_copy_to_the_host_takes_its_bytes_over_the_bus() {
    let Some(mut scene) = Scene::set("h200x1", "580") else { return };
    let mut tenant = scene.tenant();
    assert_eq!(tenant.ask("alloc empty 26214400 0"), "done");
    scene.calls(&["lock"], &tenant);
    let rate = scene.node.gpu_spec(scene.gpu(0)).model.link.pcie_gigabytes_per_second;
    let least = Duration::from_nanos((25 << 30) / rate);
    for verb in ["checkpoint", "restore"] {
        let begin = Instant::now();
        scene.calls(&[verb], &tenant);
        let took = begin.elapsed();
        assert!(took >= least && took < least * 13 / 10 + Duration::from_millis(300), "{verb}: {took:?}");
    }
}

#[test]
fn a_restore_without_room_fails_for_ever() {
    for (key, state) in [("580", 2), ("610", 3)] {
        let Some(mut scene) = Scene::set("h200x1", key) else { return };
        let mut tenant = scene.tenant();
        assert_eq!(tenant.ask("alloc empty 83886080 0"), "done");
        scene.calls(&["lock", "checkpoint"], &tenant);
        {
            let mut other = scene.tenant();
            assert_eq!(other.ask("alloc empty 83886080 0"), "done");
            let used = scene.node.used(scene.gpu(0));
            assert_eq!(scene.call("restore", &tenant, ""), OUT_OF_MEMORY);
            assert_eq!(scene.node.used(scene.gpu(0)), used, "a failed restore took memory");
        }
        assert_eq!(scene.state(&tenant), state, "driver {key}");
        assert_eq!(scene.node.used(scene.gpu(0)), Blocks::ZERO);
        assert_eq!(scene.call("restore", &tenant, ""), OPERATING_SYSTEM, "with room");
        assert_eq!(scene.call("unlock", &tenant, ""), ILLEGAL_STATE);
        assert!(tenant.child.try_wait().unwrap().is_none(), "it can still be killed");
    }
}

#[test]
fn mig_and_managed_memory_are_refused_and_leave_a_failed_process() {
    let Some(mut scene) = Scene::set("h200x1", "580") else { return };
    let mut managed = scene.tenant();
    assert_eq!(managed.ask("alloc managed 2048 1"), "done");
    scene.calls(&["lock"], &managed);
    assert_eq!(scene.call("checkpoint", &managed, ""), NOT_SUPPORTED);
    assert_eq!(scene.state(&managed), 3);
    assert_eq!(scene.call("unlock", &managed, ""), ILLEGAL_STATE);
    let cut = scene.tenant();
    scene.node.set(scene.gpu(0), Setting::Mig(MigMode::Enabled));
    scene.calls(&["lock"], &cut);
    assert_eq!(scene.call("checkpoint", &cut, ""), OUT_OF_MEMORY);
    assert_eq!(scene.state(&cut), 3);
}

/// A checkpoint does not return until the process is killed.
#[track_caller]
fn hangs(scene: &mut Scene, mut tenant: Talker) {
    assert_eq!(scene.call("lock", &tenant, "5000"), SUCCESS);
    scene.controller.say(&format!("checkpoint {}", tenant.pid()));
    assert!(scene.controller.is_silent(), "the checkpoint returned");
    tenant.child.kill().unwrap();
    tenant.child.wait().unwrap();
    assert_eq!(scene.controller.hear(), OPERATING_SYSTEM);
}

#[test]
fn multicast_and_legacy_memory_of_other_processes_hang() {
    let Some(mut scene) = Scene::set("h200x1", "610") else { return };
    let mut multicast = scene.tenant();
    assert_eq!(multicast.ask("alloc multicast 0 0"), "done");
    hangs(&mut scene, multicast);
    let (mut exporter, mut importer) = (scene.tenant(), scene.tenant());
    assert_eq!(exporter.ask("alloc plain 4096 1"), "done");
    assert_eq!(exporter.ask("share export-ipc 0 0"), "done");
    assert_eq!(importer.ask("share import-ipc 0 0"), "done");
    hangs(&mut scene, importer);
    hangs(&mut scene, exporter);
}

#[test]
fn an_import_fails_at_the_restore_and_its_exporter_comes_back() {
    let Some(mut scene) = Scene::set("h200x1", "610") else { return };
    let (mut exporter, mut importer) = (scene.tenant(), scene.tenant());
    let descriptor = exporter.ask("share export-fd 0 0");
    assert_eq!(importer.ask(&format!("share import-fd {} {descriptor}", exporter.pid())), "done");
    let before = exporter.ask("sum");
    scene.calls(&["lock", "checkpoint"], &importer);
    assert_eq!(scene.call("restore", &importer, ""), INVALID_VALUE);
    assert_eq!(scene.state(&importer), 3);
    scene.calls(&["lock", "checkpoint", "restore", "unlock"], &exporter);
    assert_eq!(exporter.ask("sum"), before);
}

#[test]
fn the_host_holds_what_the_gpu_held() {
    let Some(mut scene) = Scene::set("h200x1", "580") else { return };
    scene.node.set(scene.gpu(0), Setting::FullImages(true));
    let mut tenant = scene.tenant();
    assert_eq!(tenant.ask("alloc empty 262144 0"), "done");
    let resident = |tenant: &Talker| {
        let status =
            std::fs::read_to_string(Path::new("/proc").join(tenant.pid().to_string()).join("status"));
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().split(' ').next().unwrap().parse::<u64>().unwrap() / 1024
    };
    let before = resident(&tenant);
    scene.calls(&["lock", "checkpoint"], &tenant);
    let grown = resident(&tenant) - before;
    assert!((250..300).contains(&grown), "{grown} MiB");
    scene.calls(&["restore"], &tenant);
    assert!(resident(&tenant) < before + 50);
}

#[test]
fn the_end_of_a_restored_process_takes_the_node_down_where_it_is_scripted() {
    for (restored, suspended) in [(true, false), (true, true), (false, false)] {
        let Some(mut scene) = Scene::set("v100x8", "610") else { return };
        scene.node.set(scene.gpu(0), Setting::RestoredHangs(true));
        let mut tenant = scene.tenant();
        if restored {
            scene.calls(&["lock", "checkpoint", "restore", "unlock"], &tenant);
        }
        if suspended {
            scene.calls(&["lock", "checkpoint"], &tenant);
        }
        tenant.child.kill().unwrap();
        tenant.child.wait().unwrap();
        scene.node.reap();
        let down = restored && !suspended;
        for gpu in scene.node.gpus() {
            let settings = scene.node.settings(gpu);
            assert_eq!(
                (scene.node.is_lost(gpu), settings.hangs),
                (down, down),
                "{restored}, {suspended}, {gpu}"
            );
        }
    }
}

#[test]
fn a_map_moves_a_process_if_it_names_every_gpu() {
    let Some(mut scene) = Scene::set("v100x8", "580") else { return };
    let mut tenant = scene.tenant();
    let before = fill(&mut tenant);
    let (memory, was) = (scene.listed(0, &tenant).unwrap(), tenant.ask("who"));
    scene.calls(&["lock", "checkpoint"], &tenant);
    assert_eq!(scene.call("map", &tenant, "3 1"), INVALID_VALUE, "a GPU is left out");
    assert_eq!(scene.state(&tenant), 2, "a refused map breaks nothing");
    assert_eq!(scene.call("map", &tenant, "3 0"), SUCCESS);
    scene.calls(&["unlock"], &tenant);
    assert_eq!((scene.listed(0, &tenant), scene.listed(3, &tenant)), (None, Some(memory)));
    assert_eq!(tenant.ask("sum"), before);
    let is = tenant.ask("who");
    let parts =
        |line: &str| line.split_once(' ').map(|(uuid, bus)| (uuid.to_owned(), bus.to_owned())).unwrap();
    assert_ne!(parts(&is).0, parts(&was).0, "the UUID is the old one's");
    assert_eq!(parts(&is).1, parts(&was).1, "the address on the bus is the new one's");
    assert_eq!(tenant.ask("spin 5"), "done");
    assert_eq!(tenant.ask("alloc plain 4096 8"), "done");
    scene.calls(&["lock"], &tenant);
    assert!(scene.node.busy_ns(scene.gpu(3)) >= 5_000_000, "its work runs elsewhere");
}

#[test]
fn a_map_names_also_the_gpus_that_are_hidden_from_the_process() {
    let Some(mut scene) = Scene::set("v100x8", "580") else { return };
    let tenant = scene.tenant_with(&[("CUDA_VISIBLE_DEVICES", "2")]);
    scene.calls(&["lock", "checkpoint"], &tenant);
    let mut masked = program(&scene.bench, &["control"]);
    masked.env("CUDA_VISIBLE_DEVICES", "2");
    let mut masked = Talker::start(masked);
    assert_eq!(masked.hear(), "all six");
    assert_eq!(masked.ask("init"), SUCCESS);
    assert_eq!(masked.ask(&format!("map {} 0 0", tenant.pid())), INVALID_VALUE, "the one that it sees");
    assert_eq!(scene.call("map", &tenant, "1 0"), SUCCESS);
    assert!(scene.listed(3, &tenant).is_some());
}

#[test]
fn driver_570_has_no_maps() {
    let Some(mut scene) = Scene::set("v100x8", "570") else { return };
    let tenant = scene.tenant();
    scene.calls(&["lock", "checkpoint"], &tenant);
    assert_eq!(scene.call("map", &tenant, "0 0"), INVALID_VALUE);
    scene.calls(&["restore", "unlock"], &tenant);
}

#[test]
fn arguments_and_processes_are_checked() {
    let Some(mut scene) = Scene::set("h200x1", "580") else { return };
    let tenant = scene.tenant();
    scene.calls(&["lock"], &tenant);
    assert_eq!(scene.call("checkpoint", &tenant, "1"), INVALID_VALUE, "reserved words");
    let own = std::process::id();
    assert_eq!(
        scene.controller.ask(&format!("state {own}")),
        format!("{NOT_INITIALIZED} -1"),
        "no driver in it"
    );
    assert_eq!(scene.controller.ask("state -1"), format!("{INVALID_VALUE} -1"));
    assert_eq!(scene.controller.ask("lock 4194304"), INVALID_VALUE, "no process");
    let thread = scene.call("thread", &tenant, "");
    let thread = thread.strip_prefix("0 ").unwrap();
    let name = format!("/proc/{}/task/{thread}/comm", tenant.pid());
    assert_eq!(std::fs::read_to_string(name).unwrap(), "cuda-checkpoint\n");
}

#[test]
fn only_a_restore_needs_an_initialised_caller() {
    let Some(scene) = Scene::set("h200x1", "570") else { return };
    let mut tenant = scene.tenant();
    let before = fill(&mut tenant);
    let mut controller = Talker::start(program(&scene.bench, &["control"]));
    assert_eq!(controller.hear(), "all six");
    let pid = tenant.pid();
    assert_eq!(controller.ask(&format!("lock {pid}")), SUCCESS);
    assert_eq!(controller.ask(&format!("checkpoint {pid}")), SUCCESS);
    assert_eq!(controller.ask(&format!("restore {pid}")), NOT_INITIALIZED);
    assert_eq!(controller.ask("init"), SUCCESS);
    assert_eq!(controller.ask(&format!("restore {pid}")), SUCCESS);
    assert_eq!(controller.ask(&format!("unlock {pid}")), SUCCESS);
    assert_eq!(tenant.ask("sum"), before);
}

#[test]
fn a_killed_caller_leaves_a_request_that_is_carried_out() {
    let Some(mut scene) = Scene::set("h200x1", "580") else { return };
    let mut tenant = scene.tenant();
    assert_eq!(tenant.ask("alloc empty 52428800 0"), "done");
    scene.calls(&["lock"], &tenant);
    let mut second = Talker::start(program(&scene.bench, &["control"]));
    assert_eq!(second.hear(), "all six");
    second.say(&format!("checkpoint {}", tenant.pid()));
    std::thread::sleep(Duration::from_millis(200));
    drop(second);
    assert_eq!(scene.call("restore", &tenant, ""), SUCCESS, "it waits for the checkpoint");
    scene.calls(&["unlock"], &tenant);
}
