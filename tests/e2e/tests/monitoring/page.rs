//! Page of a program at one moment, as Prometheus reads it.

use std::collections::BTreeSet;

use tranche_exposition::{Address, ask};

/// The samples, as text.
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn read(address: &Address) -> Result<Self, String> {
        ask(address, "/metrics").map(Self).map_err(|error| error.to_string())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// True if there is a sample of that name, whatever its labels.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.samples(name).next().is_some()
    }

    /// The first sample of that name with these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let mut found = self.samples(name).filter(|sample| labels.iter().all(|label| sample.contains(label)));
        found.next()?.rsplit(' ').next()?.parse().ok()
    }

    /// Compares the first such sample with a value; the error has the page.
    pub(crate) fn is(&self, name: &str, labels: &[(&str, &str)], value: f64) -> Result<(), String> {
        match self.value(name, labels) {
            Some(is) if (is - value).abs() < 1e-9 => Ok(()),
            is => Err(format!("{name}{labels:?} is {is:?} instead of {value} in\n{}", self.0)),
        }
    }

    /// Names of the samples.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        let samples = self.0.lines().filter(|line| !line.starts_with('#'));
        samples.filter_map(|line| line.split(['{', ' ']).next()).collect()
    }

    fn samples<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .lines()
            .filter(move |line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
    }
}
