//! What drivers and GPUs do with launches and marks, as far as the law of time does not know it.

use crate::S;

/// How launches and marks fare. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// The GPU writes the numbers of marks. Without, events stand there, and a process learns of them when it asks.
    pub writes_marks: bool,
    /// How long a mark keeps its stream from going on.
    pub mark: u64,
    /// Hardware queues of a context: streams whose numbers have the same rest by this are one.
    pub queues: u64,
    /// How long the first launch of each thread keeps it in the driver: modules are loaded then.
    pub first_launch: u64,
    /// Launches of a process that its queues take before they let a thread wait, each of its threads an equal part,
    /// instead of what each load has.
    pub room: Option<u32>,
    /// How fast kernels run.
    pub clock: Clock,
}

impl Driver {
    /// The GPU writes each mark in no time, streams are queues, launches return at once, and the clock is constant.
    pub const PLAIN: Self = Self {
        writes_marks: true,
        mark: 0,
        queues: u64::MAX,
        first_launch: 0,
        room: None,
        clock: Clock::CONSTANT,
    };
}

/// The speed of kernels over time: a sine between the full speed and a part of it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The least speed, in permille.
    pub least: u32,
    /// The time from one full speed to the next, in nanoseconds.
    pub period: u64,
}

impl Clock {
    /// Full speed.
    pub const CONSTANT: Self = Self { least: 1000, period: S };

    /// How long something takes that begins at a moment and would take so long at full speed.
    pub fn stretch(self, length: u64, now: u64) -> u64 {
        if self.least == 1000 {
            return length;
        }
        let angle = (now % self.period) as f64 / self.period as f64 * std::f64::consts::TAU;
        let depth = (1.0 - f64::from(self.least) / 1000.0) * (1.0 - angle.cos()) / 2.0;
        (length as f64 / (1.0 - depth)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_swings_between_its_full_and_its_least_speed() {
        let clock = Clock { least: 500, period: 2 * S };
        let at = |now| clock.stretch(1000, now);
        assert_eq!((at(0), at(S), at(2 * S)), (1000, 2000, 1000));
        assert!((1332..=1334).contains(&at(S / 2)), "{}", at(S / 2));
        assert_eq!(Clock::CONSTANT.stretch(77, 123_456), 77);
    }
}
