//! Check of a loop: a trivial task that is completed when the loop reaches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// State of a loop's check.
pub struct LoopCheck {
    /// Name of the loop, for the log.
    pub name: &'static str,
    open: Arc<AtomicBool>,
}

/// Completes a check when the loop reaches it.
#[derive(Debug)]
pub struct CheckReply(Arc<AtomicBool>);

impl LoopCheck {
    /// A check of a loop, not started.
    pub fn to(name: &'static str) -> Self {
        Self { name, open: Arc::default() }
    }

    /// Starts a check; `None` while the last one is pending.
    pub fn start_check(&self) -> Option<CheckReply> {
        let check = !self.open.swap(true, Ordering::AcqRel);
        check.then(|| CheckReply(Arc::clone(&self.open)))
    }

    /// True while the loop has not completed the check.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}

impl CheckReply {
    /// Marks the check as completed.
    pub fn give(self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_check_is_reported_and_not_repeated() {
        let question = LoopCheck::to("somebody");
        assert!(!question.is_open());
        let answer = question.start_check().unwrap();
        assert!(question.is_open() && question.start_check().is_none());
        answer.give();
        assert!(!question.is_open() && question.start_check().is_some());
    }
}
