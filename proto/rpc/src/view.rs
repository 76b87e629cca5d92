//! Views: domain to wire by `From`, wire to domain by `TryFrom`.

use tranche_domain::compute::{Latency, Waits};
use tranche_domain::fault::{Fault, Xid};
use tranche_domain::id::{HostPid, InnerPid, NumaNode};
use tranche_domain::request::BadShare;
use tranche_domain::units::Bytes;
use tranche_domain::view;

use crate::convert::{BadMessage, mode, state};
use crate::v1;

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
            context_measured_unix_ms: gpu.context_measured_unix_ms,
            utilization_percent: gpu.utilization_percent,
            memory_utilization_percent: gpu.memory_utilization_percent,
            temperature_celsius: gpu.temperature_celsius,
            power_milliwatts: gpu.power_milliwatts,
            power_limit_milliwatts: gpu.power_limit_milliwatts,
            not_sliceable: gpu.not_sliceable,
            cordon: gpu.cordon.map(Into::into),
            foreign: gpu.foreign.into_iter().map(Into::into).collect(),
            faults: gpu.faults.into_iter().map(Into::into).collect(),
            numa_node: gpu.numa_node.map(NumaNode::get),
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
            numa_node: wire.numa_node.map(NumaNode::new),
            total: Bytes::new(wire.total_bytes),
            reserved: Bytes::new(wire.reserved_bytes),
            capacity: Bytes::new(wire.capacity_bytes),
            used: Bytes::new(wire.used_bytes),
            committed: Bytes::new(wire.committed_bytes),
            committed_compute: wire.committed_compute_permille.try_into()?,
            context_reserve: Bytes::new(wire.context_reserve_bytes),
            context_measured_unix_ms: wire.context_measured_unix_ms,
            utilization_percent: wire.utilization_percent,
            memory_utilization_percent: wire.memory_utilization_percent,
            temperature_celsius: wire.temperature_celsius,
            power_milliwatts: wire.power_milliwatts,
            power_limit_milliwatts: wire.power_limit_milliwatts,
            not_sliceable: wire.not_sliceable,
            cordon: wire.cordon.map(TryInto::try_into).transpose()?,
            foreign: wire.foreign.into_iter().map(Into::into).collect(),
            faults: wire.faults.into_iter().map(Into::into).collect(),
        })
    }
}

impl From<Fault> for v1::FaultView {
    fn from(fault: Fault) -> Self {
        Self { xid: fault.xid.get(), since_unix_ms: fault.since_unix_ms, count: fault.count }
    }
}

impl From<v1::FaultView> for Fault {
    fn from(wire: v1::FaultView) -> Self {
        Self { xid: Xid::new(wire.xid), since_unix_ms: wire.since_unix_ms, count: wire.count }
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
            limit_permille: slice.limit.get(),
            priority: slice.priority.get().into(),
            latency_us: slice.latency.map(Latency::micros),
            waits: slice.waits.count,
            late_waits: slice.waits.late,
            longest_wait_us: slice.waits.longest_us,
            gang: slice.gang.map(String::from),
            frozen: slice.frozen,
            compute_state: v1::ComputeState::from(slice.compute_state).into(),
            waits_for: slice.waits_for.map(String::from),
            launches_passed: slice.launches_passed,
            launches_degraded: slice.launches_degraded,
            pod: slice.pod.map(Into::into),
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
            limit: wire.limit_permille.try_into()?,
            priority: wire.priority.try_into().map_err(BadMessage::Priority)?,
            latency: wire.latency_us.map(TryInto::try_into).transpose()?,
            waits: Waits { count: wire.waits, late: wire.late_waits, longest_us: wire.longest_wait_us },
            gang: wire.gang.map(|name| name.parse()).transpose()?,
            frozen: wire.frozen,
            compute_state: state(wire.compute_state)?,
            waits_for: wire.waits_for.map(|name| name.parse()).transpose()?,
            launches_passed: wire.launches_passed,
            launches_degraded: wire.launches_degraded,
            tier: wire.tier,
            tier_reason: wire.tier_reason,
            ephemeral: wire.ephemeral,
            pod: wire.pod.map(TryInto::try_into).transpose()?,
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
            shared_bytes: device.shared.get(),
            over_cap_bytes: device.over_cap.get(),
            utilization_percent: device.utilization_percent,
            compute_used_1s_permille: device.compute_used_1s.get(),
            compute_used_60s_permille: device.compute_used_60s.get(),
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
            shared: Bytes::new(wire.shared_bytes),
            over_cap: Bytes::new(wire.over_cap_bytes),
            utilization_percent: wire.utilization_percent,
            compute_used_1s: wire.compute_used_1s_permille.try_into()?,
            compute_used_60s: wire.compute_used_60s_permille.try_into()?,
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
