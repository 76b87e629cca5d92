//! The outcome of a part of the campaign: claims that hold or do not, and figures.

use std::collections::BTreeMap;

use stress::report::Claim;

/// Claims and figures of a part.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Claims, each with its verdict.
    pub claims: Vec<Claim>,
    /// Further figures, about which nothing is claimed.
    pub figures: Vec<(&'static str, u64)>,
    /// Number of daemons that died at each crash point.
    pub deaths_at: BTreeMap<String, u64>,
    /// Reason for which the part cannot run here.
    pub skipped: Option<String>,
}

impl Outcome {
    /// True if all claims of the part hold.
    pub fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }
}
