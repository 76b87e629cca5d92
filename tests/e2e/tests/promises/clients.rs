//! Programs that are written as usual, and programs of other projects: all of them see the slice.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use e2e::{CudaError, Kind, Node, Process, Tenant, compile, skip};
use serde_json::Value;
use tranche_domain::units::Bytes;

use crate::HALF_V100;

/// Output of a program in half a V100: one line of JSON.
#[track_caller]
fn report_of(node: &Node, words: &[impl AsRef<std::ffi::OsStr>]) -> Value {
    let output = node.run(&mut node.run_in_slice(&["-g", "0.5"], words)).success();
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}\n{output}"))
}

// ---- C ----

#[test]
fn a_linked_c_program_sees_the_slice() {
    let node = Node::simulated("v100x8");
    let folder = format!("-L{}", node.stage().libraries().display());
    let program = compile("tests/clients/linked.c", &[&folder, "-lcuda"]).expect("it links with the driver");
    let report = report_of(&node, &[program]);
    let half = HALF_V100.get();
    assert_eq!(
        (report["devices"].as_u64(), report["device_total"].as_u64()),
        (Some(1), Some(half)),
        "{report}"
    );
    assert_eq!((report["total"].as_u64(), report["took"].as_u64()), (Some(half), Some(64 << 20)), "{report}");
    assert_eq!(report["beyond"], CudaError::OUT_OF_MEMORY.0, "{report}");
}

#[test]
fn a_c_program_that_opens_the_driver_sees_the_slice_on_every_road() {
    let node = Node::simulated("v100x8");
    let program = compile("tests/clients/dlopened.c", &[]).expect("it needs nothing but libc");
    let report = report_of(&node, &[program]);
    let roads = report["roads"].as_array().expect("roads are a list");
    assert!(roads.len() >= 5, "{report}");
    for road in roads {
        assert_eq!(road["total"], HALF_V100.get(), "{report}");
        assert_eq!(road["beyond"], CudaError::OUT_OF_MEMORY.0, "{report}");
    }
}

#[test]
fn a_c_program_sees_the_slice_through_every_door() {
    let node = Node::simulated("v100x8");
    let program = compile("tests/e2e/clients/doors.c", &[]).expect("it needs nothing but libc");
    let output = node.run(&mut node.run_in_slice(&["-g", "0.5"], &[program])).success();
    assert_eq!(output.lines().count(), 8, "{output}");
    let half = HALF_V100.get().to_string();
    for line in output.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let piece = (64u64 << 20).to_string();
        let expected = [words[0], "1", &half, &half, &piece, "2"];
        assert_eq!(
            words, expected,
            "door, devices, total, total by info, taken for 64 MiB, answer to too much"
        );
    }
}

#[test]
fn c_program_gets_exactly_its_slice() {
    let node = Node::simulated("v100x8");
    let program = compile("tests/clients/cap.c", &[]).expect("it needs nothing but libc");
    let report = report_of(&node, &[program]);
    let reserve = node.smi().gpus[0].context_reserve;
    let filled = Bytes::new(report["filled"].as_u64().expect("it reports the size that it filled"));
    let usable = filled.saturating_add(reserve);
    assert!(usable <= HALF_V100, "{report}");
    assert!(usable.get() * 1000 >= HALF_V100.get() * 999, "{report}");
    assert!(report["free_when_full"].as_u64().expect("a number") < 2 << 20, "{report}");
}

#[test]
fn a_c_program_with_many_threads_loses_nothing() {
    let node = Node::simulated("v100x8");
    let program = compile("tests/clients/threads.c", &[]).expect("it needs nothing but libc");
    let words = [program.as_os_str(), "2".as_ref(), "8".as_ref()];
    let report = report_of(&node, &words);
    assert_eq!((report["errors"].as_u64(), report["missing"].as_i64()), (Some(0), Some(0)), "{report}");
    assert_eq!(report["total"], HALF_V100.get(), "{report}");
}

// ---- Rust ----

#[test]
fn cudarc_sees_the_slice() {
    let node = Node::simulated("v100x8");
    let workload = node.stage().workload();
    let words =
        [workload.as_os_str(), "--memory".as_ref(), "100Mi".as_ref(), "--launches".as_ref(), "10".as_ref()];
    let report = report_of(&node, &words);
    assert!(contains(&report, HALF_V100.get()), "{} is nowhere in\n{report:#}", HALF_V100.get());
}

/// True if a document contains a number at any depth.
fn contains(document: &Value, number: u64) -> bool {
    match document {
        Value::Number(found) => found.as_u64() == Some(number),
        Value::Array(items) => items.iter().any(|item| contains(item, number)),
        Value::Object(fields) => fields.values().any(|field| contains(field, number)),
        _ => false,
    }
}

// ---- Python ----

/// The virtual environment of the Python clients, made once; `None`, with a skip, if that fails.
fn venv() -> Option<&'static Path> {
    static VENV: OnceLock<Result<String, String>> = OnceLock::new();
    const MOST: Duration = Duration::from_secs(480); // it fetches 900 MB the first time
    let made = VENV.get_or_init(|| {
        let script = client("venv.sh");
        let outcome = Process::start(Command::new("sh").arg(script)).end_within(MOST);
        match outcome.code {
            Some(0) => Ok(outcome.stdout.trim().to_string()),
            _ => Err(outcome.stderr.trim().to_string()),
        }
    });
    match made {
        Ok(venv) => Some(Path::new(venv)),
        Err(complaint) => {
            skip(&format!("the Python clients cannot be installed: {complaint}"));
            None
        }
    }
}

