//! Several real processes on one node: they share it, and no death of one harms the others.
#![allow(clippy::unwrap_used, reason = "in a test, a failure is the answer")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use simgpu::{Blocks, Gpu, Lane, Node, NodeSpec, Work, WorkKind};

struct Bench {
    _folder: tempfile::TempDir,
    path: PathBuf,
    node: Node,
}

impl Bench {
    fn on(preset: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        let node = Node::create(&path, &NodeSpec::preset(preset).unwrap()).unwrap();
        Self { _folder: folder, path, node }
    }

    fn gpu(&self) -> Gpu {
        self.node.gpu(0).unwrap()
    }

    fn used_mib(&self) -> u64 {
        self.node.used(self.gpu()).mib()
    }
}

/// A process that dies with the test.
struct Tenant(Child);

impl Tenant {
    fn start(path: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_simgpu"));
        let mut child =
            command.arg("tenant").arg(path).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn within(limit: Duration, what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kernel(length: Duration) -> Work {
    Work { lane: Lane::Blocking(1), kind: WorkKind::Kernel, duration: length, after: None }
}

fn simgpu(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_simgpu")).args(arguments).output().unwrap()
}

#[test]
fn a_killed_process_leaves_no_memory_and_no_work_behind() {
    let bench = Bench::on("v100x8");
    let tenants: Vec<Tenant> =
        (0..3).map(|_| Tenant::start(&bench.path, &["--mib", "1000", "--kernel-us", "5000"])).collect();
    assert_eq!(bench.used_mib(), 3 * 1308);
    within(Duration::from_secs(10), "all three run", || {
        bench.node.holdings(bench.gpu()).iter().all(|held| held.busy_ns > 20_000_000)
    });
    tenants.into_iter().for_each(Tenant::kill);
    assert_eq!(bench.used_mib(), 0);
    let busy = bench.node.busy_ns(bench.gpu());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(bench.node.busy_ns(bench.gpu()), busy);
}

#[test]
fn a_zombie_holds_nothing() {
    let bench = Bench::on("v100x8");
    let mut tenant = Tenant::start(&bench.path, &["--mib", "1000"]);
    tenant.0.kill().unwrap();
    within(Duration::from_secs(5), "the memory comes back before anybody waits", || bench.used_mib() == 0);
}

#[test]
fn a_process_killed_inside_the_lock_stops_nobody_and_the_sums_are_right_again() {
    let bench = Bench::on("v100x8");
    let gpu = bench.gpu();
    let _neighbour = Tenant::start(&bench.path, &["--mib", "1000"]);
    let mut crashing = Tenant::start(&bench.path, &["--mib", "2000", "--crash", "locked"]);
    crashing.0.wait().unwrap();
    let process = bench.node.register().unwrap();
    process.take_blocks(gpu, Blocks::holding_mib(10)).unwrap();
    assert_eq!(bench.used_mib(), 1308 + 10);
}

#[test]
fn a_process_stopped_in_the_midst_of_its_work_stops_nobody() {
    let bench = Bench::on("v100x8");
    let gpu = bench.gpu();
    let stopped = Tenant::start(&bench.path, &["--mib", "1000", "--kernel-us", "1"]);
    let process = bench.node.register().unwrap();
    for _ in 0..20 {
        signal(&stopped, "STOP");
        process.take_blocks(gpu, Blocks(1)).unwrap();
        process.give_blocks(gpu, Blocks(1));
        signal(&stopped, "CONT");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(bench.used_mib(), 1308);
}

fn signal(tenant: &Tenant, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &tenant.0.id().to_string()]).status().unwrap().success());
}

#[test]
fn six_processes_that_want_more_than_there_is_get_exactly_what_there_is() {
    let bench = Bench::on("v100x8");
    let start = || {
        let arguments = ["tenant", bench.path.to_str().unwrap(), "--mib", "9000"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_simgpu"));
        Tenant(command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let mut tenants: Vec<Tenant> = (0..6).map(|_| start()).collect();
    let is_ready = |tenant: &mut Tenant| {
        let mut line = String::new();
        BufReader::new(tenant.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line == "ready\n"
    };
    let served = tenants.iter_mut().map(is_ready).filter(|ready| *ready).count();
    assert_eq!(served, 3, "three times 9308 MiB fit into 32510");
    within(Duration::from_secs(5), "the refused are gone", || bench.used_mib() == 3 * 9308);
}

#[test]
fn two_saturating_processes_get_half_each() {
    let bench = Bench::on("v100x8");
    let _tenants = [1_000, 50].map(|us: u32| Tenant::start(&bench.path, &["--kernel-us", &us.to_string()]));
    let busy = || -> Vec<u64> { bench.node.holdings(bench.gpu()).iter().map(|held| held.busy_ns).collect() };
    within(Duration::from_secs(10), "both run", || busy().iter().all(|ns| *ns > 20_000_000));
    let before = busy();
    std::thread::sleep(Duration::from_millis(400));
    let ran: Vec<u64> = busy().iter().zip(before).map(|(after, before)| after - before).collect();
    let share = ran[0] * 1000 / (ran[0] + ran[1]);
    assert!((420..=580).contains(&share), "{ran:?}");
}

#[test]
fn a_waiter_gets_the_whole_gpu_when_the_other_is_killed() {
    let bench = Bench::on("v100x8");
    let gpu = bench.gpu();
    let other = Tenant::start(&bench.path, &["--kernel-us", "1000000"]);
    let process = bench.node.register().unwrap();
    let context = process.create_context(gpu).unwrap();
    let ticket = process.submit(context, kernel(Duration::from_millis(400))).unwrap();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        other.kill();
    });
    bench.node.wait(ticket).unwrap();
    killer.join().unwrap();
    assert_eq!(process.busy_ns(gpu), 400_000_000);
    assert_eq!(bench.node.holdings(gpu).len(), 1);
}

#[test]
fn killing_many_at_random_moments_wedges_nobody() {
    let bench = Bench::on("v100x8");
    let gpu = bench.gpu();
    let process = bench.node.register().unwrap();
    let context = process.create_context(gpu).unwrap();
    for round in 0..12 {
        let tenant = Tenant::start(&bench.path, &["--mib", "100", "--kernel-us", "20"]);
        let ticket = process.submit(context, kernel(Duration::from_millis(2))).unwrap();
        std::thread::sleep(Duration::from_micros(777 * round));
        tenant.kill();
        bench.node.wait(ticket).unwrap();
    }
    assert_eq!(bench.used_mib(), 308);
}

#[test]
fn waiting_takes_as_long_as_the_work() {
    let bench = Bench::on("h200x1");
    let process = bench.node.register().unwrap();
    let context = process.create_context(bench.gpu()).unwrap();
    let start = Instant::now();
    for _ in 0..1000 {
        process.submit(context, kernel(Duration::from_micros(100))).unwrap();
    }
    process.drain(context).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert_eq!(process.busy_ns(bench.gpu()), 100_000_000);
}

#[test]
fn the_command_makes_shows_and_changes_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node");
    let file = file.to_str().unwrap();
    assert!(simgpu(&["create", "--preset", "mixed", file]).status.success());
    assert!(
        simgpu(&["set", file, "--gpu", "2", "--mig", "on", "--xid", "79", "--lost", "on"]).status.success()
    );
    let shown: serde_json::Value = serde_json::from_slice(&simgpu(&["show", "--json", file]).stdout).unwrap();
    assert_eq!(shown["gpus"][2]["settings"]["mig"], "enabled");
    assert_eq!(shown["gpus"][2]["settings"]["presence"], "lost");
    assert_eq!(shown["gpus"][2]["xids"][0]["code"], 79);
    assert_eq!(shown["gpus"][0]["capacity_mib"], 32510);
    let table = String::from_utf8(simgpu(&["show", file]).stdout).unwrap();
    assert!(table.contains("NVIDIA H200") && table.contains("Xid 79"), "{table}");
}

#[test]
fn bad_input_says_what_is_wrong_and_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node");
    let file = file.to_str().unwrap();
    let complaint = |arguments: &[&str]| {
        let output = simgpu(arguments);
        assert!(!output.status.success(), "{arguments:?} was accepted");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(complaint(&["create", "--preset", "v99", file]).contains("presets are h200x1"));
    assert!(complaint(&["show", file]).contains("can't open the node file"));
    assert!(simgpu(&["create", "--preset", "v100x8", file]).status.success());
    assert!(complaint(&["create", "--preset", "v100x8", file]).contains("exists"));
    assert!(complaint(&["set", file, "--gpu", "8", "--lost", "on"]).contains("its GPUs are 0 to 7"));
    assert!(complaint(&["set", file, "--gpu", "1"]).contains("--lost"));
    assert!(complaint(&["set", file, "--gpu", "1", "--mig", "on"]).contains("has no MIG"));
    let taken = complaint(&["take", file, "--gpu", "1", "--pid", "1", "--mib", "2"]);
    assert!(taken.contains("process 1 is not known"), "{taken}");
    assert!(simgpu(&["create", "--force", "--preset", "h200x1", file]).status.success());
}

#[test]
fn a_node_can_be_made_from_a_preset_file_and_a_bad_one_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let create = |preset: &str| simgpu(&["create", "--preset", preset, &path("node")]);
    std::fs::write(path("bad.toml"), "about = \"x\"\n[[gpu]]\nmodell = \"a30\"").unwrap();
    let complaint = String::from_utf8(create(&path("bad.toml")).stderr).unwrap();
    assert!(complaint.contains("bad.toml is not a preset") && complaint.contains("line 3"), "{complaint}");
    std::fs::write(path("good.toml"), "about = \"x\"\n[[gpu]]\nmodel = \"a30\"\ncount = 3").unwrap();
    assert!(create(&path("good.toml")).status.success());
    assert_eq!(Node::attach(Path::new(&path("node"))).unwrap().gpus().count(), 3);
}
