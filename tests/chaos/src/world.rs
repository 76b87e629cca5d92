//! A node with tenants at work, and the checks after each fault.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use e2e::{Device, Kind, Node, Process, Tenant};
use serde_json::Value;
use tranche_domain::units::Bytes;

use crate::book::{Book, Change, Ended};
use crate::toll::Toll;

/// The node, its tenants, and their expected state.
pub(crate) struct World {
    node: RwLock<Node>,
    book: Mutex<Book>,
    tenants: Mutex<Tenants>,
    pub(crate) toll: Toll,
}

/// Programs that must live to the end.
struct Tenants {
    /// They hold a constant amount of memory, to the byte.
    steady: Vec<Steady>,
    /// They allocate and free without end.
    churn: Vec<Process>,
    /// They keep their GPU busy.
    busy: Vec<(Process, u32)>,
}

struct Steady {
    slice: &'static str,
    gpu: usize,
    tenant: Tenant,
    pid: u32,
    /// Bytes charged to its slice, and those of them that several processes hold.
    charged: Option<(u64, u64)>,
}

/// Slices with tenants: name, part of a GPU in permille, GPU.
const LIVED_IN: [(&str, u64, usize); 5] =
    [("busy", 500, 2), ("churn", 400, 1), ("near", 300, 2), ("pair", 250, 1), ("steady", 500, 0)];
/// Slices without tenants: name, part of a GPU in permille, GPU.
const EMPTY: [(&str, u64, usize); 2] = [("frozen", 250, 3), ("idle", 375, 3)];
/// Milliseconds for which the churn continues: longer than any part takes.
const ENDLESS_MS: u64 = 3_600_000;

impl World {
    /// Creates slices of all sorts, and starts tenants in them. The daemon has to run.
    pub(crate) fn populate(node: Node) -> Self {
        let mut book = Book::default();
        for (name, permille, gpu) in LIVED_IN.into_iter().chain(EMPTY) {
            let (share, gpu) = (format!("0.{permille}"), gpu.to_string());
            let options = ["--limit", "0.9", "--priority", "3"];
            let options = if name == "idle" { &options[..] } else { &[] };
            let words = ["slice", "create", name, "-g", &share, "--gpu", &gpu];
            node.tranche(&[&words[..], options].concat()).success();
            book.note(name, Change::Create(node.slice(name).cap().get()), Ended::Done);
        }
        node.tranche(&["slice", "freeze", "frozen"]).success();
        book.note("frozen", Change::Freeze(true), Ended::Done);
        let tenants = Tenants::begin(&node);
        let world = Self {
            node: RwLock::new(node),
            book: Mutex::new(book),
            tenants: Mutex::new(tenants),
            toll: Toll::default(),
        };
        world.look();
        world
    }

    pub(crate) fn node(&self) -> RwLockReadGuard<'_, Node> {
        self.node.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn node_mut(&self) -> RwLockWriteGuard<'_, Node> {
        self.node.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tenants(&self) -> MutexGuard<'_, Tenants> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks everything: slices, commitments, processes and what they hold. The daemon has to run.
    pub(crate) fn look(&self) {
        self.look_beside(|_| false);
    }

    /// The same, while slices that are `others` may be created and deleted.
    pub(crate) fn look_beside(&self, others: impl Fn(&str) -> bool) -> Value {
        // The book is locked first: its slices are not changed while it is compared.
        let mut book = self.book();
        let node = self.node();
        let text = node.tranche(&["smi", "--json"]).success();
        let device = node.device();
        drop(node);
        let snapshot: Value = serde_json::from_str(&text).expect("tranche smi --json is JSON");
        for wrong in book.compare(&snapshot, others) {
            self.toll.wrong("slices_wrong", || wrong);
        }
        drop(book);
        self.tenants().look(&snapshot, &device, &self.toll);
        snapshot
    }

    /// Checks that all tenants live, without a request to the daemon.
    pub(crate) fn look_alive(&self) {
        self.tenants().look_alive(&self.toll);
    }

    /// Checks that all tenants still work, and that no file is left.
    ///
    /// The daemon has to run, and slices that are not in the book have to have ended.
    pub(crate) fn close(&self) {
        self.look();
        self.tenants().still_work(&self.toll);
        let node = self.node();
        let known: BTreeSet<String> = self.book().names().map(str::to_string).collect();
        for folder in ["run/slices", "run/mounts"] {
            let there = names(&node.dir().join(folder));
            self.toll.wrong_if(there != known, "files_left", || format!("{folder} holds {there:?}"));
        }
        for folder in ["state", "run", "cdi"] {
            let half_made = names(&node.dir().join(folder)).into_iter().filter(|name| name.ends_with(".new"));
            half_made.for_each(|name| self.toll.wrong("files_left", || format!("{folder}/{name}")));
        }
        let panics = node.daemon_log().matches("panicked").count();
        self.toll.wrong_if(panics > 0, "panics", || node.daemon_log());
    }
}

