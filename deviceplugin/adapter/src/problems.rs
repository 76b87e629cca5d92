//! Log of problems that last.

/// The last problem of one subject, which is logged once.
#[derive(Debug, Default)]
pub struct LastProblem(Option<String>);

impl LastProblem {
    /// Lets `log` log a problem, unless it is the last one.
    pub fn complain(&mut self, problem: impl ToString, log: impl FnOnce(&str)) {
        let problem = problem.to_string();
        if self.0.as_ref() != Some(&problem) {
            log(&problem);
            self.0 = Some(problem);
        }
    }

    /// Tests if there is a problem.
    pub const fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Notes that there is none; true if there was one.
    pub fn over(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// Problems that are logged once, by subject.
#[derive(Debug, Default)]
pub struct LoggedProblems(std::collections::BTreeMap<&'static str, LastProblem>);

impl LoggedProblems {
    /// Logs a problem, unless it is the subject's last one.
    pub fn complain(&mut self, subject: &'static str, text: &str) {
        self.0.entry(subject).or_default().complain(text, |text| tracing::warn!("{text}"));
    }

    /// Notes that the subject has no problem.
    pub fn over(&mut self, subject: &'static str) {
        if self.0.remove(subject).is_some() {
            tracing::info!("the {subject} works again");
        }
    }
}
