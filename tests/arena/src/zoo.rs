//! The hardware zoo: models of GPUs, drivers and hosts, and laws that are judged on each.
//!
//! A law is a function of a model and gives figures. Each figure has a bound, and beside it the values of an
//! ideal serial scheduler and of no scheduler on the same hardware, where those exist: on some hardware
//! nothing can hold the bound of the plain model. A figure beyond its bound is listed in `zoo/short.tsv` with
//! the bound that holds instead, and fails when it is beyond that too.

mod laws;
mod models;
mod short;
mod table;

use simgpu::law::Rules;

use crate::driver::Driver;
use crate::setup::{Delays, Setup};

pub use laws::LAWS;
pub use models::MODELS;
pub use short::{SHORT, Short};
pub use table::{json, markdown, short_rows};

/// A kind of hardware.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Name of the model in tables.
    pub name: &'static str,
    /// The reason for which it is here.
    pub why: &'static str,
    /// Time sharing among contexts on its GPUs.
    pub law: Rules,
    /// Delays of threads and the daemon.
    pub delays: Delays,
    /// Behaviour of launches and completion markers.
    pub driver: Driver,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Model {
    /// A game on this hardware.
    pub fn put(&self, setup: Setup) -> Setup {
        Setup { law: self.law, delays: self.delays, driver: self.driver, seed: self.seed, ..setup }
    }
}

/// A property of schedules, written once for all models.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// Name of the law in tables.
    pub name: &'static str,
    /// The programs that it is about.
    pub what: &'static str,
    /// Models on which it is judged in each run of the tests.
    pub quick: Quick,
    /// Plays its games on a model.
    pub play: fn(&Model) -> Vec<Figure>,
}

/// Models of the subset that takes a few seconds.
#[derive(Clone, Copy, Debug)]
pub enum Quick {
    /// Every model of the table.
    All,
    /// Models with these names.
    On(&'static [&'static str]),
}

impl Law {
    /// True if a model belongs to the subset.
    pub fn is_quick_on(&self, model: &Model) -> bool {
        match self.quick {
            Quick::All => true,
            Quick::On(names) => names.contains(&model.name),
        }
    }
}

/// The bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

impl Bound {
    /// The bounding value, without its direction.
    pub const fn value(self) -> f64 {
        match self {
            Self::AtMost(value) | Self::AtLeast(value) => value,
        }
    }

    /// True if a measured value is within the bound.
    pub fn admits(self, measured: f64) -> bool {
        match self {
            Self::AtMost(most) => measured <= most,
            Self::AtLeast(least) => measured >= least,
        }
    }

    /// The same kind of bound at another value.
    pub const fn at(self, value: f64) -> Self {
        match self {
            Self::AtMost(_) => Self::AtMost(value),
            Self::AtLeast(_) => Self::AtLeast(value),
        }
    }
}

/// One figure of a law on a model.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Name of the figure in tables.
    pub name: &'static str,
    /// Unit of all its values.
    pub unit: &'static str,
    /// Bound that the law promises.
    pub promised: Bound,
    /// Value under the scheduler.
    pub measured: f64,
    /// Value under the ideal serial scheduler, where it can run the programs.
    pub ideal: Option<f64>,
    /// Value without a scheduler, where that is comparable.
    pub unscheduled: Option<f64>,
}

/// A figure with where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name of the model.
    pub model: &'static str,
    /// Name of the law.
    pub law: &'static str,
    /// Measured value and its bounds.
    pub figure: Figure,
}

/// Position of a figure relative to its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within what is promised.
    Holds,
    /// Beyond what is promised, and within what is listed.
    Short,
    /// Beyond what is promised and what is listed.
    Fails,
}

impl Row {
    /// Listed shortfall of the figure, if any.
    pub fn listed(&self) -> Option<&'static Short> {
        let Self { model, law, figure } = self;
        SHORT.iter().find(|short| (short.model, short.law, short.figure) == (*model, *law, figure.name))
    }

    /// Compares the figure with its bounds.
    pub fn verdict(&self) -> Verdict {
        let Figure { promised, measured, .. } = self.figure;
        let today = self.listed().map(|short| promised.at(short.today));
        match today {
            _ if promised.admits(measured) => Verdict::Holds,
            Some(today) if today.admits(measured) => Verdict::Short,
            _ => Verdict::Fails,
        }
    }
}

/// Plays a law on a model.
pub fn play(model: &Model, law: &Law) -> Vec<Row> {
    let row = |figure| Row { model: model.name, law: law.name, figure };
    (law.play)(model).into_iter().map(row).collect()
}
