//! Crash points at which the daemon dies, and its record of those that it passed.

mod doomed;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use stress::chance::Chance;

pub use doomed::daemon_main;
pub use stress::points::DAEMON_ALONE as POINTS;

/// Variable with the place to die: a crash point, a tab, and the number of the passage.
pub const AIM: &str = "CHAOS_AIM";
/// Variable by which the daemon panics there instead, as by an error of its own.
pub const PANICS: &str = "CHAOS_PANICS";
/// Variable with the process that dies there in its place: a pid, or `worker` for its park worker.
pub const VICTIM: &str = "CHAOS_VICTIM";
/// Variable with the path of the file in which the daemon records passages and its death.
pub const SAYS: &str = "CHAOS_SAYS";

/// A crash point, and the passage at which the daemon dies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aim {
    /// Name of the crash point.
    pub point: String,
    /// Number of the passage; the first is 1.
    pub passing: u64,
}

impl Aim {
    /// Value of the variable [`AIM`].
    pub fn text(&self) -> String {
        format!("{}\t{}", self.point, self.passing)
    }

    /// Parses the value of the variable [`AIM`].
    pub fn read(text: &str) -> Option<Self> {
        let (point, passing) = text.split_once('\t')?;
        Some(Self { point: point.into(), passing: passing.parse().ok()? })
    }
}

/// Counts of passages and deaths of daemons at points.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Daemons that passed it at all, by point.
    pub passed: BTreeMap<String, u64>,
    /// Daemons that died there, by point.
    pub died: BTreeMap<String, u64>,
}

impl Said {
    /// Reads the records of all daemons so far; without a file there are none.
    pub fn read(path: &Path) -> Self {
        let mut said = Self::default();
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            match line.split_once('\t') {
                Some(("passed", name)) => *said.passed.entry(name.into()).or_default() += 1,
                Some(("died at", name)) => *said.died.entry(name.into()).or_default() += 1,
                _ => {}
            }
        }
        said
    }

    /// Deaths at a point.
    pub fn deaths(&self, point: &str) -> u64 {
        self.died.get(point).copied().unwrap_or_default()
    }

    /// Points without a death.
    pub fn never(&self) -> impl Iterator<Item = &'static str> + '_ {
        POINTS.iter().copied().filter(|point| self.deaths(point) == 0)
    }

    /// Point with the fewest deaths, one of these by chance.
    pub fn rarest(&self, chance: &mut Chance) -> &'static str {
        let fewest = POINTS.iter().map(|point| self.deaths(point)).min().unwrap_or_default();
        let rare: Vec<_> = POINTS.iter().filter(|point| self.deaths(point) == fewest).collect();
        rare[chance.below(rare.len() as u64) as usize]
    }

    /// A point of `POINTS` by chance.
    pub fn any(chance: &mut Chance) -> &'static str {
        POINTS[chance.below(POINTS.len() as u64) as usize]
    }
}
