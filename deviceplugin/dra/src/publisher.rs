//! Publication of the pool at the API server.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};

use crate::config::DriverConfig;
use crate::pool::{self, PoolPart};

/// Result of an attempt to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publication {
    /// It was published already.
    Unchanged,
    /// It is published now.
    Changed,
    /// The API server left out a part of it.
    Dropped,
}

/// Publisher of this node's pool.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    slices: Api<ResourceSlice>,
    nodes: Api<Node>,
    driver: String,
    node: String,
}

impl Publisher {
    pub(crate) fn new(client: Client, config: &DriverConfig) -> Self {
        Self {
            slices: Api::all(client.clone()),
            nodes: Api::all(client),
            driver: config.driver.clone(),
            node: config.node.clone(),
        }
    }

    /// Makes the published pool one with this content.
    pub(crate) async fn publish(&self, wanted: Vec<PoolPart>) -> Result<Publication, kube::Error> {
        let selector = format!("spec.nodeName={},spec.driver={}", self.node, self.driver);
        let published = self.slices.list(&ListParams::default().fields(&selector)).await?.items;
        let mut published: Vec<_> =
            published.into_iter().filter(|slice| slice.spec.pool.name == self.node).collect();
        published.sort_by_key(ResourceExt::name_any);
        if pool::is_published(&published, &wanted) {
            return Ok(Publication::Unchanged);
        }
        let generation = published.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or(0);
        let wanted = pool::with_times(&published, wanted);
        let owner = self.owner().await?;
        let count = i64::try_from(wanted.len()).unwrap_or(i64::MAX);
        let pool = ResourcePool {
            name: self.node.clone(),
            generation: generation.saturating_add(1),
            resource_slice_count: count,
        };
        let mut written = Vec::new();
        for (index, part) in wanted.iter().enumerate() {
            written.push(self.write(published.get(index), index, part.clone(), &pool, &owner).await?);
        }
        for slice in published.iter().skip(wanted.len()) {
            self.slices.delete(&slice.name_any(), &DeleteParams::default()).await?;
        }
        // An API server leaves out fields whose features are off, without an error.
        let whole = pool::is_published(&written, &wanted);
        Ok(if whole { Publication::Changed } else { Publication::Dropped })
    }

    async fn write(
        &self,
        before: Option<&ResourceSlice>,
        index: usize,
        part: PoolPart,
        pool: &ResourcePool,
        owner: &OwnerReference,
    ) -> Result<ResourceSlice, kube::Error> {
        let (devices, shared_counters) = part.fields();
        let spec = ResourceSliceSpec {
            driver: self.driver.clone(),
            node_name: Some(self.node.clone()),
            pool: pool.clone(),
            devices,
            shared_counters,
            ..ResourceSliceSpec::default()
        };
        let Some(before) = before else {
            let metadata = ObjectMeta {
                // In the order of names, so that each is found again as the part that it was. Long names are cut at the end.
                generate_name: Some(format!("{index:03}-{}-{}-", self.node, self.driver)),
                owner_references: Some(vec![owner.clone()]),
                ..ObjectMeta::default()
            };
            let slice = ResourceSlice { metadata, spec };
            return self.slices.create(&PostParams::default(), &slice).await;
        };
        // With its resource version: another writer is an error, and the next attempt reads again.
        let slice = ResourceSlice { metadata: before.metadata.clone(), spec };
        self.slices.replace(&before.name_any(), &PostParams::default(), &slice).await
    }

    /// The node: its end is that of its pool.
    async fn owner(&self) -> Result<OwnerReference, kube::Error> {
        let node = self.nodes.get(&self.node).await?;
        Ok(OwnerReference {
            api_version: Node::api_version(&()).into_owned(),
            kind: Node::kind(&()).into_owned(),
            name: node.name_any(),
            uid: node.uid().unwrap_or_default(),
            controller: Some(true),
            ..OwnerReference::default()
        })
    }
}
