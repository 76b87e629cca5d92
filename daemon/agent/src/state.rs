//! Schema of the persistent state: slices and cordons, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tranche_domain::cordon::Cordon;
use tranche_domain::id::GpuUuid;
use tranche_domain::slice::{ProcessId, Slice};

/// Version of the format that this daemon writes and reads.
const VERSION: u32 = 1;

/// Content of the state file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateFile {
    version: u32,
    /// Generation of the last slice created. Regions carry it, so that those of an earlier slice of the same name are
    /// recognised.
    pub(crate) generation: u64,
    pub(crate) slices: Vec<SavedSlice>,
    /// GPUs that take no further slices.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) cordons: BTreeMap<GpuUuid, Cordon>,
}

/// A slice as the state file records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedSlice {
    /// Terms of the slice.
    pub(crate) slice: Slice,
    /// Generation that the slice's regions must carry.
    pub(crate) generation: u64,
    /// Processes whose descendants may attach.
    pub(crate) roots: Vec<ProcessId>,
}

impl StateFile {
    pub(crate) const fn new(generation: u64, slices: Vec<SavedSlice>) -> Self {
        Self { version: VERSION, generation, slices, cordons: BTreeMap::new() }
    }

    pub(crate) fn with_cordons(self, cordons: BTreeMap<GpuUuid, Cordon>) -> Self {
        Self { cordons, ..self }
    }

    /// Serializes the state as JSON with a final newline.
    ///
    /// # Errors
    /// None that a valid state can cause.
    pub(crate) fn text(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Parses a state file; the error is a sentence for the operator.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        match serde_json::from_slice::<Self>(text) {
            Ok(state) if state.version == VERSION => Ok(state),
            Ok(state) => Err(format!("it has version {}, this daemon reads {VERSION}", state.version)),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tranche_domain::compute::{Latency, Priority};
    use tranche_domain::id::HostPid;
    use tranche_domain::jobs::{JobId, MemberId};
    use tranche_domain::request::ComputeMode;
    use tranche_domain::slice::Part;
    use tranche_domain::units::{Bytes, Permille};

    /// A state in which every field is set.
    pub(crate) fn state() -> StateFile {
        let slice = Slice {
            name: "a".parse().unwrap(),
            share: "0.5".parse().unwrap(),
            parts: vec![Part { gpu: GpuUuid::from_bytes([7; 16]), cap: Bytes::mib(5) }],
            compute: Permille::try_from(500).unwrap(),
            limit: Permille::try_from(600).unwrap(),
            mode: ComputeMode::Fair,
            priority: Priority::new(-3),
            latency: Some(Latency::LEAST),
            gang: Some("ranks".parse().unwrap()),
            project: Some("vision".parse().unwrap()),
            frozen: true,
            parked: None,
            returned: false,
            ephemeral: true,
            park_idle: None,
            rotates: false,
            several_containers: false,
            pod: Some("default/train/main".parse().unwrap()),
            job: Some(MemberId { job: JobId(5), index: 6 }),
            owner_uid: 3,
            created_unix_ms: 4,
        };
        let roots = vec![ProcessId { pid: HostPid::new(1), start_time: 2 }];
        let reason = "fan".parse().ok();
        let cordon = Cordon { by_uid: 0, since_unix_ms: 5, reason, told: "cordoned by root".into() };
        let cordons = [(GpuUuid::from_bytes([9; 16]), cordon)].into();
        StateFile::new(9, vec![SavedSlice { slice, generation: 8, roots }]).with_cordons(cordons)
    }

    #[test]
    fn state_without_limits_pods_and_jobs_is_read() {
        let old = br#"{"version": 1, "generation": 3, "slices": [{"slice": {"name": "a", "share":
            {"fraction": 500}, "parts": [], "compute": 500, "mode": "fair", "ephemeral": false,
            "owner_uid": 3, "created_unix_ms": 4}, "generation": 2, "roots": []}]}"#;
        let slice = StateFile::parse(old).unwrap().slices.remove(0).slice;
        assert_eq!((slice.limit, slice.priority, slice.frozen), (Permille::WHOLE, Priority::DEFAULT, false));
        assert_eq!((slice.pod, slice.job, slice.gang, slice.latency), (None, None, None, None));
    }
}
