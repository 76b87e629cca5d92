//! Device and length of measurements.

use std::path::Path;
use std::thread;
use std::time::Duration;

use bench::Result;
use bench::client::Client;
use bench::node::Node;
use bench::options;
use bench::stage::{Driver, Stage};
use clap::ValueEnum;

use crate::curve::{Curve, parts};
use crate::game::{Game, now};
use crate::load::Tenant;

/// GPU that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhichGpu {
    /// A real GPU if the machine has one, else the simulated one.
    Auto,
    /// The simulated GPU, an H200.
    Sim,
    /// A real GPU, which no process may use.
    Real,
}

/// Build, device and length of all measurements.
#[derive(Debug)]
pub(crate) struct Lab {
    stage: Stage,
    driver: Driver,
    device: String,
    /// Time slice of a context and cost of a switch on the simulated GPU, in microseconds.
    law: Option<(f64, f64)>,
    /// Cost of a switch from a context without work on the simulated GPU, in microseconds.
    handover_us: Option<f64>,
    /// Loops of a kernel in a nanosecond on a real GPU; 0 on the simulated one, whose kernels read a clock.
    turns: f64,
    form: Form,
}

/// Number of measurements and of their windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The least that shows that the bench works.
    Quick,
    /// All measurements, with this number of windows for each one in slices.
    Long(u64),
}

/// Use of the GPU in each window of a second.
#[derive(Debug, Default)]
pub(crate) struct Played {
    /// Part of each tenant in the GPU time of all, in percent.
    pub(crate) parts: Vec<Vec<f64>>,
    /// GPU time of all tenants, in percent of the window.
    pub(crate) used: Vec<f64>,
    /// GPU time of each tenant, in percent of the window.
    pub(crate) got: Vec<Vec<f64>>,
}

impl Played {
    pub(crate) fn of(curves: &[&Curve], from: u64, windows: u64) -> Self {
        let mut played = Self::default();
        for window in 0..windows {
            let (from, to) = (from + window * 1_000_000_000, from + (window + 1) * 1_000_000_000);
            let got: Vec<f64> = curves.iter().map(|curve| curve.percent(from, to)).collect();
            played.parts.push(parts(curves, from, to));
            played.used.push(got.iter().sum());
            played.got.push(got);
        }
        played
    }

    /// GPU time of one tenant in each window, in percent of the window.
    pub(crate) fn got_by(&self, tenant: usize) -> Vec<f64> {
        self.got.iter().map(|got| got[tenant]).collect()
    }
}

impl Lab {
    pub(crate) fn set_up(stage: &Stage, which: WhichGpu, form: Form) -> Result<Self> {
        let driver = match which {
            WhichGpu::Real => Driver::Real,
            WhichGpu::Auto if Path::new("/dev/nvidiactl").exists() => Driver::Real,
            WhichGpu::Auto | WhichGpu::Sim => Driver::Simulated,
        };
        let (stage, device) = (stage.clone(), String::new());
        let mut lab = Self { stage, driver, device, law: None, handover_us: None, turns: 0.0, form };
        lab.identify()?;
        println!("on {}{}", lab.device, if lab.is_simulated() { ", SIMULATED" } else { "" });
        Ok(lab)
    }

    fn identify(&mut self) -> Result<()> {
        let node = self.node()?;
        if self.is_simulated() {
            let gpus = simgpu::Node::attach(&node.simulation()).map_err(|error| error.to_string())?;
            let model = &gpus.spec().gpus[0].model;
            let tried = thread::spawn(simgpu::run_at_real_time).join().map_err(|_| "a thread panicked")?;
            let waits = if tried.is_ok() { "" } else { ", and its writes wait for a processor" };
            self.device = format!("{} on {} cores{waits}", model.name, options::cores());
            self.handover_us = Some(model.compute.handover_us as f64);
            self.law = Some((model.compute.slice_us as f64, model.compute.switch_us as f64));
        } else {
            let seen = node.seen()?;
            if !seen.processes.is_empty() {
                return Err(format!("other processes use the {}: nothing can be measured", seen.name));
            }
            self.device = seen.name;
            let mut client = Client::start(&mut node.bare(self.stage.load()))?;
            client.ask("begin 1")?;
            self.turns = client.ask("calibrate")?;
        }
        Ok(())
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.driver == Driver::Simulated
    }

    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    pub(crate) const fn stage(&self) -> &Stage {
        &self.stage
    }

