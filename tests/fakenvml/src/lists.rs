//! Calls that return lists: of processes, of their utilisation, of GPUs nearby.
//!
//! # Safety
//! As in `exports`.
#![allow(non_snake_case, reason = "they are another library's names")]

use std::ffi::c_ulong;

use crate::abi::{
    FieldValue, Handle, LIST_VERSION, ProcessDetail, ProcessDetails, ProcessSample, ProcessSampleV2,
    ProcessSamples, ProcessV1, ProcessV2,
};
use crate::device::Device;
use crate::handle::handle;
use crate::library::{device, session};
use crate::link;
use crate::status::{Answer, Failure, Status};
use crate::wall;

/// `NVML_AFFINITY_SCOPE_SOCKET`, the last of two.
const AFFINITY_SOCKET: u32 = 1;

/// Exports calls that list something about a device.
macro_rules! lists {
    ($($name:ident: $type:ty = $list:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(of: Handle, count: *mut u32, out: *mut $type) -> Status {
            wall::status(|| {
                let list: Vec<$type> = device(of).map($list)?;
                // SAFETY: NVML's callers pass null or a number at `count`, and that many places at `out`, by this
                // module's contract.
                unsafe { wall::put_list(out, count, &list) }
            })
        }
    )*};
}

lists! {
    nvmlDeviceGetComputeRunningProcesses: ProcessV1 = |device| device.processes_v1();
    nvmlDeviceGetComputeRunningProcesses_v2: ProcessV2 = |device| device.processes();
    nvmlDeviceGetComputeRunningProcesses_v3: ProcessV2 = |device| device.processes();
    nvmlDeviceGetGraphicsRunningProcesses: ProcessV1 = |_| Vec::new();
    nvmlDeviceGetGraphicsRunningProcesses_v2: ProcessV2 = |_| Vec::new();
    nvmlDeviceGetGraphicsRunningProcesses_v3: ProcessV2 = |_| Vec::new();
    nvmlDeviceGetMPSComputeRunningProcesses: ProcessV1 = |_| Vec::new();
    nvmlDeviceGetMPSComputeRunningProcesses_v2: ProcessV2 = |_| Vec::new();
    nvmlDeviceGetMPSComputeRunningProcesses_v3: ProcessV2 = |_| Vec::new();
    nvmlDeviceGetAccountingPids: u32 = |device| device.processes().iter().map(|info| info.pid).collect();
}

/// The same lists, chosen by a mode: compute, graphics, MPS, all.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetRunningProcessDetailList(of: Handle, list: *mut ProcessDetails) -> Status {
    wall::status(|| {
        let device = device(of)?;
        // SAFETY: the caller wrote the version, the first field, by this module's contract.
        if unsafe { wall::get(list.cast::<u32>())? } != LIST_VERSION {
            return Err(Failure::ArgumentVersionMismatch);
        }
        // SAFETY: a caller that writes this version passes a pointer to this structure.
        let ProcessDetails { mode, rows, .. } = unsafe { wall::get(list)? };
        let found = match mode {
            0 | 3 => details(&device),
            1 | 2 => Vec::new(),
            _ => return Err(Failure::InvalidArgument),
        };
        // SAFETY: `list` was read above; its rows are null or `count` writable places, by this module's contract.
        unsafe { wall::put_list(rows, &raw mut (*list).count, &found) }
    })
}

fn details(device: &Device) -> Vec<ProcessDetail> {
    let detail = |ProcessV2 { pid, used, gpu_instance, compute_instance }| ProcessDetail {
        pid,
        used,
        gpu_instance,
        compute_instance,
        protected: 0,
    };
    device.processes().into_iter().map(detail).collect()
}

