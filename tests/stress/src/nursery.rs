//! The nursery: a process of one thread that bears tenants by `fork`, kills some of them and buries all.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use simgpu::Node;

use crate::board::{Board, Word};
use crate::chance::Chance;
use crate::points::{Aim, Side, name, rarest};
use crate::tenant::{Birth, Broken, live};

/// Between two looks at who has died.
const LOOK: Duration = Duration::from_micros(250);
/// How long a tenant that waits for its point may live.
const LONGEST_LIFE: Duration = Duration::from_millis(400);

/// Bears tenants until the board says stop; then all are dead.
pub fn run(
    board: &Path,
    node: &Path,
    tenants: usize,
    seed: u64,
    broken: Option<Broken>,
) -> Result<(), Box<dyn std::error::Error>> {
    set_pdeathsig(Signal::SIGKILL)?;
    let mut nursery = Nursery {
        board: Board::open(board)?,
        node: Node::attach(node)?,
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
        std::thread::sleep(LOOK);
    }
    while !nursery.living.is_empty() {
        nursery.living.values_mut().for_each(|cradle| cradle.until = Instant::now());
        nursery.kill_the_old();
        nursery.bury()?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

struct Nursery {
    board: Board,
    node: Node,
    chance: Chance,
    broken: Option<Broken>,
    living: BTreeMap<Pid, Cradle>,
}

struct Cradle {
    lane: usize,
    until: Instant,
}

impl Nursery {
    /// Half of the tenants die where the fewest died before, half at some instant.
    #[allow(unsafe_code)]
    fn bear(&mut self, index: usize) -> io::Result<()> {
        let lane = self.board.lane(index);
        lane.clear();
        let point = self.chance.once_in(2).then(|| self.point()).flatten();
        let aim = point.map(|point| Aim { point, passing: 1 + self.chance.below(4) });
        let life = match aim {
            Some(_) => LONGEST_LIFE,
            None => Duration::from_micros(500 + self.chance.below(40_000)),
        };
        let chance = Chance::new(self.chance.number());
        let birth =
            Birth { board: self.board, lane, node: self.node.clone(), aim, chance, broken: self.broken };
        // SAFETY: this process has one thread, so the child has everything in a whole state.
        match unsafe { fork() }? {
            ForkResult::Child => {
                let _ = set_pdeathsig(Signal::SIGKILL);
                let ended = catch_unwind(AssertUnwindSafe(|| live(birth)));
                std::process::exit(if ended.is_ok() { 0 } else { 101 })
            }
            ForkResult::Parent { child } => {
                self.living.insert(child, Cradle { lane: index, until: Instant::now() + life });
                Ok(())
            }
        }
    }

    /// Mostly where the fewest died; anywhere now and then, lest one that is hard to reach takes all.
    fn point(&mut self) -> Option<usize> {
        let points = Side::Tenant.points();
        let any = points.start + self.chance.below(points.len() as u64) as usize;
        if self.chance.once_in(3) { rarest(self.board, Side::Tenant, |_| false) } else { Some(any) }
    }

    fn kill_the_old(&self) {
        let now = Instant::now();
        for pid in self.living.iter().filter(|(_, cradle)| cradle.until <= now).map(|(pid, _)| *pid) {
            // It was not waited for yet, so the pid is still its own.
            let _ = kill(pid, Signal::SIGKILL);
        }
    }

    fn bury(&mut self) -> io::Result<()> {
        loop {
            let (pid, killed) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, signal == Signal::SIGKILL),
                Ok(WaitStatus::Exited(pid, _)) => (pid, false),
                Ok(_) | Err(Errno::ECHILD) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let Some(cradle) = self.living.remove(&pid) else { continue };
            let lane = self.board.lane(cradle.lane);
            self.board.count(if killed { Word::Deaths } else { Word::Endings });
            if killed && lane.died_at().is_none() {
                self.board.count(Word::RandomDeaths);
                let blocked = lane.end_killed();
                if blocked > Duration::from_millis(100) {
                    let last = lane.last().map(name).unwrap_or_default();
                    eprintln!(
                        "{pid} was blocked for {blocked:?} when it was killed; it was last at {last:?}"
                    );
                }
            }
        }
    }
}
