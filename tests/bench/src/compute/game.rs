//! Tenants at work on a node, and what each of them gets of its GPU.

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

/// Who judges what was got.
#[derive(Debug)]
enum Judge {
    /// The simulated GPU's own log, up to the stretch of a number.
    Log { gpus: simgpu::Node, seen: u64 },
    /// The clients' counts of what they finished, times what it takes alone.
    Counts,
}

/// A tenant at work.
#[derive(Debug)]
pub(crate) struct Player {
    slice: String,
    /// Its programs.
    pub(crate) clients: Vec<Client>,
    pids: Vec<i32>,
    /// What it got.
    pub(crate) curve: Curve,
    stopped: bool,
}

/// Tenants at work, in slices or bare. They end when this is dropped, and their slices with them.
#[derive(Debug)]
pub(crate) struct Game<'a> {
    node: &'a Node,
    scheduled: bool,
    /// The tenants.
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
    /// Nobody yet. `turns` is what a nanosecond of kernel is on a real GPU.
    pub(crate) fn new(node: &'a Node, scheduled: bool, turns: f64) -> Result<Self> {
        let judge = match node.driver() {
            Driver::Simulated => {
                let gpus = simgpu::Node::attach(&node.simulation()).map_err(|error| error.to_string())?;
                Judge::Log { gpus, seen: 0 }
            }
            _ => Judge::Counts,
        };
        let mut game = Self { node, scheduled, players: Vec::new(), judge, turns };
        game.look()?;
        Ok(game)
    }

    /// Tenants that begin to work together.
    pub(crate) fn begin(node: &'a Node, tenants: &[Tenant], scheduled: bool, turns: f64) -> Result<Self> {
        let mut game = Self::new(node, scheduled, turns)?;
        for tenant in tenants {
            game.join(tenant)?;
        }
        for (player, tenant) in game.players.iter_mut().zip(tenants) {
            player.order_all(tenant)?;
        }
        game.players.iter_mut().zip(tenants).try_for_each(|(player, tenant)| player.hear_all(tenant))?;
        Ok(game)
    }

    /// Another tenant, which does not work yet. Says which it is.
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

    /// A tenant's programs do that from now on. Says when the first of them began.
    pub(crate) fn work(&mut self, player: usize, load: &Load) -> Result<u64> {
        let order = load.order().ok_or("there is nothing to do")?;
        self.players[player].clients[0].ask(&order).map(|at| at as u64)
    }

    /// A tenant's program stops launching; says when.
    pub(crate) fn rest(&mut self, player: usize) -> Result<u64> {
        self.players[player].clients[0].ask("stop").map(|at| at as u64)
    }

    /// Kills or stops a tenant's programs.
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

    /// Changes a tenant's slice; says when that was asked.
    pub(crate) fn resize(&self, player: usize, options: &[&str]) -> Result<u64> {
        let at = now();
        self.node.resize(&self.players[player].slice, options)?;
        Ok(at)
    }

    /// Lets so much time pass and follows what everybody gets. Says from when and until when.
    pub(crate) fn watch(&mut self, span: Duration) -> Result<(u64, u64)> {
        let from = now();
        let end = from + span.as_nanos() as u64;
        loop {
            self.look()?;
            let left = end.saturating_sub(now());
            if left == 0 {
                break;
            }
            thread::sleep(Duration::from_nanos(left).min(self.judge.grain()));
        }
        self.check()?;
        Ok((from, end))
    }

    /// Fails if a program of anybody has.
    fn check(&mut self) -> Result<()> {
        for player in self.players.iter_mut().filter(|player| !player.stopped) {
            for client in &mut player.clients {
                client.ask("done").map_err(|complaint| format!("in {}: {complaint}", player.slice))?;
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<()> {
        match &mut self.judge {
            Judge::Log { gpus, seen } => read_log(gpus, seen, &mut self.players),
            Judge::Counts => {
                self.players.iter_mut().filter(|player| !player.stopped).try_for_each(Player::count)
            }
        }
    }

    /// Whether that tenant had the GPU last.
    pub(crate) fn holds(&mut self, player: usize) -> Result<bool> {
        self.look()?;
        let last = |player: &Player| player.curve.grew_until(u64::MAX).unwrap_or(0);
        Ok(self.players.iter().map(last).max() == Some(last(&self.players[player])))
    }

    /// What each got.
    pub(crate) fn curves(&self) -> Vec<&Curve> {
        self.players.iter().map(|player| &player.curve).collect()
    }

    /// Numbers of rounds of a tenant's program since this was last asked, and their median, 99th percentile and
    /// greatest in microseconds.
    pub(crate) fn latencies(&mut self, player: usize) -> Result<[f64; 4]> {
        self.players[player].clients[0].ask_all("latencies")
    }
}

impl Judge {
    /// How long may pass between looks: the log does not reach back for ever, and counts are as fine as this.
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
        return Err("the simulated GPU's log went on faster than it was read".into());
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
    fn order_all(&mut self, tenant: &Tenant) -> Result<()> {
        let Some(order) = tenant.load.order() else { return Ok(()) };
        self.clients.iter_mut().try_for_each(|client| client.say(&order))
    }

    fn hear_all(&mut self, tenant: &Tenant) -> Result<()> {
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
                    let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL); // it may have gone already
                }
            }
            player.clients.clear();
            if self.scheduled {
                let _ = self.node.delete(&player.slice); // it may have gone already
            }
        }
    }
}
