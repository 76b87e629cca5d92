//! A GPU with a neighbour whose slice is full, and a slice from which attempts are made.

use std::cell::Cell;
use std::time::{Duration, Instant};

use e2e::{Event, Kind, Node, Process, Tenant, compile, eventually};
use tranche_domain::units::Bytes;

/// The node, and the neighbour that no attempt may harm.
pub(crate) struct Ground {
    pub(crate) node: Node,
    neighbour: Tenant,
    full: Bytes,
    /// A program that launches without a pause in the neighbour's slice.
    worker: Process,
    worker_pid: u32,
    /// Start of the attempt on the GPU's clock, in nanoseconds.
    since: Cell<u64>,
}

/// Least percentage of the used GPU time that the neighbour must get.
///
/// Its request is 30 of 90 parts while both slices have work; the difference is the error of a window of a second.
const SHARE: f64 = 27.0;
/// Least GPU time of the neighbour from which its part can be judged.
const ENOUGH: Duration = Duration::from_millis(100);

/// Path of a program of `tests/e2e/clients`, compiled if necessary.
#[track_caller]
pub(crate) fn compiled(source: &str, flags: &[&str]) -> String {
    match compile(&format!("tests/e2e/clients/{source}"), flags) {
        Ok(program) => program.to_string_lossy().into_owned(),
        Err(complaint) => panic!("the tests need a C compiler: {complaint}"),
    }
}

/// Path of the program that makes the attempts.
#[track_caller]
pub(crate) fn program() -> String {
    compiled("tamper/main.c", &[])
}

/// Waits for the line `ready PID` of a program; returns that pid.
#[track_caller]
pub(crate) fn ready(process: &mut Process) -> u32 {
    let line = process.line().unwrap_or_default();
    let pid = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
    pid.unwrap_or_else(|| panic!("{line:?}"))
}

impl Ground {
    #[track_caller]
    pub(crate) fn new() -> Self {
        Self::configured("")
    }

    #[track_caller]
    pub(crate) fn configured(configuration: &str) -> Self {
        let node = Node::configured("v100x8", configuration);
        let mut neighbour = node.tenant(&["-g", "0.3", "--gpu", "0", "--name", "neighbour"]).ready();
        let words = [&compiled("launch.c", &[]), "saturate", "600000"];
        let mut worker = Process::start(&mut node.run_in_slice(&["--slice", "neighbour"], &words));
        let worker_pid = ready(&mut worker);
        worker.say("go");
        let full = neighbour.fill();
        node.tranche(&["slice", "create", "tamper", "-g", "0.6", "--gpu", "0"]).success();
        Self { node, neighbour, full, worker, worker_pid, since: Cell::default() }
    }

    /// Copies the driver to another name; returns the path of the copy.
    #[track_caller]
    pub(crate) fn copied_driver(&self) -> String {
        let copy = self.node.dir().join("libharmless.so");
        std::fs::copy(self.node.stage().libraries().join("libcuda.so.1"), &copy)
            .expect("the driver can be copied");
        copy.to_string_lossy().into_owned()
    }

    pub(crate) fn attach_socket(&self, slice: &str) -> String {
        self.node.dir().join("run/slices").join(slice).join("attach.sock").to_string_lossy().into_owned()
    }

    /// Starts a program in the slice that is honest until its attempt; returns it with its pid.
    #[track_caller]
    pub(crate) fn begin(&self, before: &[&str], attempt: &str, detail: &str) -> (Process, u32) {
        let program = program();
        let words: Vec<&str> = before.iter().copied().chain([program.as_str(), attempt, detail]).collect();
        let mut process = Process::start(&mut self.node.run_in_slice(&["--slice", "tamper"], &words));
        let pid = ready(&mut process);
        self.since.set(self.node.timeline(0).end());
        (process, pid)
    }

    /// Waits for the first event of a kind, of this pid if one is given; prints the time since `since`.
    #[track_caller]
    pub(crate) fn sees(&self, kind: &str, pid: Option<u32>, since: Instant) -> Event {
        let event = eventually(kind, || {
            let events = self.node.events();
            let found = events.iter().find(|event| event.kind == kind && (pid.is_none() || event.pid == pid));
            found.cloned().ok_or_else(|| format!("{events:#?}"))
        });
        println!("seen after {:?} (simulated): {} {}", since.elapsed(), event.kind, event.evidence);
        event
    }

    /// Fails unless the neighbour runs, keeps its memory and its cap, and can allocate again what it frees.
    #[track_caller]
    pub(crate) fn neighbour_is_unharmed(&mut self, what: &str) {
        let pid = self.neighbour.pid();
        let slice = self.node.slice("neighbour");
        let mut here = [pid, self.worker_pid];
        here.sort_unstable();
        assert_eq!(slice.pids(), here, "{what}");
        self.neighbour_runs(what);
        assert!(self.node.device().held_by(0, &[pid]) >= self.full, "{what}: its memory is gone");
        self.neighbour.drop_all();
        let again = self.neighbour.fill();
        assert_eq!(again, self.full, "{what}: it gets another amount than before");
        assert_eq!(self.node.slice("neighbour").cap(), slice.cap(), "{what}");
        let churned = self.neighbour.alloc(Kind::Plain, Bytes::mib(64));
        assert!(churned.is_err(), "{what}: it is full");
    }

    /// Fails unless the neighbour has its part of the used GPU time, by the GPU's own log.
    ///
    /// The part is relative to the use of all processes, so that the load of this machine makes no difference.
    #[track_caller]
    fn neighbour_runs(&mut self, what: &str) {
        assert!(self.worker.runs(), "{what}: the neighbour's program has ended");
        let part = eventually("the neighbour runs", || {
            let log = self.node.timeline(0);
            let (ran, part) = log.share(&[self.worker_pid], self.since.get(), log.end());
            if ran >= ENOUGH { Ok(part) } else { Err(format!("{what}: {ran:?}")) }
        });
        println!("{what}: the neighbour has {part:.1} % of the used GPU time (simulated)");
        assert!(part >= SHARE, "{what}: the neighbour has {part:.1} % of the used GPU time");
    }

    /// Fails unless the neighbour has its part of all the time since the attempt began, by the same log.
    #[track_caller]
    pub(crate) fn neighbour_has_its_request(&mut self, what: &str) {
        let log = self.node.timeline(0);
        let percent = log.percent(&[self.worker_pid], self.since.get(), log.end());
        println!("{what}: the neighbour has {percent:.1} % of the GPU (simulated)");
        assert!(percent >= SHARE, "{what}: the neighbour has {percent:.1} % of the GPU");
    }

    pub(crate) fn neighbour_pid(&mut self) -> u32 {
        self.neighbour.pid()
    }

    /// Deletes the other slice with its processes.
    #[track_caller]
    pub(crate) fn clear(&self) {
        self.node.tranche(&["slice", "delete", "tamper", "--force"]).success();
        eventually("the slice has ended", || match self.node.smi().find("tamper") {
            None => Ok(()),
            Some(slice) => Err(format!("{slice:#?}")),
        });
    }
}

/// Time in which any violation would certainly be reported.
pub(crate) const LOOKS: Duration = Duration::from_secs(3);
