//! Place and length of measurements.

use std::path::Path;
use std::time::Duration;

use bench::Result;
use bench::client::Client;
use bench::node::Node;
use bench::options;
use bench::stage::{Driver, Stage};
use clap::ValueEnum;

use crate::curve::{Curve, parts};
use crate::game::Game;
use crate::load::Tenant;

/// GPU that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhichGpu {
    /// A real one that nobody uses, else the simulated one.
    Auto,
    /// The simulated one.
    Sim,
    /// A real one.
    Real,
}

/// What everything is measured with.
#[derive(Debug)]
pub(crate) struct Lab {
    stage: Stage,
    driver: Driver,
    device: String,
    /// Of the simulated GPU: how long a context runs at a time, and what a change between two costs.
    law: Option<(f64, f64)>,
    /// What a nanosecond of kernel is on a real GPU; nothing on the simulated one, whose kernels know the time.
    turns: f64,
    form: Form,
}

/// Amount of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As little as says that it works.
    Quick,
    /// Everything, with so many windows for each measurement in slices.
    Long(u64),
}

/// What happened in each window.
#[derive(Debug, Default)]
pub(crate) struct Played {
    /// What each tenant got of what all got, in percent.
    pub(crate) parts: Vec<Vec<f64>>,
    /// What all got of the time, in percent.
    pub(crate) used: Vec<f64>,
    /// What each tenant got of the time, in percent.
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

    /// A tenant's windows, in percent of the time.
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
        let mut lab =
            Self { stage: stage.clone(), driver, device: String::new(), law: None, turns: 0.0, form };
        lab.look()?;
        println!("on {}{}", lab.device, if lab.is_simulated() { ", SIMULATED" } else { "" });
        Ok(lab)
    }

    fn look(&mut self) -> Result<()> {
        let node = self.node()?;
        if self.is_simulated() {
            let gpus = simgpu::Node::attach(&node.simulation()).map_err(|error| error.to_string())?;
            let model = &gpus.spec().gpus[0].model;
            self.device = format!("{} on {} cores", model.name, options::cores());
            self.law = Some((model.compute.slice_us as f64, model.compute.switch_us as f64));
        } else {
            let seen = node.seen()?;
            if !seen.processes.is_empty() {
                return Err(format!("the {} is used by others: nothing can be measured", seen.name));
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

    pub(crate) fn is_quick(&self) -> bool {
        self.form == Form::Quick
    }

    /// Of two numbers, the one for this form of the bench.
    pub(crate) fn either<T>(&self, long: T, quick: T) -> T {
        if self.is_quick() { quick } else { long }
    }

    /// Windows of a measurement, and of what stands beside it.
    pub(crate) const fn windows(&self, scheduled: bool) -> u64 {
        match (self.form, scheduled) {
            (Form::Quick, _) => 2,
            (Form::Long(windows), true) => windows,
            (Form::Long(windows), false) => windows / 2,
        }
    }

    /// Until shares have settled after programs have begun.
    pub(crate) fn settle(&self) -> Duration {
        self.either(Duration::from_millis(1500), Duration::from_millis(700))
    }

    /// What the simulated GPU's law lets several contexts use that all saturate it, in percent.
    pub(crate) fn lawful_use(&self) -> Option<f64> {
        self.law.map(|(slice, switch)| 100.0 * slice / (slice + switch))
    }

    /// Tenants at work, in slices or bare, when shares have settled.
    pub(crate) fn begin<'a>(&self, node: &'a Node, tenants: &[Tenant], scheduled: bool) -> Result<Game<'a>> {
        let mut game = Game::begin(node, tenants, scheduled, self.turns)?;
        game.watch(self.settle())?;
        Ok(game)
    }

    /// Lets tenants work for all windows.
    pub(crate) fn play(&self, node: &Node, tenants: &[Tenant], scheduled: bool) -> Result<Played> {
        let mut game = self.begin(node, tenants, scheduled)?;
        let windows = self.windows(scheduled);
        let (from, _) = game.watch(Duration::from_secs(windows))?;
        Ok(Played::of(&game.curves(), from, windows))
    }
}

/// In words of a report.
pub(crate) const fn variant(scheduled: bool) -> &'static str {
    if scheduled { "ours" } else { "unscheduled" }
}
