//! A run: a simulated node, a daemon and tenants that die and are replaced, and a checker.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

use simgpu::{Node, NodeSpec};
use tranche_rpc::v1;

use crate::board::{Board, Word};
use crate::chance::Chance;
use crate::checker::{Bound, Checker, Regions, Seen};
use crate::daemon::{CONTEXT_BYTES, Daemon};
use crate::points::{Aim, Side, name, rarest};
use crate::report::{Claim, Report, commit};
use crate::wrong::Broken;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Storm {
    /// Number of tenants that have to die.
    pub deaths: u64,
    /// Number of tenants at a time.
    pub tenants: usize,
    /// Seed of random numbers.
    pub seed: u64,
    /// Longest time of the run, however many have died.
    pub at_most: Duration,
    /// Longest time that a thread may be blocked.
    pub blocked: Duration,
    /// Fault of the protocol, made on purpose.
    pub broken: Option<Broken>,
    /// The folder of the simulated driver's libraries.
    pub libraries: PathBuf,
}

const SLICE: &str = "storm";
/// Caps that the slice has in turn, in bytes.
const LARGE: u64 = 5 << 30;
const SMALL: u64 = 7 << 29;
/// Longest life of a daemon that does not reach its point.
const DAEMON_LIFE: Duration = Duration::from_millis(1500);
const RESIZE: Duration = Duration::from_millis(150);
const PRESET: &str = "h200x1";

type Failure = Box<dyn std::error::Error>;

impl Storm {
    /// Makes the run; returns its report.
    pub fn run(&self) -> Result<Report, Failure> {
        let place = tempfile::Builder::new().prefix("stress-").tempdir()?;
        let place = place.path();
        let node = Node::create(&place.join("node"), &NodeSpec::preset(PRESET)?)?;
        let board = Board::create(&place.join("board"))?;
        let mut keeper = Keeper::new(self, place, &node, board)?;
        let make = v1::CreateSliceRequest {
            name: Some(SLICE.into()),
            share: Some(v1::Share { kind: Some(v1::share::Kind::MemoryBytes(LARGE)) }),
            ..v1::CreateSliceRequest::default()
        };
        keeper.daemon()?.call(async |mut node| node.create_slice(make).await)?;
        let enter = v1::EnterSliceRequest { name: SLICE.into() };
        keeper.daemon()?.call(async |mut node| node.enter_slice(enter).await)?;

        let regions = Regions::open(&place.join("run/slices").join(SLICE))?;
        let (seen, stop, bound) = (Seen::default(), AtomicBool::new(false), Bound::new(LARGE));
        let pid = AtomicU32::new(0);
        let checker = Checker { regions, node: &node, bound: &bound, board, daemon: &pid, seen: &seen };
        let began = Instant::now();
        let filled = std::thread::scope(|scope| {
            scope.spawn(|| checker.run(&stop));
            let filled = self.weather(&mut keeper, &checker);
            stop.store(true, SeqCst);
            filled
        })?;
        Ok(self.report(board, &seen, &keeper, &filled, &node, began.elapsed()))
    }

    /// Runs tenants from the first to the last; returns what is left then.
    fn weather(&self, keeper: &mut Keeper<'_>, checker: &Checker<'_>) -> Result<Left, Failure> {
        let mut nursery = keeper.nursery()?;
        let outcome = self.blow(keeper, checker);
        keeper.board.set(Word::Stop, 1);
        let ended = nursery.wait()?;
        outcome?;
        if !ended.success() {
            return Err("the nursery failed".into());
        }
        keeper.restart(None, checker.daemon)?;
        Ok(keeper.look_around(checker, self.broken)?)
    }

