//! Gangs whose slices do something else than wait for each other.

use arena::{Lies, Load, MS, S, Setup, Tenant, US, fair, gpu, run};
use tranche_domain::compute::{ComputeTerms, Gang};

const GAME: u64 = 11 * S;

fn of_gang(terms: ComputeTerms, number: u8) -> ComputeTerms {
    let gang = Gang { owner_uid: 1, name: "ranks".parse().expect("a label names a gang") };
    ComputeTerms { gang: Some(gang), gpus: vec![gpu(number)], ..terms }
}

/// A closed slice is let in for work of a mate, which may never end: shares hold all the same.
#[test]
fn work_of_a_mate_that_never_ends_buys_no_share() {
    let endless = [Load::saturating(1000 * S), Load::saturating(100 * MS)];
    let lies = (1..4).map(|seed| Load::Lying(Lies::Drawn(seed)));
    for (case, mates) in endless.into_iter().chain(lies).enumerate() {
        for length in [MS, 10 * MS] {
            let tenants = vec![
                Tenant::new(fair(900), Load::saturating(200 * US)),
                Tenant::new(of_gang(fair(100), 0), Load::saturating(length)),
                Tenant::new(of_gang(fair(100), 1), mates),
                Tenant::new(ComputeTerms { gpus: vec![gpu(1)], ..fair(900) }, Load::saturating(200 * US)),
            ];
            let report = run(&Setup::new(tenants), GAME);
            let part = |own, other| {
                let ran = |tenant| report.ran(tenant, S, GAME) as f64;
                100.0 * ran(own) / (ran(own) + ran(other))
            };
            let shown = format!("mate {case}, launches of {} us", length / US);
            assert!(part(1, 0) <= 11.5, "{shown}: {:.1} % instead of 10", part(1, 0));
            let kept = report.percent(0);
            assert!(kept >= 88.0, "{shown}: the neighbour has {kept:.1} % instead of 90");
        }
    }
}
