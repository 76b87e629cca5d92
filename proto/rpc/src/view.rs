//! Views of the node, its GPUs and its slices.

use tranche_domain::compute::Waits;
use tranche_domain::fault::Fault;
use tranche_domain::park::Park;
use tranche_domain::view;

use crate::mirror::mirror;
use crate::v1;

mirror! {
    view::NodeView = v1::NodeView {
        daemon_version, daemon_pid, runtime_dir, driver_version, cuda_version, simulated, privileged, compute_enforcement,
        gpus, slices, waiting, notes
    }

    view::GpuView = v1::GpuView {
        index, uuid, name, pci_bus_id, compute_capability, numa_node, context_measured_unix_ms, utilization_percent,
        memory_utilization_percent, temperature_celsius, power_milliwatts, power_limit_milliwatts, not_sliceable, cordon,
        foreign, faults;
        total: total_bytes, reserved: reserved_bytes, capacity: capacity_bytes, used: used_bytes,
        committed: committed_bytes, committed_compute: committed_compute_permille, context_reserve: context_reserve_bytes
    }

    Fault = v1::FaultView { xid, since_unix_ms, count }

    view::ForeignProcessView = v1::ForeignProcessView { pid, command; used: used_bytes }

    view::SliceView = v1::SliceView {
        name, share, devices, priority, gang, project, frozen, compute_state, waits_for, launches_passed, launches_degraded, tier,
        tier_reason, ephemeral, pod, owner_uid, created_unix_ms, processes, root_pids,
        idle_ms, parked, returns_in_ms, cannot_return, rotates, several_containers;
        mode: compute_mode, compute: compute_permille, limit: limit_permille, latency: latency_us, park_idle: park_idle_s;
        in waits: Waits { count: waits, late: late_waits, longest_us: longest_wait_us }
    }

    Park = v1::ParkView { stage, since_unix_ms, wakes; host: host_bytes }

    view::SliceDeviceView = v1::SliceDeviceView {
        gpu_index, gpu_uuid, utilization_percent;
        cap: cap_bytes, used: used_bytes, shared: shared_bytes, over_cap: over_cap_bytes,
        compute_used_1s: compute_used_1s_permille, compute_used_60s: compute_used_60s_permille
    }

    view::ProcessView = v1::ProcessView { pid, inner_pid, command; used: used_bytes }

    view::WaitingView = v1::WaitingView { name, share, reason, since_unix_ms, pid, uid, returns, holders }
}
