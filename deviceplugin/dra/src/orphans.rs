//! Slices that no claim has any more.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::ListParams;
use tranche_domain::id::SliceName;
use tranche_rpc::DaemonError;

use crate::claim;
use crate::driver::DraDriver;

/// Claims of one answer.
const PAGE: u32 = 500;

/// Reason for which slices without claims are not found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepError {
    #[error("claims cannot be listed: {0}")]
    Claims(#[from] kube::Error),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}

/// Ends slices whose claims are gone, or were given to another node.
///
/// No claim is prepared while they end. Work on claims is held up only if there is something to end.
pub(crate) async fn end(driver: &DraDriver) -> Result<(), SweepError> {
    if orphaned(driver).await?.is_empty() {
        return Ok(());
    }
    let _turn = driver.turns.at_all().await;
    for slice in orphaned(driver).await? {
        match driver.daemon.end(&slice, false).await {
            Ok(()) => {
                driver.counters.orphan();
                tracing::info!(%slice, "ended: its claim is gone");
            }
            Err(error) => tracing::warn!(%slice, %error, "its claim is gone, and it cannot be ended"),
        }
    }
    Ok(())
}

/// Slices whose claims are gone. Slices are read before the claims: a claim of each of them was there.
async fn orphaned(driver: &DraDriver) -> Result<Vec<SliceName>, SweepError> {
    let slices = driver.daemon.node().await?.slices.into_iter().map(|slice| slice.name);
    let slices: Vec<_> = slices.filter(|name| claim::uid(name).is_some()).collect();
    if slices.is_empty() {
        return Ok(slices);
    }
    let claims = claims(driver).await?;
    let has_claim = |name: &SliceName| claim::uid(name).is_some_and(|uid| claims.contains(uid));
    Ok(slices.into_iter().filter(|name| !has_claim(name)).collect())
}

/// Uids of the claims that have a device of this node's pool, of a driver with any name.
async fn claims(driver: &DraDriver) -> Result<BTreeSet<String>, kube::Error> {
    let api: Api<ResourceClaim> = Api::all(driver.client.0.clone());
    let (mut all, mut page) = (BTreeSet::new(), ListParams::default().limit(PAGE));
    loop {
        let list = api.list(&page).await?;
        let ours = list.items.into_iter().filter(|claim| has_our_device(driver, claim));
        all.extend(ours.filter_map(|claim| claim.metadata.uid));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = ListParams::default().limit(PAGE).continue_token(&token),
            None => return Ok(all),
        }
    }
}

fn has_our_device(driver: &DraDriver, claim: &ResourceClaim) -> bool {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
    results.into_iter().flatten().any(|result| result.pool == driver.config.node)
}
