//! The daemon is killed at every step of parking, while slices leave their GPU and come back.

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
use crate::points::{AIM, Aim, SAYS, Said};
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

struct Scene {
    node: Node,
    program: PathBuf,
    holders: Vec<Holder>,
    toll: Toll,
    passages: u64,
    deaths: u64,
}

/// Kills daemons during `passages` of slices off their GPU or back, and at least one at each point.
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
        scene.start(aim.as_ref());
        scene.pass(&mut chance);
        scene.restart();
        scene.compare();
    }
    scene.close();
    let zero = |name| Claim::exactly(name, scene.toll.count(name), "times", 0);
    let claims = vec![
        Claim::at_least("passages", scene.passages, "times", passages),
        Claim::at_least("daemon_deaths", scene.deaths, "daemons", passages / 4),
        Claim::exactly("points_never_died_at", never(&says), "points", 0),
        zero("contents_lost"),
        zero("bytes_over"),
        zero("tenants_stuck"),
        zero("stages_wrong"),
        zero("refused"),
    ];
    Outcome { claims, deaths_at: Said::read(&says).died, ..Outcome::default() }
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
            for seed in 0..processes {
                let mut tenant = node.tenant(&["--slice", slice]).ready();
                let piece = tenant.alloc(Kind::Plain, PIECE).expect("there is room");
                assert_eq!(tenant.ask(&format!("write {piece} {}", seed + 17)), Ok(Vec::new()));
                let sum = tenant.number(&format!("sum {piece}")).expect("it can be read");
                holders.push(Holder { slice, pid: tenant.pid(), tenant, piece, sum });
            }
            node.tranche(&["slice", "park", slice]).success();
        }
        Self { node, program, holders, toll: Toll::default(), passages: 0, deaths: 0 }
    }

    /// Starts a daemon that dies at a point, if one is set, in the place of the last.
    fn start(&mut self, aim: Option<&Aim>) {
        self.node.kill_daemon();
        let mut variables = vec![(SAYS, self.node.dir().join("said").into_os_string())];
        variables.extend(aim.map(|aim| (AIM, aim.text().into())));
        self.node.set_daemon(self.program.clone(), variables);
        // It may die at the point during its start.
        let _ = self.node.try_start_daemon();
    }

    /// Exchanges the slices on the GPU: one is parked, if it is there, and the other is brought back.
    fn pass(&mut self, chance: &mut Chance) {
        let [first, second] = SLICES.map(|(slice, _)| slice);
        let (leaves, comes) = if chance.once_in(2) { (first, second) } else { (second, first) };
        for words in [["slice", "park", leaves], ["slice", "unpark", comes]] {
            let outcome = self.node.tranche(&words);
            let is_expected = ["is parked", "is not parked", "cannot come back"]
                .iter()
                .any(|reason| outcome.stderr.contains(reason));
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
        self.start(None);
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

    /// Compares what the device holds with the stages, and the contents of slices on it.
    fn compare(&mut self) {
        let on_gpu: Vec<bool> = SLICES.iter().map(|(slice, _)| self.stage(slice).is_none()).collect();
        self.toll.wrong_if(on_gpu.iter().all(|on| *on), "stages_wrong", || "both are on the GPU".into());
        let device = self.node.device();
        let pids: Vec<u32> = self.holders.iter().map(|holder| holder.pid).collect();
        let held = device.held_by(0, &pids);
        self.toll.wrong_if(held > CAPACITY, "bytes_over", || format!("{held}"));
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
