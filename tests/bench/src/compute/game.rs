//! Tenants at work on a node, and the GPU time of each.

use std::fs;
use std::thread;
use std::time::Duration;

use bench::Result;
use bench::client::Client;
use bench::node::Node;
use bench::stage::Driver;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::curve::Curve;
use crate::load::{Load, Tenant};

/// Source of the measured GPU time.
#[derive(Debug)]
enum Judge {
    /// The simulated GPU's own log; it is read from the stretch with number `seen` on.
    Log { gpus: simgpu::Node, seen: u64 },
    /// The clients' counts of finished work, times its length alone.
    Counts,
}

/// A tenant at work.
#[derive(Debug)]
pub(crate) struct Player {
    slice: String,
    /// The tenant's programs, each with its pipe.
    pub(crate) clients: Vec<Client>,
    pids: Vec<i32>,
    /// GPU time of the tenant's programs.
    pub(crate) curve: Curve,
    stopped: bool,
}

/// Tenants at work, in slices or bare. Dropping this ends them and deletes their slices.
#[derive(Debug)]
pub(crate) struct Game<'a> {
    node: &'a Node,
    scheduled: bool,
    /// Tenants in the order in which they joined.
    pub(crate) players: Vec<Player>,
    judge: Judge,
    turns: f64,
}

/// Nanoseconds of CLOCK_MONOTONIC, which is the simulated GPU's clock too.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    Duration::from(time).as_nanos() as u64
}

impl<'a> Game<'a> {
    /// A game without tenants. `turns` is the number of a kernel's loops in a nanosecond on a real GPU.
    pub(crate) fn new(node: &'a Node, scheduled: bool, turns: f64) -> Result<Self> {
        let judge = match node.driver() {
            Driver::Simulated => {
                let gpus = simgpu::Node::attach(&node.simulation()).map_err(|error| error.to_string())?;
                Judge::Log { gpus, seen: 0 }
            }
            _ => Judge::Counts,
        };
        let mut game = Self { node, scheduled, players: Vec::new(), judge, turns };
        game.sample()?;
        Ok(game)
    }

    /// A game whose tenants begin to work together.
    pub(crate) fn begin(node: &'a Node, tenants: &[Tenant], scheduled: bool, turns: f64) -> Result<Self> {
        let mut game = Self::new(node, scheduled, turns)?;
        for tenant in tenants {
            game.join(tenant)?;
        }
        for (player, tenant) in game.players.iter_mut().zip(tenants) {
            player.send_all(tenant)?;
        }
        game.players.iter_mut().zip(tenants).try_for_each(|(player, tenant)| player.receive_all(tenant))?;
        Ok(game)
    }

    /// Adds a tenant that does not work yet; returns its index.
    pub(crate) fn join(&mut self, tenant: &Tenant) -> Result<usize> {
        let slice = format!("tenant-{}", self.players.len());
        if self.scheduled {
            let options: Vec<&str> = tenant.options.iter().map(String::as_str).collect();
            // A context takes half a GiB.
            let memory = format!("{}Gi", 1 + tenant.processes);
            self.node.create(&slice, &[&["--memory", &memory], options.as_slice()].concat())?;
        }
        let (clients, pids, curve) = (Vec::new(), Vec::new(), Curve::default());
        self.players.push(Player { slice, clients, pids, curve, stopped: false });
        let index = self.players.len() - 1;
        for _ in 0..tenant.processes {
            self.add_client(index, &tenant.load)?;
        }
        Ok(index)
    }

    fn add_client(&mut self, index: usize, load: &Load) -> Result<()> {
        let program = self.node.stage().load();
        let player = &mut self.players[index];
        let mut command = match self.scheduled {
            true => self.node.in_slice(&player.slice, program),
            false => self.node.bare(program),
        };
        let mut client = Client::start(&mut command)?;
        player.pids.push(client.ask(&format!("begin {}", self.turns))? as i32);
        if let Load::Mixed { trace } = load {
            let path = self.node.scratch(&format!("trace-{index}"));
            let words: Vec<u8> = trace.iter().flat_map(|length| length.to_ne_bytes()).collect();
            fs::write(&path, words).map_err(|error| format!("{}: {error}", path.display()))?;
            client.ask(&format!("trace {}", path.display()))?;
        }
        player.clients.push(client);
        Ok(())
    }

    /// Starts a load in a tenant's first program; returns the time at which it began.
    pub(crate) fn work(&mut self, player: usize, load: &Load) -> Result<u64> {
        let order = load.order().ok_or("there is nothing to do")?;
        self.players[player].clients[0].ask(&order).map(|at| at as u64)
    }

    /// Stops the launches of a tenant's first program; returns the time of that.
    pub(crate) fn rest(&mut self, player: usize) -> Result<u64> {
        self.players[player].clients[0].ask("stop").map(|at| at as u64)
    }

    /// Sends a signal to a tenant's programs; returns the time before it.
    pub(crate) fn strike(&mut self, player: usize, signal: Signal) -> Result<u64> {
        let player = &mut self.players[player];
        player.stopped = signal != Signal::SIGCONT;
        let at = now();
        for pid in &player.pids {
            match kill(Pid::from_raw(*pid), signal) {
                Ok(()) | Err(Errno::ESRCH) => {} // it may have been killed before
                Err(error) => return Err(format!("cannot signal {pid}: {error}")),
            }
        }
        Ok(at)
    }

