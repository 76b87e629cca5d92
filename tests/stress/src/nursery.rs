//! The nursery: a process of one thread that forks tenants, kills some of them and reaps all.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use simgpu::Node;

use crate::board::{Board, Word};
use crate::chance::Chance;
use crate::kin;
use crate::points::{Aim, Side, name, rarest};
use crate::tenant::{Birth, live};
use crate::wrong::Broken;

/// Time between two checks for dead tenants.
const PAUSE: Duration = Duration::from_micros(250);
/// Longest life of a tenant that does not reach its point.
const LONGEST_LIFE: Duration = Duration::from_millis(400);

/// Forks tenants until the board's word to stop is set, then kills all.
pub fn run(
    place: &Path,
    tenants: usize,
    seed: u64,
    broken: Option<Broken>,
) -> Result<(), Box<dyn std::error::Error>> {
    set_pdeathsig(Signal::SIGKILL)?;
    // Children of the dead become children of this process, so that they stay in the slice and are reaped.
    set_child_subreaper(true)?;
    let mut nursery = Nursery {
        place: place.to_owned(),
        board: Board::open(&place.join("board"))?,
        node: Node::attach(&place.join("node"))?,
        chance: Chance::new(seed),
        broken,
        living: BTreeMap::new(),
    };
    while nursery.board.get(Word::Stop) == 0 {
        nursery.bury()?;
        nursery.kill_the_old();
        for lane in 0..tenants {
            if !nursery.living.values().any(|cradle| cradle.lane == lane) {
                nursery.bear(lane)?;
            }
        }
        std::thread::sleep(PAUSE);
    }
    loop {
        nursery.living.values_mut().for_each(|cradle| cradle.until = Instant::now());
        nursery.kill_the_old();
        if !nursery.bury()? {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

struct Nursery {
    place: PathBuf,
    board: Board,
    node: Node,
    chance: Chance,
    broken: Option<Broken>,
    living: BTreeMap<Pid, Cradle>,
}

struct Cradle {
    lane: usize,
    until: Instant,
    /// True if it was killed and is not reaped yet.
    killed: bool,
}

impl Nursery {
    /// Forks a tenant: half of them die at a point, half at a random instant.
    fn bear(&mut self, tenant: usize) -> io::Result<()> {
        let lane = self.board.lane(tenant);
        lane.clear();
        let point = self.chance.once_in(2).then(|| self.point()).flatten();
        let aim = point.map(|point| Aim { point, passing: 1 + self.chance.below(4) });
        let life = match aim {
            Some(_) => LONGEST_LIFE,
            None => Duration::from_micros(500 + self.chance.below(40_000)),
        };
        let birth = Birth {
            place: self.place.clone(),
            board: self.board,
            tenant,
            lane,
            node: self.node.clone(),
            aim,
            chance: Chance::new(self.chance.number()),
            broken: self.broken,
            may_have_children: true,
        };
        let child = kin::bear(|| live(birth))?;
        self.living.insert(child, Cradle { lane: tenant, until: Instant::now() + life, killed: false });
        Ok(())
    }

    /// Point with the fewest deaths in one of three cases, else any.
    ///
    /// A point that is hard to reach would otherwise take all the tenants.
    fn point(&mut self) -> Option<usize> {
        let points = Side::Tenant.points();
        let any = points.start + self.chance.below(points.len() as u64) as usize;
        if self.chance.once_in(3) { rarest(self.board, Side::Tenant, |_| false) } else { Some(any) }
    }

    fn kill_the_old(&mut self) {
        let now = Instant::now();
        let due = |cradle: &Cradle| cradle.until <= now && !cradle.killed;
        for (pid, cradle) in self.living.iter_mut().filter(|(_, cradle)| due(cradle)) {
            for (lane, blocked) in self.board.lane(cradle.lane).end_killed() {
                if blocked > Duration::from_millis(100) {
                    let last = lane.last().map(name).unwrap_or_default();
                    let turn = self.board.get(Word::DaemonTurn);
                    eprintln!(
                        "a thread of {pid} was blocked for {blocked:?} when killed, last at {last:?}, turn {turn}"
                    );
                }
            }
            // It is not reaped yet, so that the pid is still its own.
            cradle.killed = kill(*pid, Signal::SIGKILL).is_ok();
        }
    }

    /// Reaps the dead; true if a child is left.
    fn bury(&mut self) -> io::Result<bool> {
        loop {
            let (pid, killed) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, signal == Signal::SIGKILL),
                Ok(WaitStatus::Exited(pid, _)) => (pid, false),
                Ok(_) => return Ok(true),
                Err(Errno::ECHILD) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            self.board.count(if killed { Word::Deaths } else { Word::Endings });
            // A child of the dead has no cradle of its own.
            let Some(cradle) = self.living.remove(&pid) else { continue };
            if killed && self.board.lane(cradle.lane).died_at().is_none() {
                self.board.count(Word::RandomDeaths);
            }
        }
    }
}
