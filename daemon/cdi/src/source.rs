//! Sources of facts: a CDI file, or findings on the machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::BadSpec;
use crate::facts::Facts;
use crate::found::NodeFindings;
use crate::node::{CdiGpu, NodeSpec};

/// Source of facts about the node's GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FactSource {
    /// Document that NVIDIA's tool or the administrator wrote.
    Described(NodeSpec),
    /// Findings on the machine; GPUs differ in their device files only.
    Found {
        /// Device files and libraries that were found on the node.
        rest: NodeFindings,
        /// Device file of each GPU, by index.
        nodes: BTreeMap<u32, String>,
    },
}

impl FactSource {
    /// Facts for these GPUs of a node that has `present` in total. Common device files that do not exist are
    /// left out; some are created at the first use of CUDA.
    ///
    /// # Errors
    /// If the source lacks one of the GPUs or the driver's libraries.
    pub fn facts(
        &self,
        gpus: &[CdiGpu],
        present: usize,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<Facts, BadSpec> {
        match self {
            Self::Described(node) => node.facts(gpus, present),
            Self::Found { rest, nodes } => {
                let mut found = rest.clone();
                found.device_nodes.retain(|node| is_there(node));
                found.device_nodes.extend(gpus.iter().filter_map(|gpu| nodes.get(&gpu.index).cloned()));
                found.facts()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::found::FoundLibrary;
    use tranche_domain::id::GpuUuid;

    fn found() -> FactSource {
        let library = |name: &str| FoundLibrary { file: format!("/l/{name}"), names: vec![name.into()] };
        let rest = NodeFindings {
            device_nodes: vec!["/dev/nvidiactl".into(), "/dev/nvidia-uvm".into()],
            libraries: ["libcuda.so.1", "libnvidia-ml.so.1"].map(library).into(),
            ..NodeFindings::default()
        };
        FactSource::Found {
            rest,
            nodes: BTreeMap::from([(0, "/dev/nvidia0".into()), (1, "/dev/nvidia1".into())]),
        }
    }

    #[test]
    fn device_file_that_is_missing_is_left_out() {
        let gpu = CdiGpu { uuid: GpuUuid::from_bytes([1; 16]), index: 1 };
        let facts = found().facts(&[gpu], 2, |path| path == "/dev/nvidiactl").unwrap();
        let nodes: Vec<_> = facts.rest.device_nodes.iter().map(|node| node.path.as_str()).collect();
        assert_eq!(nodes, ["/dev/nvidiactl", "/dev/nvidia1"]);
    }

    #[test]
    fn source_survives_json() {
        let text = "{cdiVersion: 0.6.0, kind: nvidia.com/gpu, devices: [{name: '0', containerEdits: {deviceNodes: [{path: \
                    /dev/nvidia0, major: 195}]}}], containerEdits: {intelRdt: {closID: x}, hooks: [{hookName: prestart, path: \
                    /h, timeout: 3}], mounts: [{hostPath: /l/libcuda.so.1, containerPath: /l/libcuda.so.1, odd: [1, a]}]}}";
        let described = FactSource::Described(NodeSpec::parse("here", text.as_bytes()).unwrap());
        for source in [described, found()] {
            let json = serde_json::to_vec(&source).unwrap();
            assert_eq!(serde_json::from_slice::<FactSource>(&json).unwrap(), source);
        }
    }
}
