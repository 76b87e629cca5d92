//! Watchdog: reports to the supervisor that the daemon is alive while its loops make progress.
//! The supervisor restarts a daemon that does not report.
//!
//! Checked are the loop that serves calls, including the core's lock, the threads that admit tenants, and the
//! scheduling loop. Each receives a trivial task; until all have run theirs, no further report is sent.
//!
//! The driver is not checked. A daemon restarted because of a hanging driver would hang in the same call, while this
//! one still schedules.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::agent::Agent;
use tranche_linux::supervisor;
use tranche_timeshare::check::LoopCheck;

/// Reports in each watchdog timeout: one may be lost or late.
const WORDS: u32 = 3;

/// Starts the watchdog if the supervisor has one. `calls` is the runtime that serves calls.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(agent: &Arc<Agent>, calls: Handle) -> io::Result<()> {
    let Some(patience) = supervisor::watchdog_timeout() else { return Ok(()) };
    let agent = Arc::downgrade(agent);
    thread::Builder::new().name("watchdog".into()).spawn(move || watch(&agent, calls, patience)).map(drop)
}

/// Runs until the daemon ends.
fn watch(agent: &Weak<Agent>, calls: Handle, patience: Duration) {
    let round = Checks::new(calls);
    while let Some(agent) = agent.upgrade() {
        round.start_check(&agent);
        drop(agent);
        thread::sleep(patience / WORDS);
        match round.stuck() {
            None => supervisor::alive(),
            Some(name) => tracing::error!("{name} has not got on for {:?}", patience / WORDS),
        }
    }
}

/// Outstanding check of each loop, and the runtime that serves calls.
struct Checks {
    calls: LoopCheck,
    tenants: LoopCheck,
    compute: LoopCheck,
    answering: Handle,
}

impl Checks {
    fn new(answering: Handle) -> Self {
        Self {
            calls: LoopCheck::to("what answers calls"),
            tenants: LoopCheck::to("what lets tenants in"),
            compute: LoopCheck::to("what hands out GPU time"),
            answering,
        }
    }

    /// Sends a check to each loop that has completed the last one.
    fn start_check(&self, agent: &Arc<Agent>) {
        if let Some(answer) = self.calls.start_check() {
            let agent = Arc::clone(agent);
            self.answering.spawn(async move {
                drop(agent.core());
                answer.give();
            });
        }
        if let Some(answer) = self.tenants.start_check() {
            agent.worker.spawn(async move { answer.give() });
        }
        if let Some(answer) = self.compute.start_check() {
            agent.governor.answer_next_time(answer);
        }
    }

    /// A loop that has not completed its check.
    fn stuck(&self) -> Option<&'static str> {
        [&self.calls, &self.tenants, &self.compute]
            .into_iter()
            .find(|check| check.is_open())
            .map(|check| check.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuck_loop_is_named() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let round = Checks::new(runtime.handle().clone());
        assert_eq!(round.stuck(), None);
        let answers =
            [&round.calls, &round.tenants, &round.compute].map(|question| question.start_check().unwrap());
        let [calls, tenants, _stuck] = answers;
        tenants.give();
        assert_eq!(round.stuck(), Some("what answers calls"));
        calls.give();
        assert_eq!(round.stuck(), Some("what hands out GPU time"));
    }
}
