//! Daemons, park workers and programs are killed at every step of parking.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use e2e::{Kind, Node, Tenant};
use serde_json::Value;
use stress::chance::Chance;
use stress::points::PARKS;
use stress::report::Claim;
use tranche_domain::units::Bytes;

use crate::outcome::Outcome;
use crate::points::{AIM, Aim, SAYS, Said, VICTIM};
use crate::toll::Toll;

/// A driver with checkpoints.
const DRIVER: &str = "580";
/// Size of each piece of memory with contents.
const PIECE: Bytes = Bytes::mib(16);
/// Longest wait until a slice is at rest after a start of the daemon.
const PATIENCE: Duration = Duration::from_secs(60);
/// Slices, with the number of their processes. Any two exceed the GPU.
const SLICES: [(&str, u64); 2] = [("lone", 1), ("many", 3)];
/// Memory of the GPU, as slices see it.
const CAPACITY: Bytes = Bytes::mib(32510);

/// A process with memory, and the checksum of its contents.
struct Holder {
    slice: &'static str,
    tenant: Tenant,
    pid: u32,
    piece: u64,
    sum: u64,
}

/// Process that dies at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Daemon,
    Worker,
    /// A program, by its number among the holders.
    Program(usize),
}

struct Scene {
    node: Node,
    program: PathBuf,
    holders: Vec<Holder>,
    toll: Toll,
    passages: u64,
    deaths: u64,
    /// Park workers and programs that were killed.
    others: u64,
}

/// Kills processes during `passages` of slices off their GPU or back, at least one at each point.
pub(crate) fn run(passages: u64, seed: u64, program: PathBuf) -> Outcome {
    let mut scene = Scene::set(program);
    let (mut chance, says) = (Chance::new(seed), scene.node.dir().join("said"));
    let never = |says: &PathBuf| {
        let said = Said::read(says);
        PARKS.iter().filter(|point| said.deaths(point) == 0).count() as u64
    };
    while scene.passages < passages || (never(&says) > 0 && scene.passages < passages + 500) {
        let point = PARKS[chance.below(PARKS.len() as u64) as usize];
        let aim = chance.once_in(2).then(|| Aim { point: point.into(), passing: 1 });
        let victim = match chance.below(4) {
            0 | 1 => Victim::Daemon,
            2 => Victim::Worker,
            _ => Victim::Program(chance.below(scene.holders.len() as u64) as usize),
        };
        scene.start(aim.as_ref(), victim);
        scene.pass(&mut chance, aim.is_some() && victim != Victim::Daemon);
        if victim == Victim::Daemon {
            scene.restart();
        } else {
            scene.settle();
        }
        scene.replace();
        scene.compare();
    }
    scene.close();
    let zero = |name| Claim::exactly(name, scene.toll.count(name), "times", 0);
    let claims = vec![
        Claim::at_least("passages", scene.passages, "times", passages),
        Claim::at_least("daemon_deaths", scene.deaths, "daemons", passages / 8),
        Claim::at_least("programs_killed", scene.others, "programs", passages / 50),
        Claim::exactly("points_never_died_at", never(&says), "points", 0),
        zero("contents_lost"),
        zero("bytes_over"),
        zero("tenants_stuck"),
        zero("stages_wrong"),
        zero("charged_for_nothing"),
        zero("refused"),
    ];
    Outcome { claims, deaths_at: Said::read(&says).died, ..Outcome::default() }
}

impl Holder {
    fn begin(node: &Node, slice: &'static str, seed: u64) -> Self {
        let mut tenant = node.tenant(&["--slice", slice]).ready();
        let piece = tenant.alloc(Kind::Plain, PIECE).expect("there is room");
        assert_eq!(tenant.ask(&format!("write {piece} {seed}")), Ok(Vec::new()));
        let sum = tenant.number(&format!("sum {piece}")).expect("it can be read");
        Self { slice, pid: tenant.pid(), tenant, piece, sum }
    }
}

