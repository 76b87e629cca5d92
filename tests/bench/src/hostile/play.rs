//! One play: an honest neighbour beside a slice that is honest first, and then hostile.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use std::{env, fmt, thread};

use arena::STRATEGIES;
use bench::Result;
use bench::client::Client;
use bench::node::{Node, run};
use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of a window in which the neighbour is judged, and between the starts of two.
const WINDOW: u64 = 2_000_000_000;
const STEP: u64 = 500_000_000;
/// Time for which the hostile slice is honest.
const HONEST: Duration = Duration::from_millis(3_000);
/// Time until both slices have begun.
const SETTLE: Duration = Duration::from_millis(500);

/// Parameters of a play.
#[derive(Debug)]
pub(crate) struct Play {
    pub(crate) kind: &'static str,
    pub(crate) seed: u64,
    /// True if the hostile slice continues to launch kernels meanwhile.
    pub(crate) works: bool,
    /// Requests of the hostile slice and of its neighbour, in percent.
    pub(crate) split: (u32, u32),
    /// The neighbour's kernels, in nanoseconds.
    pub(crate) kernel: u64,
    pub(crate) liars: usize,
    pub(crate) seconds: u64,
}

/// GPU time of the neighbour, as a part of its due share.
#[derive(Debug)]
pub(crate) struct Played {
    /// The part in each window.
    pub(crate) windows: Vec<f64>,
    /// The part from the first lie to the last.
    pub(crate) whole: f64,
    /// True if the daemon reports that the neighbour used the GPU meanwhile.
    pub(crate) is_sampled: bool,
}

impl Played {
    pub(crate) fn worst(&self) -> f64 {
        self.windows.iter().copied().fold(f64::MAX, f64::min)
    }
}

impl fmt::Display for Play {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { split: (hostile, honest), kernel, liars, .. } = self;
        write!(f, "{} by {liars}, {hostile}/{honest}, kernels of {} us", self.strategy(), kernel / 1000)
    }
}

impl Play {
    pub(crate) fn strategy(&self) -> String {
        match self.kind {
            "known" => STRATEGIES[self.seed as usize].0.into(),
            kind => format!("{kind} {}", self.seed),
        }
    }

    pub(crate) fn run(&self, node: &Node) -> Result<Played> {
        let (hostile, honest) = self.split;
        for (slice, percent) in [("hostile", hostile), ("honest", honest)] {
            node.create(slice, &["--memory", "4Gi", "--compute", &format!("{percent}%")])?;
        }
        let played = self.in_slices(node);
        // Remaining processes end with their slices, whatever they overwrote.
        let ended = ["hostile", "honest"].map(|slice| node.delete(slice));
        let played = played?;
        ended.into_iter().collect::<Result<Vec<()>>>()?;
        Ok(played)
    }

    fn in_slices(&self, node: &Node) -> Result<Played> {
        let load = |slice| Client::start(&mut node.in_slice(slice, node.stage().load()));
        let mut neighbour = load("honest")?;
        let mut log = Log::new(node, neighbour.ask("begin 0")? as u32)?;
        let mut worker = load("hostile")?;
        worker.ask("begin 0")?;
        let mut liars = (0..self.liars).map(|at| self.liar(node, at)).collect::<Result<Vec<_>>>()?;
        neighbour.ask(&format!("flood {} 4000000 0 1", self.kernel))?;
        worker.ask("flood 1000000 4000000 0 1")?;
        log.follow(SETTLE);
        let (from, to) = log.follow(HONEST);
        let request = f64::from(self.split.1) / 100.0;
        let due = windows(from, to).map(|from| log.part(from, from + WINDOW)).fold(request, f64::min);
        if !self.works {
            worker.ask("stop")?;
        }
        for (at, liar) in liars.iter_mut().enumerate() {
            liar.ask(&format!(
                "lie {} {}",
                self.kind,
                self.seed + if self.kind == "known" { 0 } else { at as u64 }
            ))?;
        }
        let (from, to) = log.follow(Duration::from_secs(self.seconds));
        let is_sampled = uses(node, "honest")?;
        liars.iter_mut().try_for_each(|liar| liar.ask("stop").map(drop))?;
        neighbour.ask("done").map_err(|complaint| format!("the neighbour: {complaint}"))?;
        let windows = windows(from, to).map(|from| log.part(from, from + WINDOW) / due).collect();
        Ok(Played { windows, whole: log.part(from, to) / due, is_sampled })
    }

    fn liar(&self, node: &Node, at: usize) -> Result<Client> {
        let program = env::current_exe().map_err(|error| error.to_string())?;
        // The first record is the worker's; liars write into it only if the worker continues.
        let slot = (at + usize::from(!self.works)).to_string();
        let mut client = Client::start(node.in_slice("hostile", program).args(["liar", &slot]))?;
        client.ask("begin")?;
        Ok(client)
    }
}

fn windows(from: u64, to: u64) -> impl Iterator<Item = u64> {
    (from..).step_by(STEP as usize).take_while(move |from| from + WINDOW <= to)
}

/// True if the daemon reports that a slice used its GPU within the last second.
fn uses(node: &Node, slice: &str) -> Result<bool> {
    let text = run(node.tranche().args(["smi", "--json"]))?;
    let view: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("{error} in {text}"))?;
    let slices = view["slices"].as_array().ok_or_else(|| format!("no slices in {text}"))?;
    let its =
        slices.iter().find(|its| its["name"] == slice).ok_or_else(|| format!("no {slice} in {text}"))?;
    Ok(its["devices"][0]["compute_used_1s"].as_f64().is_some_and(|used| used > 0.0))
}

/// The simulated GPU's log of one process.
struct Log {
    gpus: simgpu::Node,
    pid: u32,
    seen: u64,
    stretches: BTreeSet<(u64, u64)>,
}

impl Log {
    fn new(node: &Node, pid: u32) -> Result<Self> {
        let gpus = simgpu::Node::attach(&node.simulation()).map_err(|error| error.to_string())?;
        Ok(Self { gpus, pid, seen: 0, stretches: BTreeSet::new() })
    }

    /// Follows the log for a time; returns its first and its last moment.
    fn follow(&mut self, span: Duration) -> (u64, u64) {
        let (from, end) = (now(), Instant::now() + span);
        loop {
            self.read();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (from, now());
            }
            thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    fn read(&mut self) {
        let Some(gpu) = self.gpus.gpu(0) else { return };
        let (first, stretches) = self.gpus.log_from(gpu, self.seen);
        self.seen = (first + stretches.len() as u64).saturating_sub(1);
        let its = stretches.iter().filter(|stretch| stretch.pid == self.pid);
        for (from, to) in its.map(|stretch| (stretch.from.0, stretch.to.0)) {
            // The last one may have grown since.
            let before = self.stretches.range((from, 0)..=(from, u64::MAX)).next().copied();
            before.map(|before| self.stretches.remove(&before));
            self.stretches.insert((from, to));
        }
    }

    /// Part of the time between two moments for which the process had the GPU.
    fn part(&self, from: u64, to: u64) -> f64 {
        let overlap = |(begun, ended): &(u64, u64)| (*ended).min(to).saturating_sub((*begun).max(from));
        self.stretches.iter().map(overlap).sum::<u64>() as f64 / (to - from) as f64
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, which is the simulated GPU's clock too.
fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    Duration::from(time).as_nanos() as u64
}