/// Each value has a status of its own.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(of: Handle, count: i32, values: *mut FieldValue) -> Status {
    wall::status(|| {
        let device = device(of)?;
        let count = usize::try_from(count).map_err(|_| Failure::InvalidArgument)?;
        wall::check(values)?;
        for place in (0..count).map(|at| values.wrapping_add(at)) {
            // SAFETY: the caller's array has `count` initialised values, by this module's contract.
            let asked = unsafe { wall::get(place)? };
            // SAFETY: the value was read above, and the caller's array is writable, by this module's contract.
            unsafe { wall::put(place, device.field(asked))? };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    of: Handle,
    out: *mut ProcessSample,
    count: *mut u32,
    after: u64,
) -> Status {
    wall::status(|| {
        wall::check(count)?;
        let samples = device(of)?.process_samples(after);
        // SAFETY: `count` is not null by the check above; `out` is null or has that many places, by this module's
        // contract.
        unsafe { put_samples(out, count, &samples) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetProcessesUtilizationInfo(of: Handle, list: *mut ProcessSamples) -> Status {
    wall::status(|| {
        let device = device(of)?;
        // SAFETY: the caller wrote the version, the first field, by this module's contract.
        if unsafe { wall::get(list.cast::<u32>())? } != LIST_VERSION {
            return Err(Failure::ArgumentVersionMismatch);
        }
        // SAFETY: a caller that writes this version passes a pointer to this structure.
        let ProcessSamples { after, rows, .. } = unsafe { wall::get(list)? };
        let wider = |ProcessSample { pid, time, multiprocessors, memory, encoder, decoder }| {
            ProcessSampleV2 { time, pid, multiprocessors, memory, engines: [encoder, decoder, 0, 0] }
        };
        let samples: Vec<_> = device.process_samples(after).into_iter().map(wider).collect();
        // SAFETY: `list` was read above; its rows are null or `count` writable places, by this module's contract.
        unsafe { put_samples(rows, &raw mut (*list).count, &samples) }
    })
}

/// Without an array, writes the number of samples and fails. No sample at all is "not found".
///
/// # Safety
/// As for [`wall::put_list`].
unsafe fn put_samples<T: Copy>(out: *mut T, count: *mut u32, samples: &[T]) -> Answer<()> {
    if out.is_null() && !samples.is_empty() {
        // SAFETY: this function's callers pass null or a writable number at `count`.
        unsafe { wall::put(count, samples.len() as u32)? };
        return Err(Failure::InsufficientSize);
    }
    // SAFETY: this function's callers guarantee for `count` and `out` what `put_list` requires.
    unsafe { wall::put_list(out, count, samples)? };
    if samples.is_empty() { Err(Failure::NotFound) } else { Ok(()) }
}

/// GPUs whose nearest common ancestor with this one is of the given level.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTopologyNearestGpus(
    of: Handle,
    level: u32,
    count: *mut u32,
    out: *mut Handle,
) -> Status {
    wall::status(|| {
        let near = link::nearest(&device(of)?, level);
        let near: Vec<Handle> = near.into_iter().map(handle).collect();
        // SAFETY: NVML's callers pass null or a number at `count`, and that many places at `out`, by this module's
        // contract.
        unsafe { put_near(out, count, &near) }
    })
}

/// GPUs of the half of the node that a processor belongs to: even ones are in the first.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetTopologyGpuSet(
    processor: u32,
    count: *mut u32,
    out: *mut Handle,
) -> Status {
    wall::status(|| {
        let half = link::half(&session()?.node, processor);
        let half: Vec<Handle> = half.into_iter().map(handle).collect();
        // SAFETY: NVML's callers pass null or a number at `count`, and that many places at `out`, by this module's
        // contract.
        unsafe { put_near(out, count, &half) }
    })
}

/// NUMA nodes as bits, in as many words as the caller has. Both scopes, node and socket, have the same result here.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryAffinity(
    of: Handle,
    words: u32,
    out: *mut c_ulong,
    scope: u32,
) -> Status {
    wall::status(|| {
        let socket = link::socket(&device(of)?);
        if words == 0 || scope > AFFINITY_SOCKET {
            return Err(Failure::InvalidArgument);
        }
        let mut near = vec![0; words as usize];
        near[0] = 1 << socket;
        // SAFETY: the caller's array has `words` writable places, by this module's contract.
        unsafe { wall::put_list(out, &mut words.clone(), &near) }
    })
}

/// Without room, writes the number of GPUs and succeeds.
///
/// # Safety
/// As for [`wall::put_list`].
unsafe fn put_near(out: *mut Handle, count: *mut u32, near: &[Handle]) -> Answer<()> {
    // SAFETY: this function's callers pass null or an initialised number at `count`.
    if unsafe { wall::get(count)? } == 0 {
        // SAFETY: `count` was read above, so it is not null, and callers pass a writable number.
        return unsafe { wall::put(count, near.len() as u32) };
    }
    // SAFETY: this function's callers guarantee for `count` and `out` what `put_list` requires.
    unsafe { wall::put_list(out, count, near) }
}