    fn blow(&self, keeper: &mut Keeper<'_>, checker: &Checker<'_>) -> Result<(), Failure> {
        let (began, mut resized, mut large) = (Instant::now(), Instant::now(), true);
        let board = keeper.board;
        while began.elapsed() < self.at_most && !self.is_over(board) {
            checker.daemon.store(keeper.pid(), SeqCst);
            if !keeper.lives() || keeper.age() > DAEMON_LIFE {
                let aim = keeper.next_aim();
                keeper.restart(aim, checker.daemon)?;
            }
            if resized.elapsed() > RESIZE {
                let cap = if large { SMALL } else { LARGE };
                if keeper.resize(cap, checker.bound) {
                    (large, resized) = (!large, Instant::now());
                }
            }
            if self.broken == Some(Broken::OverGrant)
                && let Some(word) = checker.regions.some_word(keeper.chance.number())
            {
                word.grant(tranche_shm::credit::Units::within(1 << 30));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if !large {
            while !keeper.resize(LARGE, checker.bound) {
                keeper.restart(None, checker.daemon)?;
            }
        }
        Ok(())
    }

    /// True when enough tenants have died, and a process at each point.
    ///
    /// A broken protocol need not have a death at each point.
    fn is_over(&self, board: Board) -> bool {
        let everywhere = || {
            let points = [Side::Tenant, Side::Daemon].into_iter().flat_map(Side::points);
            points.into_iter().all(|point| board.deaths(point).load(Relaxed) > 0)
        };
        board.get(Word::Deaths) >= self.deaths && (self.broken.is_some() || everywhere())
    }

    fn report(
        &self,
        board: Board,
        seen: &Seen,
        keeper: &Keeper<'_>,
        left: &Left,
        node: &Node,
        took: Duration,
    ) -> Report {
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(SeqCst);
        let points: Vec<usize> = [Side::Tenant, Side::Daemon].into_iter().flat_map(Side::points).collect();
        let deaths_at: BTreeMap<String, u64> =
            points.iter().map(|point| (name(*point), board.deaths(*point).load(Relaxed))).collect();
        let never = deaths_at.values().filter(|deaths| **deaths == 0).count() as u64;
        let blocked_ms = board.get(Word::Blocked).div_ceil(1_000_000);
        let gpu = node.gpu(0).expect("every node has a first GPU");
        let claims = vec![
            Claim::at_least("deaths", board.get(Word::Deaths), "processes", self.deaths),
            Claim::at_least("snapshots", load(&seen.snapshots), "times", self.deaths),
            Claim::exactly("points_never_died_at", never, "points", 0),
            Claim::exactly("over_grants", load(&seen.over_grants), "snapshots", 0),
            Claim::exactly("over_use", load(&seen.over_use), "snapshots", 0),
            Claim::exactly("device_over_cap", load(&seen.device_over), "looks", 0),
            Claim::exactly("held_but_not_charged", board.get(Word::Uncharged), "times", 0),
            Claim::exactly("turned_away", board.get(Word::TurnedAway), "processes", 0),
            Claim::exactly("panics", board.get(Word::Panics), "times", 0),
            Claim::exactly("ended_otherwise", board.get(Word::Endings), "processes", 0),
            Claim::exactly("driver_refusals", board.get(Word::DriverRefusals), "times", 0),
            Claim::exactly("unknown_points", board.get(Word::UnknownPoint), "times", 0),
            Claim::at_most("blocked_ms_max", blocked_ms, "ms", self.blocked.as_millis() as u64),
            Claim::exactly("left_credit", left.credit, "bytes", 0),
            Claim::exactly("left_seats", left.seats as u64, "seats", 0),
            Claim::exactly("left_on_device", left.device, "bytes", 0),
            Claim::exactly("filled_by_one", left.filled, "bytes", LARGE),
        ];
        let figures = BTreeMap::from([
            ("attached", board.get(Word::Attached)),
            ("charges", board.get(Word::Charges)),
            ("refusals", board.get(Word::Refusals)),
            ("pooled", board.get(Word::Pooled)),
            ("exports", board.get(Word::Exports)),
            ("imports", board.get(Word::Imports)),
            ("children", board.get(Word::Children)),
            ("rebirths", board.get(Word::Rebirths)),
            ("deaths_at_random", board.get(Word::RandomDeaths)),
            ("daemon_deaths", keeper.deaths),
            ("device_looks", load(&seen.device_looks)),
            ("worst_over_grant_bytes", load(&seen.worst)),
            ("blocked_us_max", board.get(Word::Blocked) / 1000),
            ("blocked_us_max_as_measured", board.get(Word::BlockedRaw) / 1000),
            ("blocked_us_max_by_restarts", board.get(Word::BlockedRestart) / 1000),
            ("settled_ms", left.settled.as_millis() as u64),
            ("took_ms", took.as_millis() as u64),
            ("seed", self.seed),
        ]);
        let device = node.gpu_spec(gpu).model.name.to_string();
        Report { device, simulated: true, commit: commit(), claims, figures, deaths_at }
    }
}

/// Credit, processes and memory that are left when all tenants are dead.
#[derive(Debug)]
struct Left {
    credit: u64,
    seats: usize,
    device: u64,
    /// Bytes that one new process could charge at once.
    filled: u64,
    settled: Duration,
}

/// Keeps a daemon running.
struct Keeper<'a> {
    storm: &'a Storm,
    place: &'a Path,
    board: Board,
    node: &'a Node,
    daemon: Option<Daemon>,
    chance: Chance,
    deaths: u64,
}

impl<'a> Keeper<'a> {
    fn new(storm: &'a Storm, place: &'a Path, node: &'a Node, board: Board) -> Result<Self, Failure> {
        let chance = Chance::new(storm.seed);
        let mut keeper = Self { storm, place, board, node, daemon: None, chance, deaths: 0 };
        keeper.daemon = Daemon::start(keeper.command("daemon")?, place)?;
        board.set(Word::Daemon, keeper.pid().into());
        Ok(keeper)
    }

