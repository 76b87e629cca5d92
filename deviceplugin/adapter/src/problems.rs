//! Log of problems that last.

/// Problems that are logged once, by subject.
#[derive(Debug, Default)]
pub struct LoggedProblems(std::collections::BTreeMap<&'static str, String>);

impl LoggedProblems {
    /// Logs a problem, unless it is the subject's last one.
    pub fn complain(&mut self, subject: &'static str, text: &str) {
        if self.0.get(subject).map(String::as_str) != Some(text) {
            tracing::warn!("{text}");
            self.0.insert(subject, text.to_owned());
        }
    }

    /// Notes that the subject has no problem.
    pub fn over(&mut self, subject: &'static str) {
        if self.0.remove(subject).is_some() {
            tracing::info!("the {subject} works again");
        }
    }
}