impl Scene {
    fn set(program: PathBuf) -> Self {
        let mut node = Node::with_driver("v100x8", DRIVER);
        node.kill_daemon();
        let shim = node.stage().shim();
        node.configure(&format!("shim = '{}'\n", shim.display()));
        node.set_daemon(program.clone(), Vec::new());
        node.start_daemon();
        let mut holders = Vec::new();
        for (slice, processes) in SLICES {
            node.tranche(&["slice", "create", slice, "-g", "0.6", "--gpu", "0"]).success();
            holders.extend((0..processes).map(|seed| Holder::begin(&node, slice, seed + 17)));
            node.tranche(&["slice", "park", slice]).success();
        }
        Self { node, program, holders, toll: Toll::default(), passages: 0, deaths: 0, others: 0 }
    }

    /// Starts a daemon in the place of the last, with a point, if one is set, at which the victim dies.
    fn start(&mut self, aim: Option<&Aim>, victim: Victim) {
        self.node.kill_daemon();
        let mut variables = vec![(SAYS, self.node.dir().join("said").into_os_string())];
        variables.extend(aim.map(|aim| (AIM, aim.text().into())));
        variables.extend(match victim {
            Victim::Daemon => None,
            Victim::Worker => Some((VICTIM, "worker".into())),
            Victim::Program(number) => Some((VICTIM, self.holders[number].pid.to_string().into())),
        });
        self.node.set_daemon(self.program.clone(), variables);
        // It may die at the point during its start.
        let _ = self.node.try_start_daemon();
    }

    /// Exchanges the slices on the GPU: one is parked, if it is there, and the other is brought back.
    /// A request may fail where something else than the daemon dies.
    fn pass(&mut self, chance: &mut Chance, may_fail: bool) {
        let [first, second] = SLICES.map(|(slice, _)| slice);
        let (leaves, comes) = if chance.once_in(2) { (first, second) } else { (second, first) };
        for words in [["slice", "park", leaves], ["slice", "unpark", comes]] {
            let outcome = self.node.tranche(&words);
            let is_expected = ["is parked", "is not parked", "cannot come back"]
                .iter()
                .any(|reason| outcome.stderr.contains(reason))
                || may_fail;
            let is_dying = outcome.code != Some(0) && !is_expected && self.dies_soon();
            self.deaths += u64::from(is_dying);
            self.passages += u64::from(outcome.code == Some(0) || is_dying);
            self.toll.wrong_if(outcome.code != Some(0) && !is_expected && !is_dying, "refused", || {
                outcome.to_string()
            });
            if is_dying {
                return;
            }
        }
    }

    /// True if the daemon ends within a second, as one that is being killed does.
    fn dies_soon(&mut self) -> bool {
        (0..500).any(|_| {
            sleep(Duration::from_millis(2));
            !self.node.daemon_runs()
        })
    }

    /// Kills the daemon, starts one without a point, and waits until every slice is at rest.
    fn restart(&mut self) {
        self.start(None, Victim::Daemon);
        let began = Instant::now();
        while SLICES
            .iter()
            .any(|(slice, _)| matches!(self.stage(slice).as_deref(), Some("parking" | "unparking")))
        {
            if began.elapsed() > PATIENCE {
                self.toll.wrong("stages_wrong", || self.node.daemon_log());
                return;
            }
            sleep(Duration::from_millis(5));
        }
    }

    /// Brings slices to rest that a death has left on their way: as an operator does, by another request.
    fn settle(&mut self) {
        let began = Instant::now();
        for (slice, _) in SLICES {
            while matches!(self.stage(slice).as_deref(), Some("parking" | "unparking")) {
                let again = self.node.tranche(&["slice", "unpark", slice]);
                if began.elapsed() > PATIENCE {
                    self.toll.wrong("stages_wrong", || format!("{again}\n{}", self.node.daemon_log()));
                    return;
                }
                sleep(Duration::from_millis(5));
            }
        }
    }

