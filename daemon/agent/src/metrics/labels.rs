//! Labels and ratios of metrics.

use tranche_domain::units::Permille;
use tranche_exposition::Labels;

/// A set of one label.
pub(super) fn label(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

/// Adds a label to a set.
pub(super) fn and(mut labels: Labels, name: &'static str, value: impl ToString) -> Labels {
    labels.push((name, value.to_string()));
    labels
}

/// Share of a GPU's time, from 0 to 1.
pub(super) fn share(permille: Permille) -> f64 {
    f64::from(permille.get()) / 1000.0
}
