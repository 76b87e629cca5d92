//! Wire to domain by `TryFrom`, domain to wire by `From`.

use std::num::NonZeroU32;

use tranche_domain::id::{BadName, BadUuid, HostPid, InnerPid};
use tranche_domain::request::{BadShare, ComputeMode, Fraction, Resize, Share, SliceRequest};
use tranche_domain::units::{AboveWhole, Bytes, Permille};
use tranche_domain::view;

use crate::v1;

/// A message that no domain value corresponds to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum BadMessage {
    #[error(transparent)]
    Name(#[from] BadName),
    #[error(transparent)]
    Uuid(#[from] BadUuid),
    #[error(transparent)]
    Share(#[from] BadShare),
    #[error("compute: {0}")]
    Compute(#[from] AboveWhole),
    #[error("a slice of no memory was asked for; the smallest is 1 MiB")]
    NoMemory,
    #[error("compute mode {0} is not known to this version")]
    Mode(i32),
    #[error("the resize changes nothing: give a fraction, a memory size or a compute share")]
    NoChange,
}

impl From<BadMessage> for tonic::Status {
    fn from(bad: BadMessage) -> Self {
        Self::invalid_argument(bad.to_string())
    }
}

// Requests

impl TryFrom<v1::Share> for Share {
    type Error = BadMessage;

    fn try_from(share: v1::Share) -> Result<Self, BadMessage> {
        use v1::share::Kind;
        match share.kind.ok_or(BadShare::Missing)? {
            Kind::FractionPermille(permille) => Ok(Self::Fraction(Fraction::try_from(permille)?)),
            Kind::WholeGpus(count) => {
                Ok(Self::Whole(NonZeroU32::new(count).ok_or_else(|| BadShare::Nothing("0".into()))?))
            }
            Kind::MemoryBytes(bytes) => memory(bytes).map(Self::Memory),
        }
    }
}

impl From<Share> for v1::Share {
    fn from(share: Share) -> Self {
        use v1::share::Kind;
        let kind = match share {
            Share::Fraction(fraction) => Kind::FractionPermille(fraction.into()),
            Share::Whole(count) => Kind::WholeGpus(count.get()),
            Share::Memory(bytes) => Kind::MemoryBytes(bytes.get()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::ComputeMode> for ComputeMode {
    type Error = BadMessage;

    fn try_from(mode: v1::ComputeMode) -> Result<Self, BadMessage> {
        Ok(match mode {
            v1::ComputeMode::Unspecified | v1::ComputeMode::Fair => Self::Fair,
            v1::ComputeMode::Strict => Self::Strict,
            v1::ComputeMode::BestEffort => Self::BestEffort,
        })
    }
}

impl From<ComputeMode> for v1::ComputeMode {
    fn from(mode: ComputeMode) -> Self {
        match mode {
            ComputeMode::Fair => Self::Fair,
            ComputeMode::Strict => Self::Strict,
            ComputeMode::BestEffort => Self::BestEffort,
        }
    }
}

impl TryFrom<v1::CreateSliceRequest> for SliceRequest {
    type Error = BadMessage;

    fn try_from(wire: v1::CreateSliceRequest) -> Result<Self, BadMessage> {
        Ok(Self {
            mode: mode(wire.compute_mode)?,
            name: wire.name.map(|name| name.parse()).transpose()?,
            share: wire.share.ok_or(BadShare::Missing)?.try_into()?,
            memory: wire.memory_bytes.map(memory).transpose()?,
            compute: wire.compute_permille.map(Permille::try_from).transpose()?,
            gpu: wire.gpu.map(|gpu| gpu.parse()).transpose()?,
            ephemeral: wire.ephemeral,
        })
    }
}

impl From<SliceRequest> for v1::CreateSliceRequest {
    /// With no wait; the caller adds one.
    fn from(request: SliceRequest) -> Self {
        Self {
            name: request.name.map(String::from),
            share: Some(request.share.into()),
            memory_bytes: request.memory.map(Bytes::get),
            compute_permille: request.compute.map(Permille::get),
            compute_mode: v1::ComputeMode::from(request.mode).into(),
            gpu: request.gpu.map(|gpu| gpu.to_string()),
            wait_ms: 0,
            ephemeral: request.ephemeral,
        }
    }
}

impl TryFrom<v1::ResizeSliceRequest> for Resize {
    type Error = BadMessage;

    /// The name is checked by the caller, who has to look it up anyway.
    fn try_from(wire: v1::ResizeSliceRequest) -> Result<Self, BadMessage> {
        let resize = Self {
            fraction: wire.fraction_permille.map(Fraction::try_from).transpose()?,
            memory: wire.memory_bytes.map(memory).transpose()?,
            compute: wire.compute_permille.map(Permille::try_from).transpose()?,
        };
        if resize == Self::default() { Err(BadMessage::NoChange) } else { Ok(resize) }
    }
}

fn mode(number: i32) -> Result<ComputeMode, BadMessage> {
    v1::ComputeMode::try_from(number).map_err(|_| BadMessage::Mode(number))?.try_into()
}

fn memory(bytes: u64) -> Result<Bytes, BadMessage> {
    if Bytes::new(bytes).whole_mib() == 0 { Err(BadMessage::NoMemory) } else { Ok(Bytes::new(bytes)) }
}

// Views

impl From<view::NodeView> for v1::NodeView {
    fn from(node: view::NodeView) -> Self {
        Self {
            daemon_version: node.daemon_version,
            driver_version: node.driver_version,
            cuda_version: node.cuda_version,
            simulated: node.simulated,
            privileged: node.privileged,
            compute_enforcement: node.compute_enforcement,
            gpus: node.gpus.into_iter().map(Into::into).collect(),
            slices: node.slices.into_iter().map(Into::into).collect(),
            waiting: node.waiting.into_iter().map(Into::into).collect(),
            notes: node.notes,
            daemon_pid: node.daemon_pid.get(),
            runtime_dir: node.runtime_dir,
        }
    }
}

impl TryFrom<v1::NodeView> for view::NodeView {
    type Error = BadMessage;

    fn try_from(wire: v1::NodeView) -> Result<Self, BadMessage> {
        Ok(Self {
            daemon_version: wire.daemon_version,
            daemon_pid: HostPid::new(wire.daemon_pid),
            runtime_dir: wire.runtime_dir,
            driver_version: wire.driver_version,
            cuda_version: wire.cuda_version,
            simulated: wire.simulated,
            privileged: wire.privileged,
            compute_enforcement: wire.compute_enforcement,
            gpus: wire.gpus.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            slices: wire.slices.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            waiting: wire.waiting.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            notes: wire.notes,
        })
    }
}

impl From<view::GpuView> for v1::GpuView {
    fn from(gpu: view::GpuView) -> Self {
        Self {
            index: gpu.index,
            uuid: gpu.uuid.to_string(),
            name: gpu.name,
            pci_bus_id: gpu.pci_bus_id,
            compute_capability: gpu.compute_capability,
            total_bytes: gpu.total.get(),
            reserved_bytes: gpu.reserved.get(),
            capacity_bytes: gpu.capacity.get(),
            used_bytes: gpu.used.get(),
            committed_bytes: gpu.committed.get(),
            committed_compute_permille: gpu.committed_compute.get(),
            context_reserve_bytes: gpu.context_reserve.get(),
            utilization_percent: gpu.utilization_percent,
            memory_utilization_percent: gpu.memory_utilization_percent,
            temperature_celsius: gpu.temperature_celsius,
            power_milliwatts: gpu.power_milliwatts,
            power_limit_milliwatts: gpu.power_limit_milliwatts,
            not_sliceable: gpu.not_sliceable,
            foreign: gpu.foreign.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::GpuView> for view::GpuView {
    type Error = BadMessage;

    fn try_from(wire: v1::GpuView) -> Result<Self, BadMessage> {
        Ok(Self {
            index: wire.index,
            uuid: wire.uuid.parse()?,
            name: wire.name,
            pci_bus_id: wire.pci_bus_id,
            compute_capability: wire.compute_capability,
            total: Bytes::new(wire.total_bytes),
            reserved: Bytes::new(wire.reserved_bytes),
            capacity: Bytes::new(wire.capacity_bytes),
            used: Bytes::new(wire.used_bytes),
            committed: Bytes::new(wire.committed_bytes),
            committed_compute: wire.committed_compute_permille.try_into()?,
            context_reserve: Bytes::new(wire.context_reserve_bytes),
            utilization_percent: wire.utilization_percent,
            memory_utilization_percent: wire.memory_utilization_percent,
            temperature_celsius: wire.temperature_celsius,
            power_milliwatts: wire.power_milliwatts,
            power_limit_milliwatts: wire.power_limit_milliwatts,
            not_sliceable: wire.not_sliceable,
            foreign: wire.foreign.into_iter().map(Into::into).collect(),
        })
    }
}

impl From<view::ForeignProcessView> for v1::ForeignProcessView {
    fn from(process: view::ForeignProcessView) -> Self {
        Self { pid: process.pid.get(), command: process.command, used_bytes: process.used.map(Bytes::get) }
    }
}

impl From<v1::ForeignProcessView> for view::ForeignProcessView {
    fn from(wire: v1::ForeignProcessView) -> Self {
        Self { pid: HostPid::new(wire.pid), command: wire.command, used: wire.used_bytes.map(Bytes::new) }
    }
}

impl From<view::SliceView> for v1::SliceView {
    fn from(slice: view::SliceView) -> Self {
        Self {
            name: slice.name.into(),
            share: Some(slice.share.into()),
            devices: slice.devices.into_iter().map(Into::into).collect(),
            compute_permille: slice.compute.get(),
            compute_mode: v1::ComputeMode::from(slice.mode).into(),
            tier: slice.tier,
            tier_reason: slice.tier_reason,
            ephemeral: slice.ephemeral,
            owner_uid: slice.owner_uid,
            created_unix_ms: slice.created_unix_ms,
            processes: slice.processes.into_iter().map(Into::into).collect(),
            root_pids: slice.root_pids.into_iter().map(HostPid::get).collect(),
        }
    }
}

impl TryFrom<v1::SliceView> for view::SliceView {
    type Error = BadMessage;

    fn try_from(wire: v1::SliceView) -> Result<Self, BadMessage> {
        Ok(Self {
            mode: mode(wire.compute_mode)?,
            name: wire.name.parse()?,
            share: wire.share.ok_or(BadShare::Missing)?.try_into()?,
            devices: wire.devices.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            compute: wire.compute_permille.try_into()?,
            tier: wire.tier,
            tier_reason: wire.tier_reason,
            ephemeral: wire.ephemeral,
            owner_uid: wire.owner_uid,
            created_unix_ms: wire.created_unix_ms,
            processes: wire.processes.into_iter().map(Into::into).collect(),
            root_pids: wire.root_pids.into_iter().map(HostPid::new).collect(),
        })
    }
}

impl From<view::SliceDeviceView> for v1::SliceDeviceView {
    fn from(device: view::SliceDeviceView) -> Self {
        Self {
            gpu_index: device.gpu_index,
            gpu_uuid: device.gpu_uuid.to_string(),
            cap_bytes: device.cap.get(),
            used_bytes: device.used.get(),
            utilization_percent: device.utilization_percent,
        }
    }
}

impl TryFrom<v1::SliceDeviceView> for view::SliceDeviceView {
    type Error = BadMessage;

    fn try_from(wire: v1::SliceDeviceView) -> Result<Self, BadMessage> {
        Ok(Self {
            gpu_index: wire.gpu_index,
            gpu_uuid: wire.gpu_uuid.parse()?,
            cap: Bytes::new(wire.cap_bytes),
            used: Bytes::new(wire.used_bytes),
            utilization_percent: wire.utilization_percent,
        })
    }
}

impl From<view::ProcessView> for v1::ProcessView {
    fn from(process: view::ProcessView) -> Self {
        Self {
            pid: process.pid.get(),
            inner_pid: process.inner_pid.map(InnerPid::get),
            command: process.command,
            used_bytes: process.used.into_iter().map(Bytes::get).collect(),
        }
    }
}

impl From<v1::ProcessView> for view::ProcessView {
    fn from(wire: v1::ProcessView) -> Self {
        Self {
            pid: HostPid::new(wire.pid),
            inner_pid: wire.inner_pid.map(InnerPid::new),
            command: wire.command,
            used: wire.used_bytes.into_iter().map(Bytes::new).collect(),
        }
    }
}

impl From<view::WaitingView> for v1::WaitingView {
    fn from(waiting: view::WaitingView) -> Self {
        Self {
            name: waiting.name.map(String::from),
            share: Some(waiting.share.into()),
            reason: waiting.reason,
            since_unix_ms: waiting.since_unix_ms,
            pid: waiting.pid.get(),
        }
    }
}

impl TryFrom<v1::WaitingView> for view::WaitingView {
    type Error = BadMessage;

    fn try_from(wire: v1::WaitingView) -> Result<Self, BadMessage> {
        Ok(Self {
            name: wire.name.map(|name| name.parse()).transpose()?,
            share: wire.share.ok_or(BadShare::Missing)?.try_into()?,
            reason: wire.reason,
            since_unix_ms: wire.since_unix_ms,
            pid: HostPid::new(wire.pid),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> SliceRequest {
        SliceRequest {
            name: Some("a".parse().unwrap()),
            share: "0.5".parse().unwrap(),
            memory: Some(Bytes::mib(100)),
            compute: Some(Permille::try_from(300).unwrap()),
            mode: ComputeMode::Strict,
            gpu: Some("1".parse().unwrap()),
            ephemeral: true,
        }
    }

    #[test]
    fn a_request_survives_the_wire() {
        let wire = v1::CreateSliceRequest::from(request());
        assert_eq!(SliceRequest::try_from(wire), Ok(request()));
    }

    #[test]
    fn nonsense_from_the_wire_is_refused() {
        let wire = || v1::CreateSliceRequest::from(request());
        let refused = |wire: v1::CreateSliceRequest| SliceRequest::try_from(wire).unwrap_err();
        assert_eq!(refused(v1::CreateSliceRequest { share: None, ..wire() }), BadShare::Missing.into());
        assert_eq!(refused(v1::CreateSliceRequest { memory_bytes: Some(9), ..wire() }), BadMessage::NoMemory);
        assert_eq!(refused(v1::CreateSliceRequest { compute_mode: 9, ..wire() }), BadMessage::Mode(9));
        assert!(matches!(
            refused(v1::CreateSliceRequest { compute_permille: Some(1001), ..wire() }),
            BadMessage::Compute(_)
        ));
        assert_eq!(Resize::try_from(v1::ResizeSliceRequest::default()), Err(BadMessage::NoChange));
    }
}