    /// Starts a program for each that was killed, once its slice is on the GPU.
    fn replace(&mut self) {
        let before = self.holders.len();
        self.holders.retain_mut(|holder| holder.tenant.process().runs());
        self.others += (before - self.holders.len()) as u64;
        for (slice, processes) in SLICES {
            let here = self.holders.iter().filter(|holder| holder.slice == slice).count() as u64;
            if here < processes && self.stage(slice).is_none() {
                self.holders
                    .extend((here..processes).map(|seed| Holder::begin(&self.node, slice, seed + 29)));
            }
        }
    }

    /// Checks that every program works, each slice in its turn on the GPU.
    fn close(&mut self) {
        for (slice, _) in SLICES {
            for (other, _) in SLICES.iter().filter(|(other, _)| *other != slice) {
                let _ = self.node.tranche(&["slice", "park", other]);
            }
            let back = self.node.tranche(&["slice", "unpark", slice]);
            self.toll.wrong_if(self.stage(slice).is_some(), "tenants_stuck", || back.to_string());
            for holder in self.holders.iter_mut().filter(|holder| holder.slice == slice) {
                let sum = holder.tenant.number(&format!("sum {}", holder.piece));
                self.toll.wrong_if(sum != Ok(holder.sum), "contents_lost", || format!("{slice}: {sum:?}"));
                let piece = holder.tenant.alloc(Kind::Plain, PIECE);
                self.toll.wrong_if(piece.is_err(), "tenants_stuck", || format!("{slice}: {piece:?}"));
            }
        }
    }

    /// Stage of a slice; `None` while it is on its GPU.
    fn stage(&self, slice: &str) -> Option<String> {
        let show = self.node.tranche(&["slice", "show", slice, "--json"]).success();
        let show: Value = serde_json::from_str(&show).expect("it is JSON");
        show["parked"]["stage"].as_str().map(str::to_string)
    }

    /// Pids of the processes that a slice is charged for, once those that have ended are not among them.
    fn charged(&self, slice: &str) -> Vec<u32> {
        let began = Instant::now();
        loop {
            let show = self.node.tranche(&["slice", "show", slice, "--json"]).success();
            let show: Value = serde_json::from_str(&show).expect("it is JSON");
            let processes = show["processes"].as_array().into_iter().flatten();
            let pids: Vec<u32> = processes.filter_map(|it| u32::try_from(it["pid"].as_u64()?).ok()).collect();
            let are_there = pids.iter().all(|pid| self.holders.iter().any(|holder| holder.pid == *pid));
            if are_there || began.elapsed() > Duration::from_secs(5) {
                return pids;
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Compares what the device holds with the stages, and the contents of slices on it.
    fn compare(&mut self) {
        let on_gpu: Vec<bool> = SLICES.iter().map(|(slice, _)| self.stage(slice).is_none()).collect();
        self.toll.wrong_if(on_gpu.iter().all(|on| *on), "stages_wrong", || "both are on the GPU".into());
        let device = self.node.device();
        let pids: Vec<u32> = self.holders.iter().map(|holder| holder.pid).collect();
        let held = device.held_by(0, &pids);
        self.toll.wrong_if(held > CAPACITY, "bytes_over", || format!("{held}"));
        for (slice, _) in SLICES {
            let own: Vec<u32> = self.holders.iter().filter(|it| it.slice == slice).map(|it| it.pid).collect();
            let charged = self.charged(slice);
            self.toll.wrong_if(charged.iter().any(|pid| !own.contains(pid)), "charged_for_nothing", || {
                format!("{slice}: {charged:?} are charged, and {own:?} are there")
            });
        }
        for holder in &mut self.holders {
            let is_on = SLICES.iter().zip(&on_gpu).any(|((slice, _), on)| *slice == holder.slice && *on);
            let held = device.held_by(0, &[holder.pid]);
            self.toll.wrong_if((held == Bytes::ZERO) == is_on, "bytes_over", || {
                format!("{} is on the GPU: {is_on}, and {} holds {held}", holder.slice, holder.pid)
            });
            if is_on {
                let sum = holder.tenant.number(&format!("sum {}", holder.piece));
                self.toll.wrong_if(sum != Ok(holder.sum), "contents_lost", || {
                    format!("{}: {sum:?}", holder.slice)
                });
            }
        }
    }
}