/// Names in a folder; none if the folder is missing.
pub(crate) fn names(folder: &std::path::Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

impl Tenants {
    fn begin(node: &Node) -> Self {
        let tenant = |slice, gpu| {
            let mut tenant = node.tenant(&["--slice", slice]).ready();
            Steady { slice, gpu, pid: tenant.pid(), tenant, charged: None }
        };
        let (mut one, mut first, mut second) = (tenant("steady", 0), tenant("pair", 1), tenant("pair", 1));
        one.tenant.alloc(Kind::Plain, Bytes::mib(4096)).expect("there is room");
        let piece = first.tenant.alloc(Kind::Plain, Bytes::mib(512)).expect("there is room");
        let lent = first.tenant.lend(piece);
        second.tenant.open(&lent).expect("what is lent can be opened");
        second.tenant.alloc(Kind::Async, Bytes::mib(256)).expect("there is room");
        let busy = ["busy", "near"].map(|slice| busy(node, slice));
        Self { steady: vec![one, first, second], churn: vec![churn(node)], busy: busy.into() }
    }

    fn look_alive(&mut self, toll: &Toll) {
        let steady = self.steady.iter_mut().map(|steady| (steady.slice, steady.tenant.process()));
        let churn = self.churn.iter_mut().map(|process| ("churn", process));
        let busy = self.busy.iter_mut().map(|(process, _)| ("busy", process));
        for (slice, process) in steady.chain(churn).chain(busy) {
            toll.wrong_if(!process.runs(), "tenants_died", || format!("a tenant of {slice} has ended"));
        }
    }

    fn look(&mut self, snapshot: &Value, device: &Device, toll: &Toll) {
        self.look_alive(toll);
        for steady in &mut self.steady {
            steady.look(snapshot, device, toll);
        }
        for (_, pid) in &self.busy {
            let slices = snapshot["slices"].as_array().into_iter().flatten();
            let found = slices.filter(|slice| pids(slice).contains(pid)).count();
            toll.wrong_if(found != 1, "processes_lost", || {
                format!("busy process {pid} is in {found} slices")
            });
        }
    }

    /// Checks that each tenant gets memory from the daemon, or launches kernels.
    fn still_work(&mut self, toll: &Toll) {
        for Steady { slice, tenant, .. } in &mut self.steady {
            let piece = tenant.alloc(Kind::Plain, Bytes::mib(1500));
            let freed = piece.and_then(|piece| tenant.free(piece));
            toll.wrong_if(freed.is_err(), "tenants_stuck", || format!("{slice}: {freed:?}"));
        }
        for (process, pid) in &mut self.busy {
            let passed = rate(process);
            toll.wrong_if(passed <= 0.0, "tenants_stuck", || format!("{pid} launches nothing any more"));
        }
    }
}

impl Steady {
    fn look(&mut self, snapshot: &Value, device: &Device, toll: &Toll) {
        let slices = snapshot["slices"].as_array().into_iter().flatten();
        let Some(slice) = slices.into_iter().find(|slice| slice["name"] == self.slice) else { return };
        let pid = self.pid;
        toll.wrong_if(!pids(slice).contains(&pid), "processes_lost", || format!("{pid} of {}", self.slice));
        let of_device = |key: &str| slice["devices"][0][key].as_u64().unwrap_or_default();
        let charged = (of_device("used"), of_device("shared"));
        let known = *self.charged.get_or_insert(charged);
        toll.wrong_if(known != charged, "charges_wrong", || {
            format!("{} is charged (all, shared) {charged:?} instead of {known:?}", self.slice)
        });
        let held = device.held_by(self.gpu, &[pid]).get();
        toll.wrong_if(held > charged.0, "held_but_not_charged", || format!("{held} of {}", charged.0));
    }
}

pub(crate) fn pids(slice: &Value) -> Vec<u32> {
    let processes = slice["processes"].as_array().into_iter().flatten();
    processes.filter_map(|process| process["pid"].as_u64()?.try_into().ok()).collect()
}

fn churn(node: &Node) -> Process {
    let mut process = Process::start(&mut node.run_in_slice(&["--slice", "churn"], &[Tenant::program()]));
    let mut answers = ["cuda", "context 0"].map(|line| {
        process.say(line);
        process.line().unwrap_or_default()
    });
    assert!(answers.iter_mut().all(|answer| answer.starts_with("ok")), "{answers:?}");
    process.say(&format!("churn 2 {ENDLESS_MS} {} 1", 1u64 << 30));
    process
}

fn busy(node: &Node, slice: &str) -> (Process, u32) {
    let workload = node.stage().workload().display().to_string();
    let words = [workload.as_str(), "--interactive", "--kernel-ns", "1000000", "--sync", "4"];
    let mut process = Process::start(&mut node.run_in_slice(&["--slice", slice], &words));
    let greeting = process.line().unwrap_or_default();
    let digits = greeting.split("\"pid\":").nth(1).unwrap_or_default();
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    let pid = digits.parse().unwrap_or_else(|_| panic!("the program printed {greeting:?}"));
    process.say("start");
    process.line();
    (process, pid)
}

/// Kernels per second, over 300 ms.
fn rate(process: &mut Process) -> f64 {
    process.say("rate");
    process.line();
    std::thread::sleep(std::time::Duration::from_millis(300));
    process.say("rate");
    let answer = process.line().unwrap_or_default();
    let number = answer.split("\"per_second\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
    number.and_then(|text| text.parse().ok()).unwrap_or_default()
}