    /// Ends a tenant and its slice.
    pub(crate) fn leave(&mut self, player: usize) -> Result<()> {
        self.players[player].clients.clear();
        match self.scheduled {
            true => self.node.delete(&self.players[player].slice),
            false => Ok(()),
        }
    }

    /// Changes a tenant's slice; returns the time of the request.
    pub(crate) fn resize(&self, player: usize, options: &[&str]) -> Result<u64> {
        let at = now();
        self.node.resize(&self.players[player].slice, options)?;
        Ok(at)
    }

    /// Follows the GPU time of all tenants for a time; returns its first and its last moment.
    pub(crate) fn watch(&mut self, span: Duration) -> Result<(u64, u64)> {
        let from = now();
        let end = from + span.as_nanos() as u64;
        loop {
            self.sample()?;
            let left = end.saturating_sub(now());
            if left == 0 {
                break;
            }
            thread::sleep(Duration::from_nanos(left).min(self.judge.grain()));
        }
        self.check()?;
        Ok((from, end))
    }

    /// Fails if a program that is not stopped has failed.
    fn check(&mut self) -> Result<()> {
        for player in self.players.iter_mut().filter(|player| !player.stopped) {
            for client in &mut player.clients {
                client.ask("done").map_err(|complaint| format!("in {}: {complaint}", player.slice))?;
            }
        }
        Ok(())
    }

    fn sample(&mut self) -> Result<()> {
        match &mut self.judge {
            Judge::Log { gpus, seen } => read_log(gpus, seen, &mut self.players),
            Judge::Counts => {
                self.players.iter_mut().filter(|player| !player.stopped).try_for_each(Player::count)
            }
        }
    }

    /// True if a tenant had the GPU last.
    pub(crate) fn holds(&mut self, player: usize) -> Result<bool> {
        self.sample()?;
        let last = |player: &Player| player.curve.grew_until(u64::MAX).unwrap_or(0);
        Ok(self.players.iter().map(last).max() == Some(last(&self.players[player])))
    }

    /// GPU time of each tenant, in the order in which they joined.
    pub(crate) fn curves(&self) -> Vec<&Curve> {
        self.players.iter().map(|player| &player.curve).collect()
    }

    /// Finished work of each tenant: its time alone in nanoseconds, and number of kernels or copies.
    pub(crate) fn done(&mut self) -> Result<Vec<[f64; 2]>> {
        let of_player = |player: &mut Player| {
            player.clients.iter_mut().try_fold([0.0; 2], |[time, number], client| {
                let [more, others] = client.ask_both("done")?;
                Ok([time + more, number + others])
            })
        };
        self.players.iter_mut().map(of_player).collect()
    }

    /// Rounds of a tenant's first program since the last call: all, and those of at most `us`.
    pub(crate) fn within(&mut self, player: usize, us: f64) -> Result<[f64; 2]> {
        self.players[player].clients[0].ask_both(&format!("within {us:.0}"))
    }

    /// Rounds of a tenant's first program since the last call: number, median, 99th percentile, greatest.
    ///
    /// The latter three are in microseconds.
    pub(crate) fn latencies(&mut self, player: usize) -> Result<[f64; 4]> {
        self.players[player].clients[0].ask_all("latencies")
    }
}

impl Judge {
    /// Longest time between samples: the log has an end, and counts are as fine as this.
    const fn grain(&self) -> Duration {
        match self {
            Self::Log { .. } => Duration::from_millis(250),
            Self::Counts => Duration::from_millis(20),
        }
    }
}

fn read_log(gpus: &simgpu::Node, seen: &mut u64, players: &mut [Player]) -> Result<()> {
    let gpu = gpus.gpu(0).ok_or("the simulated node has no GPU")?;
    let (first, stretches) = gpus.log_from(gpu, *seen);
    if first > *seen && !players.is_empty() {
        return Err("the simulated GPU's log grew faster than it was read".into());
    }
    for stretch in &stretches {
        let pid = i32::try_from(stretch.pid).unwrap_or(0);
        if let Some(player) = players.iter_mut().find(|player| player.pids.contains(&pid)) {
            player.curve.ran(stretch.from.0, stretch.to.0);
        }
    }
    *seen = (first + stretches.len() as u64).saturating_sub(1);
    Ok(())
}

impl Player {
    fn send_all(&mut self, tenant: &Tenant) -> Result<()> {
        let Some(order) = tenant.load.order() else { return Ok(()) };
        self.clients.iter_mut().try_for_each(|client| client.say(&order))
    }

    fn receive_all(&mut self, tenant: &Tenant) -> Result<()> {
        let Some(order) = tenant.load.order() else { return Ok(()) };
        self.clients.iter_mut().try_for_each(|client| client.hear::<1>(&order).map(drop))
    }

    fn count(&mut self) -> Result<()> {
        let done: Result<Vec<f64>> = self.clients.iter_mut().map(|client| client.ask("done")).collect();
        self.curve.reached(now(), done?.iter().sum());
        Ok(())
    }
}

impl Drop for Game<'_> {
    fn drop(&mut self) {
        for player in &mut self.players {
            if player.stopped {
                for pid in &player.pids {
                    let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL); // it may have ended already
                }
            }
            player.clients.clear();
            if self.scheduled {
                let _ = self.node.delete(&player.slice); // it may be deleted already
            }
        }
    }
}