    /// Command that starts a part of this program on the node.
    fn command(&self, part: &str) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        let gpu = self.node.gpu(0).expect("every node has a first GPU");
        let context = self.node.gpu_spec(gpu).model.context().bytes();
        command.arg(part).arg(self.place);
        command.env("LD_LIBRARY_PATH", &self.storm.libraries);
        command.env(simgpu::NODE_VARIABLE, self.place.join("node"));
        command.env(CONTEXT_BYTES, context.to_string());
        command.env("TRANCHE_SLICE_SOCKET", self.place.join("run/slices").join(SLICE).join("attach.sock"));
        Ok(command)
    }

    fn nursery(&self) -> io::Result<Child> {
        let mut command = self.command("nursery")?;
        command.arg("--tenants").arg(self.storm.tenants.to_string());
        command.arg("--seed").arg(self.storm.seed.to_string());
        match self.storm.broken {
            Some(Broken::DriverFirst) => drop(command.args(["--broken", "driver-first"])),
            Some(Broken::LostUpdate) => drop(command.args(["--broken", "lost-update"])),
            Some(Broken::KeptShare) => drop(command.args(["--broken", "kept-share"])),
            Some(Broken::OverGrant) | None => {}
        }
        command.spawn()
    }

    fn daemon(&self) -> Result<&Daemon, Failure> {
        Ok(self.daemon.as_ref().ok_or("there is no daemon")?)
    }

    fn pid(&self) -> u32 {
        self.daemon.as_ref().map_or(0, Daemon::pid)
    }

    fn lives(&mut self) -> bool {
        self.daemon.as_mut().is_some_and(Daemon::lives)
    }

    fn age(&self) -> Duration {
        self.daemon.as_ref().map_or(Duration::ZERO, |daemon| daemon.since.elapsed())
    }

    fn next_aim(&mut self) -> Option<Aim> {
        let point = rarest(self.board, Side::Daemon, |_| false)?;
        // A point without a death gets the first passage: some are rarely reached.
        let spread = if self.board.deaths(point).load(Relaxed) == 0 { 1 } else { 3 };
        Some(Aim { point, passing: 1 + self.chance.below(spread) })
    }

    /// Kills the daemon, if it is not dead, and starts another.
    fn restart(&mut self, aim: Option<Aim>, pid: &AtomicU32) -> Result<(), Failure> {
        self.board.count(Word::DaemonTurn);
        pid.store(0, SeqCst);
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill()?;
            self.deaths += 1;
        }
        let mut aim = aim;
        loop {
            let mut command = self.command("daemon")?;
            if let Some(Aim { point, passing }) = aim.take() {
                command.arg("--point").arg(point.to_string()).arg("--passing").arg(passing.to_string());
            }
            if let Some(daemon) = Daemon::start(command, self.place)? {
                pid.store(daemon.pid(), SeqCst);
                self.board.set(Word::Daemon, daemon.pid().into());
                self.daemon = Some(daemon);
                self.board.count(Word::DaemonTurn);
                return Ok(());
            }
            // It died during its start, which is the purpose; the next one may live.
            self.deaths += 1;
        }
    }

    /// Changes the slice's cap; true if the daemon confirmed it.
    fn resize(&self, cap: u64, bound: &Bound) -> bool {
        if cap == LARGE {
            bound.grows(cap);
        }
        let resize =
            v1::ResizeSliceRequest { name: SLICE.into(), memory_bytes: Some(cap), ..Default::default() };
        let done = self.daemon().is_ok_and(|daemon| {
            let answer = daemon.call(async |mut node| node.resize_slice(resize).await);
            answer.is_ok()
        });
        if done && cap == SMALL {
            bound.shrank(cap);
        }
        done
    }

    fn look_around(&self, checker: &Checker<'_>, broken: Option<Broken>) -> io::Result<Left> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let began = Instant::now();
        while checker.regions.left() != (0, 0) && began.elapsed() < PATIENCE && broken.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (credit, seats) = checker.regions.left();
        let settled = began.elapsed();
        let gpu = self.node.gpu(0).expect("every node has a first GPU");
        let device = self.node.holdings(gpu).iter().map(|holding| holding.memory.bytes()).sum();
        let filler = self.command("fill")?.output()?;
        let filled = String::from_utf8_lossy(&filler.stdout).trim().parse().unwrap_or_default();
        Ok(Left { credit, seats, device, filled, settled })
    }
}
