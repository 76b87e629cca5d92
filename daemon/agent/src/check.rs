//! Check of a loop: a trivial task that is completed when the loop reaches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// State of a loop's check.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    open: Arc<AtomicBool>,
}

/// Completes a check when the loop reaches it.
#[derive(Debug)]
pub(crate) struct Answer(Arc<AtomicBool>);

impl Check {
    pub(crate) fn to(name: &'static str) -> Self {
        Self { name, open: Arc::default() }
    }

    /// Starts a check; `None` while the last one is pending.
    pub(crate) fn start_check(&self) -> Option<Answer> {
        let check = !self.open.swap(true, Ordering::AcqRel);
        check.then(|| Answer(Arc::clone(&self.open)))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}

impl Answer {
    /// Marks the check as completed.
    pub(crate) fn give(self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_check_is_reported_and_not_repeated() {
        let question = Check::to("somebody");
        assert!(!question.is_open());
        let answer = question.start_check().unwrap();
        assert!(question.is_open() && question.start_check().is_none());
        answer.give();
        assert!(!question.is_open() && question.start_check().is_some());
    }
}
