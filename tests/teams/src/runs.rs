//! A job's own record of its processes: begin, progress and end of each.

use std::path::Path;

/// A process of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Progress of the work at its begin.
    pub from: u64,
    /// Progress at which this process saved it and ended.
    pub saved: Option<u64>,
}

/// The processes of a job, in the order in which they began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Each process that began, in order.
    pub all: Vec<Run>,
    /// Violations in words: two processes at once, or one that does not begin where the last saved.
    pub wrongs: Vec<String>,
    now: Option<u32>,
}

impl Runs {
    /// Reads the record that a job writes; empty if there is none.
    pub fn read(path: &Path) -> Self {
        Self::of(&std::fs::read_to_string(path).unwrap_or_default())
    }

    fn of(text: &str) -> Self {
        let mut runs = Self::default();
        text.lines().for_each(|line| runs.take(line));
        runs
    }

    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match (words.as_slice(), self.now) {
            (["began", pid, from], None) => self.began(pid, from),
            (["saved", pid, saved], Some(now)) if *pid == now.to_string() => self.saved(saved),
            (_, now) => self.wrongs.push(format!("{line:?}, while process {now:?} works")),
        }
    }

    fn began(&mut self, pid: &str, from: &str) {
        let from = from.parse().unwrap_or(u64::MAX);
        let before = self.all.last().and_then(|run| run.saved).unwrap_or(0);
        if from != before {
            self.wrongs.push(format!("process {pid} began from {from}, and {before} was saved"));
        }
        self.now = pid.parse().ok();
        self.all.push(Run { from, saved: None });
    }

    fn saved(&mut self, saved: &str) {
        self.now = None;
        if let Some(run) = self.all.last_mut() {
            run.saved = saved.parse().ok();
        }
    }

    /// Progress of the work at its last continuation, if it had one.
    pub fn resumed_from(&self) -> Option<u64> {
        self.all.iter().skip(1).map(|run| run.from).next_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_from_the_saved_progress_is_no_violation() {
        let runs = Runs::of("began 7 0\nsaved 7 12\nbegan 9 12\n");
        assert_eq!(runs.wrongs, Vec::<String>::new());
        assert_eq!(runs.resumed_from(), Some(12));
        assert_eq!(Runs::of("began 7 0\n").resumed_from(), None);
    }

    #[test]
    fn two_at_once_and_work_that_is_lost_are_noticed() {
        assert_eq!(Runs::of("began 7 0\nbegan 9 0\n").wrongs.len(), 1);
        assert_eq!(Runs::of("began 7 0\nsaved 7 12\nbegan 9 3\n").wrongs.len(), 1);
        assert_eq!(Runs::of("began 7 0\nsaved 9 12\n").wrongs.len(), 1);
    }
}
