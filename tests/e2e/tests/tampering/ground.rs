//! A GPU with a slice that is full and one whose tenant is up to something.

use std::cell::Cell;
use std::time::{Duration, Instant};

use e2e::{Event, Kind, Node, Process, Tenant, compile, eventually};
use tranche_domain::units::Bytes;

/// The node, and the neighbour that is to be left alone.
pub(crate) struct Ground {
    pub(crate) node: Node,
    neighbour: Tenant,
    full: Bytes,
    /// Launches all the while in the neighbour's slice.
    worker: Process,
    worker_pid: u32,
    /// On the GPU's clock, when the attempt began.
    since: Cell<u64>,
}

/// Of what anybody gets of the GPU, the neighbour gets 30 of 90 parts where all want to, less what a window of a second
/// is off.
const SHARE: f64 = 27.0;
/// So long it has to run for that to say anything.
const ENOUGH: Duration = Duration::from_millis(100);

/// A program of the tests.
#[track_caller]
pub(crate) fn compiled(source: &str, flags: &[&str]) -> String {
    match compile(&format!("tests/e2e/clients/{source}"), flags) {
        Ok(program) => program.to_string_lossy().into_owned(),
        Err(complaint) => panic!("the tests need a C compiler: {complaint}"),
    }
}

/// The program that knows the attempts.
#[track_caller]
pub(crate) fn program() -> String {
    compiled("tamper/main.c", &[])
}

/// The pid of a program that is ready.
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

    /// A copy of the driver under another name.
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

    /// An honest beginning of one of the program's attempts, in the slice; and its pid.
    #[track_caller]
    pub(crate) fn begin(&self, before: &[&str], attempt: &str, detail: &str) -> (Process, u32) {
        let program = program();
        let words: Vec<&str> = before.iter().copied().chain([program.as_str(), attempt, detail]).collect();
        let mut process = Process::start(&mut self.node.run_in_slice(&["--slice", "tamper"], &words));
        let pid = ready(&mut process);
        self.since.set(self.node.timeline(0).end());
        (process, pid)
    }

    /// The first event of that kind, and by whom where that is to be known; says how long that took.
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

    /// The neighbour runs as it did, has what it had, gets what it frees, and its cap is what it was.
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

    /// By the GPU's own log, and relative to what it did at all: how busy this machine is makes no difference.
    #[track_caller]
    fn neighbour_runs(&mut self, what: &str) {
        assert!(self.worker.runs(), "{what}: the neighbour's program has ended");
        let part = eventually("the neighbour runs", || {
            let log = self.node.timeline(0);
            let (ran, part) = log.share(&[self.worker_pid], self.since.get(), log.end());
            if ran >= ENOUGH { Ok(part) } else { Err(format!("{what}: {ran:?}")) }
        });
        println!("{what}: the neighbour has {part:.1} % of what anybody gets of the GPU (simulated)");
        assert!(part >= SHARE, "{what}: the neighbour has {part:.1} % of what anybody gets of the GPU");
    }

    /// By the same log, since the attempt began.
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

    /// Ends whoever is in the other slice.
    #[track_caller]
    pub(crate) fn clear(&self) {
        self.node.tranche(&["slice", "delete", "tamper", "--force"]).success();
        eventually("the slice has ended", || match self.node.smi().find("tamper") {
            None => Ok(()),
            Some(slice) => Err(format!("{slice:#?}")),
        });
    }
}

/// Long enough for anything that is wrong to be seen, and then some.
pub(crate) const LOOKS: Duration = Duration::from_secs(3);
