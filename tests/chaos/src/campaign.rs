//! The parts of the campaign, and the claims of each.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};
use stress::report::{Claim, commit};

pub use crate::outcome::Outcome;
use crate::{clock, cycles, flood, full, kills, lost, parks, preemptions, torn};

/// A part of the campaign: one sort of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Part {
    /// The daemon is killed, at random and at every crash point.
    Kills,
    /// The disk is full, and then has room again.
    Full,
    /// Files that the daemon reads at its start are torn.
    Torn,
    /// The clock is set.
    Clock,
    /// A GPU is lost and returns.
    Lost,
    /// The sockets are flooded.
    Flood,
    /// Slices are created and deleted, again and again.
    Cycles,
    /// Slices are parked and brought back, and the daemon is killed at every step of it.
    Parks,
    /// A training is preempted by parking, and the daemon is killed at every step of it.
    Preemptions,
}

impl Part {
    /// Every part, in the order of a run.
    pub const ALL: [Self; 9] = [
        Self::Kills,
        Self::Full,
        Self::Torn,
        Self::Clock,
        Self::Lost,
        Self::Flood,
        Self::Cycles,
        Self::Parks,
        Self::Preemptions,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Kills => "kills",
            Self::Full => "full",
            Self::Torn => "torn",
            Self::Clock => "clock",
            Self::Lost => "lost",
            Self::Flood => "flood",
            Self::Cycles => "cycles",
            Self::Parks => "parks",
            Self::Preemptions => "preemptions",
        }
    }
}

/// Amounts of a campaign.
#[derive(Clone, Debug)]
pub struct Size {
    /// Daemons that die in [`Part::Kills`].
    pub deaths: u64,
    /// Starts from torn files in [`Part::Torn`].
    pub tears: u64,
    /// Times at which the clock is set in [`Part::Clock`].
    pub jumps: u64,
    /// Times at which the GPU is lost in [`Part::Lost`].
    pub losses: u64,
    /// Connections of each sort in [`Part::Flood`].
    pub connections: u64,
    /// Slices created and deleted in [`Part::Cycles`].
    pub cycles: u64,
    /// Passages of slices off their GPU or back in [`Part::Parks`].
    pub passages: u64,
    /// Preemptions of a training in [`Part::Preemptions`].
    pub preemptions: u64,
    /// Seed of random numbers.
    pub seed: u64,
    /// Path of the daemon with crash points.
    pub daemon: PathBuf,
}

/// Runs a part. One that panics has failed.
pub fn run(part: Part, size: &Size) -> Outcome {
    let began = Instant::now();
    let played = catch_unwind(AssertUnwindSafe(|| play(part, size)));
    let mut outcome = played.unwrap_or_else(|panic| {
        eprintln!("{}: {}", part.name(), words(&*panic));
        Outcome { claims: vec![Claim::exactly("played_to_the_end", 0, "times", 1)], ..Outcome::default() }
    });
    outcome.figures.push(("took_ms", u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)));
    outcome
}

fn play(part: Part, size: &Size) -> Outcome {
    match part {
        Part::Kills => kills::run(size.deaths, size.seed, size.daemon.clone()),
        Part::Full => full::run(),
        Part::Torn => torn::run(size.tears, size.seed),
        Part::Clock => clock::run(size.jumps),
        Part::Lost => lost::run(size.losses),
        Part::Flood => flood::run(size.connections),
        Part::Cycles => cycles::run(size.cycles),
        Part::Parks => parks::run(size.passages, size.seed, size.daemon.clone()),
        Part::Preemptions => preemptions::run(size.preemptions, size.seed, size.daemon.clone()),
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}

/// Report of all parts, as JSON.
pub fn report(outcomes: &[(Part, Outcome)]) -> Value {
    let mut claims = Vec::new();
    let (mut figures, mut deaths_at, mut skipped) = (json!({}), json!({}), json!({}));
    for (part, outcome) in outcomes {
        for claim in &outcome.claims {
            let mut claim = json!(claim);
            claim["name"] = format!("{}.{}", part.name(), claim["name"].as_str().unwrap_or_default()).into();
            claims.push(claim);
        }
        for (name, value) in &outcome.figures {
            figures[format!("{}.{name}", part.name())] = json!(value);
        }
        for (point, deaths) in &outcome.deaths_at {
            deaths_at[point] = json!(deaths);
        }
        if let Some(why) = &outcome.skipped {
            skipped[part.name()] = json!(why);
        }
    }
    json!({"device": "Tesla V100-SXM2-32GB", "simulated": true, "commit": commit(), "claims": claims,
        "figures": figures, "deaths_at": deaths_at, "skipped": skipped})
}

/// Prints the results of a part.
pub fn show(part: Part, outcome: &Outcome) {
    if let Some(why) = &outcome.skipped {
        println!("SKIP: {}: {why}", part.name());
    }
    for (point, deaths) in &outcome.deaths_at {
        println!("  {deaths:>6} deaths at {point}");
    }
    for (name, value) in &outcome.figures {
        println!("  {:<34} {value:>12}", format!("{}.{name}", part.name()));
    }
    for Claim { name, value, unit, goal, holds } in &outcome.claims {
        let verdict = if *holds { "holds" } else { "DOES NOT HOLD" };
        println!("  {:<34} {value:>12} {unit:<10} {goal:<12} {verdict}", format!("{}.{name}", part.name()));
    }
}
