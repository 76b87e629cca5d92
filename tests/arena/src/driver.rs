//! Properties of drivers and GPUs that concern launches and completion markers, beyond the law of time.

use crate::S;

/// Behaviour of launches and completion markers; times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// True if the GPU writes the numbers of markers; else events stand for them and must be polled.
    pub writes_marks: bool,
    /// Time in nanoseconds for which a marker holds up its stream.
    pub mark: u64,
    /// Hardware queues of a context: streams whose numbers are equal modulo this share one.
    pub queues: u64,
    /// Time in nanoseconds that a thread's first launch takes, in which modules are loaded.
    pub first_launch: u64,
    /// Launches that a process may have queued before a thread blocks, an equal part for each thread. `None`
    /// leaves the bound to each load.
    pub room: Option<u32>,
    /// Clock rate of kernels over time.
    pub clock: Clock,
}

impl Driver {
    /// The plain driver: markers cost no time, each stream has a queue, launches return at once.
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
    /// Full speed at all times.
    pub const CONSTANT: Self = Self { least: 1000, period: S };

    /// Nanoseconds that work takes that begins at `now` and would take `length` at full speed.
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
