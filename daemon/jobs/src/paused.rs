//! A member between two starts.

use std::time::Duration;

/// A member that is started again after a pause.
#[derive(Clone, Debug)]
pub(crate) struct PausedMember {
    pub(crate) cause: PauseCause,
    /// Number of consecutive occurrences of the cause.
    pub(crate) times: u32,
    pub(crate) why: String,
}

/// Event that a pause follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseCause {
    /// The slice or the job runner could not be created.
    NotStarted,
    /// The service's command ended.
    Ended,
}

impl PausedMember {
    /// First and maximum pause before another attempt.
    const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

    /// Pause before the next start; doubles each time.
    pub(crate) fn pause(&self) -> Duration {
        let [first, last] = Self::PAUSES;
        last.min(first * (1 << self.times.saturating_sub(1).min(8)))
    }

    /// Reason for the pause; without private parts for users who may not see the job's output.
    pub(crate) fn reason(&self, private: bool) -> String {
        let Self { cause, times, why } = self;
        match cause {
            PauseCause::NotStarted => {
                let times = if *times == 1 { "once".into() } else { format!("{times} times") };
                format!("it could not be started, {times} so far, and is tried again: {why}")
            }
            PauseCause::Ended => {
                let times = if *times == 1 { String::new() } else { format!(", {times} times in a row,") };
                // The outcome may name programs and paths of the owner.
                let why = if private { format!(": {why}") } else { String::new() };
                format!("it ended{times} and is started again{why}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_half_a_minute() {
        let paused =
            |times| PausedMember { cause: PauseCause::Ended, times, why: String::new() }.pause().as_secs();
        assert_eq!([0, 1, 2, 3, 5, 6, 7, u32::MAX].map(paused), [1, 1, 2, 4, 16, 30, 30, 30]);
    }

    #[test]
    fn outcome_of_a_service_is_private() {
        let paused =
            PausedMember { cause: PauseCause::Ended, times: 2, why: "there is no /home/ann/x".into() };
        assert!(
            paused.reason(true).ends_with("2 times in a row, and is started again: there is no /home/ann/x")
        );
        assert_eq!(paused.reason(false), "it ended, 2 times in a row, and is started again");
    }
}