fn client(name: &str) -> String {
    format!("{}/../clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A V100 with a tenant in the slice `ours` of half of it, and a neighbour in another slice.
struct Shared {
    node: Node,
    tenant: Tenant,
    neighbour: Tenant,
}

impl Shared {
    #[track_caller]
    fn gpu() -> Self {
        let node = Node::simulated("v100x8");
        let mut neighbour = node.tenant(&["-g", "0.3", "--gpu", "1"]).ready();
        neighbour.alloc(Kind::Plain, Bytes::mib(3000)).expect("the neighbour has room");
        node.tranche(&["slice", "create", "ours", "-g", "0.5", "--gpu", "1"]).success();
        let mut tenant = node.tenant(&["--slice", "ours"]).ready();
        tenant.alloc(Kind::Plain, Bytes::mib(1000)).expect("the slice has room");
        Self { node, tenant, neighbour }
    }

    /// Output of a program in the slice `ours`.
    #[track_caller]
    fn seen_by(&self, words: &[&str]) -> String {
        self.node.run(&mut self.node.run_in_slice(&["--slice", "ours"], words)).success()
    }

    /// Fails unless the tenant is among these pids and the neighbour is not.
    #[track_caller]
    fn assert_ours(&mut self, pids: &[u64]) {
        assert!(pids.contains(&u64::from(self.tenant.pid())), "the tenant is not among {pids:?}");
        assert!(!pids.contains(&u64::from(self.neighbour.pid())), "the neighbour is among {pids:?}");
    }
}

#[test]
fn nvidia_ml_py_sees_the_slice() {
    let Some(venv) = venv() else { return };
    let mut shared = Shared::gpu();
    let python = venv.join("bin/python");
    let output = shared.seen_by(&[&python.to_string_lossy(), &client("nvml_client.py"), "--context"]);
    let report: Value = serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}\n{output}"));
    assert_eq!(report["count"], 1, "{report:#}");
    let device = &report["devices"][0];
    let number = |field: &str| device[field].as_u64().expect("a number of bytes");
    assert_eq!((number("total"), number("v2_total")), (HALF_V100.get(), HALF_V100.get()), "{report:#}");
    assert_eq!(number("used") + number("free"), HALF_V100.get(), "{report:#}");
    assert!(number("used") >= 1000 << 20 && number("used") < 2000 << 20, "{report:#}");
    let pids: Vec<u64> = device["processes"].as_array().into_iter().flatten().map(pid_of).collect();
    assert_eq!(pids.len(), 2, "{report:#}");
    assert!(pids.contains(&pid_of(&report)), "{report:#}");
    shared.assert_ours(&pids);
}

fn pid_of(document: &Value) -> u64 {
    document["pid"].as_u64().expect("a pid is a number")
}

#[test]
fn gpustat_sees_the_slice() {
    let Some(venv) = venv() else { return };
    let mut shared = Shared::gpu();
    let output = shared.seen_by(&[&venv.join("bin/gpustat").to_string_lossy(), "--json"]);
    let report: Value = serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}\n{output}"));
    let gpus = report["gpus"].as_array().expect("gpus are a list");
    assert_eq!(gpus.len(), 1, "{report:#}");
    assert_eq!(gpus[0]["memory.total"], HALF_V100.whole_mib(), "{report:#}");
    let pids: Vec<u64> = gpus[0]["processes"].as_array().into_iter().flatten().map(pid_of).collect();
    assert_eq!(pids.len(), 1, "{report:#}");
    shared.assert_ours(&pids);
}

#[test]
fn nvitop_sees_the_slice() {
    let Some(venv) = venv() else { return };
    let mut shared = Shared::gpu();
    let table = shared.seen_by(&[&venv.join("bin/nvitop").to_string_lossy(), "-1", "--ascii"]);
    assert!(table.contains("/ 15.87GiB") || table.contains("/ 16255MiB"), "{table}");
    assert!(!table.contains("Traceback"), "{table}");
    let (_, processes) =
        table.split_once("Processes:").unwrap_or_else(|| panic!("no list of processes\n{table}"));
    let pids: Vec<u64> = processes.lines().filter_map(pid_in_row).collect();
    assert_eq!(pids.len(), 1, "{table}");
    shared.assert_ours(&pids);
}

/// The pid in a row of nvitop's list of processes: `|   0    8033 C    root  1310MiB ...`.
fn pid_in_row(row: &str) -> Option<u64> {
    let mut cells = row.strip_prefix('|')?.split_whitespace();
    let _gpu: u64 = cells.next()?.parse().ok()?;
    cells.next()?.parse().ok()
}

#[test]
fn numba_compiles_and_launches_in_the_slice() {
    let Some(venv) = venv() else { return };
    let node = Node::simulated("v100x8");
    let python = venv.join("bin/python").to_string_lossy().into_owned();
    let report = report_of(&node, &[python, client("numba_client.py")]);
    assert_eq!((report["devices"].as_u64(), report["total"].as_u64()), (Some(1), Some(HALF_V100.get())));
    assert_eq!(report["copied_back"], 1 << 16, "{report}");
    assert!(report["free_with_copy"].as_u64() < report["free"].as_u64(), "{report}");
    assert_eq!(report["beyond"], CudaError::OUT_OF_MEMORY.0, "{report}");
}
