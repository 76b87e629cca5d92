//! Says that the daemon is alive as long as it gets things done, so that one that is stuck is ended and started again.
//!
//! What must go on: calls are answered, and for that the core is free; tenants are let in; GPU time is handed out. Each
//! of these is asked to do next to nothing, and as soon as one has not come to it, nothing is said any more.
//!
//! The driver is not asked. A daemon that is started because a driver hangs would hang in the same call, and this one
//! still governs.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::agent::Agent;
use crate::supervisor;

/// How often the supervisor hears of us in the time that it is patient: one word may be lost or late.
const WORDS: u32 = 3;

/// Begins to speak, where the supervisor wants to hear it. `calls` is where calls are answered.
///
/// # Errors
/// If there can be no thread for it.
pub(crate) fn start(agent: &Arc<Agent>, calls: Handle) -> io::Result<()> {
    let Some(patience) = supervisor::patience() else { return Ok(()) };
    let agent = Arc::downgrade(agent);
    thread::Builder::new().name("watchdog".into()).spawn(move || watch(&agent, calls, patience)).map(drop)
}

/// Until the daemon ends.
fn watch(agent: &Weak<Agent>, calls: Handle, patience: Duration) {
    let round = Round::new(calls);
    while let Some(agent) = agent.upgrade() {
        round.ask(&agent);
        drop(agent);
        thread::sleep(patience / WORDS);
        match round.silent() {
            None => supervisor::alive(),
            Some(who) => tracing::error!("{who} has not got on for {:?}", patience / WORDS),
        }
    }
}

/// Everybody who is asked.
struct Round {
    calls: Question,
    tenants: Question,
    compute: Question,
    answering: Handle,
}

impl Round {
    fn new(answering: Handle) -> Self {
        Self {
            calls: Question::to("what answers calls"),
            tenants: Question::to("what lets tenants in"),
            compute: Question::to("what hands out GPU time"),
            answering,
        }
    }

    /// Asks everybody who has answered the last question.
    fn ask(&self, agent: &Arc<Agent>) {
        if let Some(answer) = self.calls.ask() {
            let agent = Arc::clone(agent);
            self.answering.spawn(async move {
                drop(agent.core());
                answer.give();
            });
        }
        if let Some(answer) = self.tenants.ask() {
            agent.worker.spawn(async move { answer.give() });
        }
        if let Some(answer) = self.compute.ask() {
            agent.governor.answer_next_time(answer);
        }
    }

    /// Whoever has not answered.
    fn silent(&self) -> Option<&'static str> {
        [&self.calls, &self.tenants, &self.compute]
            .into_iter()
            .find(|asked| asked.is_open())
            .map(|asked| asked.who)
    }
}

/// What somebody was asked, if anything.
struct Question {
    who: &'static str,
    open: Arc<AtomicBool>,
}

/// To be given by whoever gets that far.
#[derive(Debug)]
pub(crate) struct Answer(Arc<AtomicBool>);

impl Question {
    fn to(who: &'static str) -> Self {
        Self { who, open: Arc::default() }
    }

    /// Nothing if the last one is still open: whoever is stuck is not asked more.
    fn ask(&self) -> Option<Answer> {
        let asked = !self.open.swap(true, Ordering::AcqRel);
        asked.then(|| Answer(Arc::clone(&self.open)))
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}

impl Answer {
    /// Whoever was asked goes on.
    pub(crate) fn give(self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_answered_is_silent_and_not_asked_again() {
        let question = Question::to("somebody");
        assert!(!question.is_open());
        let answer = question.ask().unwrap();
        assert!(question.is_open() && question.ask().is_none());
        answer.give();
        assert!(!question.is_open() && question.ask().is_some());
    }

    #[test]
    fn one_that_is_stuck_is_named() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let round = Round::new(runtime.handle().clone());
        assert_eq!(round.silent(), None);
        let answers = [&round.calls, &round.tenants, &round.compute].map(|question| question.ask().unwrap());
        let [calls, tenants, _stuck] = answers;
        tenants.give();
        assert_eq!(round.silent(), Some("what answers calls"));
        calls.give();
        assert_eq!(round.silent(), Some("what hands out GPU time"));
    }
}