    /// A node with a daemon and no slices.
    pub(crate) fn node(&self) -> Result<Node> {
        Node::empty(&self.stage, self.driver)
    }

    /// The same with keys in the daemon's configuration.
    pub(crate) fn configured_node(&self, keys: &str) -> Result<Node> {
        Node::configured(&self.stage, self.driver, keys)
    }

    /// Cost of a switch from a context without work, in microseconds; `None` on a real GPU.
    pub(crate) const fn handover_us(&self) -> Option<f64> {
        self.handover_us
    }

    pub(crate) fn is_quick(&self) -> bool {
        self.form == Form::Quick
    }

    /// The first of two values in the long form of the bench, the second in the quick one.
    pub(crate) fn either<T>(&self, long: T, quick: T) -> T {
        if self.is_quick() { quick } else { long }
    }

    /// Windows of a measurement in slices, or of the one beside it without slices.
    pub(crate) const fn windows(&self, scheduled: bool) -> u64 {
        match (self.form, scheduled) {
            (Form::Quick, _) => 2,
            (Form::Long(windows), true) => windows,
            (Form::Long(windows), false) => windows / 2,
        }
    }

    /// Time from the start of programs until shares have settled.
    pub(crate) fn settle(&self) -> Duration {
        self.either(Duration::from_millis(1500), Duration::from_millis(700))
    }

    /// Use of the simulated GPU by several contexts that saturate it, by its law, in percent.
    pub(crate) fn lawful_use(&self) -> Option<f64> {
        self.law.map(|(slice, switch)| 100.0 * slice / (slice + switch))
    }

    /// Starts tenants, in slices or bare, and waits until shares have settled.
    pub(crate) fn begin<'a>(&self, node: &'a Node, tenants: &[Tenant], scheduled: bool) -> Result<Game<'a>> {
        let mut game = Game::begin(node, tenants, scheduled, self.turns)?;
        game.watch(self.settle())?;
        Ok(game)
    }

    /// Runs tenants for all windows; returns what each finished in each of them.
    ///
    /// That is the time of its kernels alone, in percent of the window, and kernels or copies in a second.
    pub(crate) fn finished(
        &self,
        node: &Node,
        tenants: &[Tenant],
        scheduled: bool,
        windows: u64,
    ) -> Result<Vec<Vec<[f64; 2]>>> {
        let mut game = self.begin(node, tenants, scheduled)?;
        let mut finished = vec![Vec::new(); tenants.len()];
        let (mut done, mut at) = (game.done()?, now());
        for _ in 0..windows {
            game.watch(Duration::from_secs(1))?;
            let (after, then) = (game.done()?, now());
            for ((windows, before), after) in finished.iter_mut().zip(&done).zip(&after) {
                let seconds = (then - at) as f64 / 1e9;
                windows.push([(after[0] - before[0]) / 1e7 / seconds, (after[1] - before[1]) / seconds]);
            }
            (done, at) = (after, then);
        }
        Ok(finished)
    }

    /// Runs tenants for all windows.
    pub(crate) fn play(&self, node: &Node, tenants: &[Tenant], scheduled: bool) -> Result<Played> {
        let mut game = self.begin(node, tenants, scheduled)?;
        let windows = self.windows(scheduled);
        let (from, _) = game.watch(Duration::from_secs(windows))?;
        Ok(Played::of(&game.curves(), from, windows))
    }
}

/// Name of the variant in reports.
pub(crate) const fn variant(scheduled: bool) -> &'static str {
    if scheduled { "ours" } else { "unscheduled" }
}
