//! Sums of parts by holder, and the part of each that is beyond its project's quota.

use std::collections::BTreeMap;

use tranche_domain::jobs::{MilliGpus, ProjectName};

use super::holder::{GpuHolder, HeldPart, Holding};

/// Sums the parts of each holder, and finds its borrowed part.
pub(super) fn sum(
    parts: Vec<HeldPart>,
    quota: impl Fn(&ProjectName) -> Option<MilliGpus>,
) -> BTreeMap<GpuHolder, Holding> {
    let mut holdings: BTreeMap<GpuHolder, Holding> = BTreeMap::new();
    for part in parts {
        let holding = holdings.entry(part.holder).or_default();
        holding.gpus = holding.gpus.plus(part.gpus);
        holding.idle = holding.idle.plus(if part.idle { part.gpus } else { MilliGpus::ZERO });
    }
    let mut projects: BTreeMap<ProjectName, Vec<&mut Holding>> = BTreeMap::new();
    for (holder, holding) in &mut holdings {
        if let Some(project) = &holder.project {
            projects.entry(project.clone()).or_default().push(holding);
        }
    }
    for (project, mut of) in projects {
        let Some(quota) = quota(&project) else { continue };
        let shares = borrowed(&of.iter().map(|holding| holding.gpus).collect::<Vec<_>>(), quota);
        of.iter_mut().zip(shares).for_each(|(holding, share)| holding.borrowed = share);
    }
    holdings
}

/// The excess of amounts over a quota, divided in proportion to them; the sum is exact.
pub(crate) fn borrowed(amounts: &[MilliGpus], quota: MilliGpus) -> Vec<MilliGpus> {
    let total: MilliGpus = amounts.iter().copied().sum();
    let excess = total.less(quota);
    // Differences of a rounded running sum lose nothing, and are at most the amounts.
    let upto = |amount: u64| amount * u64::from(excess.get()) / u64::from(total.get()).max(1);
    let mut before = 0_u64;
    let share = |amount: &MilliGpus| {
        let after = before + u64::from(amount.get());
        let share = upto(after) - upto(before);
        before = after;
        MilliGpus::new(u32::try_from(share).unwrap_or(u32::MAX))
    };
    amounts.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn excess_is_divided_without_a_rest(amounts in prop::collection::vec(0u32..9_000, 0..20), quota in 0u32..40_000) {
            let amounts: Vec<MilliGpus> = amounts.into_iter().map(MilliGpus::new).collect();
            let shares = borrowed(&amounts, MilliGpus::new(quota));
            let total: MilliGpus = amounts.iter().copied().sum();
            prop_assert_eq!(shares.iter().copied().sum::<MilliGpus>(), total.less(MilliGpus::new(quota)));
            for (share, amount) in shares.iter().zip(&amounts) {
                prop_assert!(share <= amount, "{shares:?} of {amounts:?}");
            }
        }
    }
}
