//! Use of a simulated GPU by each process over time, by the engine's own log.

use std::time::Duration;

/// A stretch of time in which one context had the GPU.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    pid: u32,
    from: u64,
    to: u64,
}

/// A GPU's log, as far back as it reaches; times are nanoseconds of the node's clock.
#[derive(Clone, Debug)]
pub struct Timeline {
    stretches: Vec<Stretch>,
}

impl Timeline {
    /// Reads the lines of `simgpu log`: GPU, pid, context, from and until.
    #[track_caller]
    pub(crate) fn read(text: &str) -> Self {
        let stretch = |line: &str| {
            let fields: Vec<u64> = line.split('\t').map_while(|field| field.parse().ok()).collect();
            match fields[..] {
                [_, pid, _, from, to] => Stretch { pid: u32::try_from(pid).expect("a pid"), from, to },
                _ => panic!("simgpu log: {line:?}"),
            }
        };
        Self { stretches: text.lines().map(stretch).collect() }
    }

    /// End of the last stretch, in nanoseconds; 0 for an empty log.
    pub fn end(&self) -> u64 {
        self.stretches.iter().map(|stretch| stretch.to).max().unwrap_or(0)
    }

    /// Time in which any process had the GPU.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.stretches.iter().map(|stretch| stretch.to - stretch.from).sum())
    }

    /// Processes that had the GPU one after the other: pid, from and until. A process that has it twice without another in between
    /// has it once.
    pub fn stays(&self) -> Vec<(u32, u64, u64)> {
        let mut stays: Vec<(u32, u64, u64)> = Vec::new();
        let mut stretches: Vec<&Stretch> = self.stretches.iter().collect();
        stretches.sort_by_key(|stretch| stretch.from);
        for stretch in stretches {
            match stays.last_mut() {
                Some((pid, _, until)) if *pid == stretch.pid => *until = stretch.to,
                _ => stays.push((stretch.pid, stretch.from, stretch.to)),
            }
        }
        stays
    }

    /// Part of the time from `from` to `to` in which these processes ran, in percent.
    pub fn percent(&self, pids: &[u32], from: u64, to: u64) -> f64 {
        let ours = self.stretches.iter().filter(|stretch| pids.contains(&stretch.pid));
        let ran = ours.map(|stretch| stretch.to.min(to).saturating_sub(stretch.from.max(from)));
        100.0 * ran.sum::<u64>() as f64 / to.saturating_sub(from).max(1) as f64
    }

    /// GPU time of these processes from `from` to `to`, and its percentage of the GPU time of all.
    pub fn share(&self, pids: &[u32], from: u64, to: u64) -> (Duration, f64) {
        let ran = |stretch: &Stretch| stretch.to.min(to).saturating_sub(stretch.from.max(from));
        let ours = self.stretches.iter().filter(|stretch| pids.contains(&stretch.pid)).map(ran).sum::<u64>();
        let all = self.stretches.iter().map(ran).sum::<u64>();
        (Duration::from_nanos(ours), 100.0 * ours as f64 / all.max(1) as f64)
    }

    /// Part of a time in which a process had this GPU while another had another GPU, in percent.
    pub fn percent_with(&self, pid: u32, (other, its): (&Self, u32), from: u64, to: u64) -> f64 {
        let of = |timeline: &Self, pid| -> Vec<Stretch> {
            timeline.stretches.iter().filter(|stretch| stretch.pid == pid).copied().collect()
        };
        let (ours, theirs) = (of(self, pid), of(other, its));
        let both = |mine: &Stretch| -> u64 {
            let with =
                |its: &Stretch| its.to.min(mine.to).min(to).saturating_sub(its.from.max(mine.from).max(from));
            theirs.iter().map(with).sum()
        };
        100.0 * ours.iter().map(both).sum::<u64>() as f64 / to.saturating_sub(from).max(1) as f64
    }

    /// The longest time from `from` to `to` in which these processes did not run at all.
    pub fn longest_pause(&self, pids: &[u32], from: u64, to: u64) -> Duration {
        let ours = self.stretches.iter().filter(|stretch| pids.contains(&stretch.pid));
        let mut ours: Vec<_> = ours.filter(|stretch| stretch.to > from && stretch.from < to).collect();
        ours.sort_by_key(|stretch| stretch.from);
        let (mut last, mut longest) = (from, 0);
        for stretch in ours {
            longest = longest.max(stretch.from.saturating_sub(last));
            last = last.max(stretch.to);
        }
        Duration::from_nanos(longest.max(to.saturating_sub(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_and_measured() {
        let timeline = Timeline::read("0\t7\t1\t100\t200\n0\t8\t2\t200\t250\n0\t7\t1\t300\t400\n");
        assert_eq!(timeline.end(), 400);
        assert_eq!(timeline.stays(), [(7, 100, 200), (8, 200, 250), (7, 300, 400)]);
        assert!((timeline.percent(&[7], 0, 400) - 50.0).abs() < 1e-9);
        assert!((timeline.percent(&[7, 8], 150, 250) - 100.0).abs() < 1e-9);
        let (ran, part) = timeline.share(&[8], 150, 325);
        assert!(ran == Duration::from_nanos(50) && (part - 40.0).abs() < 1e-9, "{ran:?} {part}");
        let other = Timeline::read("1\t9\t1\t150\t350\n");
        assert!((timeline.percent_with(7, (&other, 9), 0, 400) - 25.0).abs() < 1e-9);
        assert_eq!(timeline.longest_pause(&[7], 100, 400), Duration::from_nanos(100));
        assert_eq!(timeline.longest_pause(&[8], 0, 1000), Duration::from_nanos(750));
    }
}
