//! NVML's structures, laid out as its callers have them.
#![forbid(unsafe_code)]

/// A device, to callers an opaque pointer.
pub(crate) type Handle = usize;

/// `nvmlMemory_t`: used includes what the driver keeps.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryV1 {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlMemory_v2_t`; callers write the version first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryV2 {
    pub(crate) version: u32,
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

impl MemoryV2 {
    /// Version 2 in the top byte, the size below.
    pub(crate) const VERSION: u32 = 2 << 24 | size_of::<Self>() as u32;
}

/// `nvmlFieldValue_t`; callers write the field's number. The value is a union, of which whole numbers use the first
/// half.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldValue {
    pub(crate) field: u32,
    pub(crate) scope: u32,
    pub(crate) time: i64,
    pub(crate) latency: i64,
    pub(crate) kind: u32,
    pub(crate) status: u32,
    pub(crate) value: u64,
}

/// `nvmlBAR1Memory_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar1 {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlUtilization_t`, in percent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) gpu: u32,
    pub(crate) memory: u32,
}

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessV1 {
    pub(crate) pid: u32,
    pub(crate) used: u64,
}

/// `nvmlProcessInfo_v2_t`, which the third version of the calls uses, too.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessV2 {
    pub(crate) pid: u32,
    pub(crate) used: u64,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
}

/// `nvmlProcessUtilizationSample_t`: microseconds and percent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessSample {
    pub(crate) pid: u32,
    pub(crate) time: u64,
    pub(crate) multiprocessors: u32,
    pub(crate) memory: u32,
    pub(crate) encoder: u32,
    pub(crate) decoder: u32,
}

/// `nvmlProcessDetail_v1_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessDetail {
    pub(crate) pid: u32,
    pub(crate) used: u64,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
    pub(crate) protected: u64,
}

/// `nvmlProcessDetailList_v1_t`; callers write version and mode first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessDetails {
    pub(crate) version: u32,
    pub(crate) mode: u32,
    pub(crate) count: u32,
    pub(crate) rows: *mut ProcessDetail,
}

/// `nvmlProcessUtilizationInfo_v1_t`: microseconds and percent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessSampleV2 {
    pub(crate) time: u64,
    pub(crate) pid: u32,
    pub(crate) multiprocessors: u32,
    pub(crate) memory: u32,
    /// Encoder, decoder, JPEG decoder, optical flow.
    pub(crate) engines: [u32; 4],
}

/// `nvmlProcessesUtilizationInfo_v1_t`; callers write the version first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessSamples {
    pub(crate) version: u32,
    pub(crate) count: u32,
    pub(crate) after: u64,
    pub(crate) rows: *mut ProcessSampleV2,
}

/// Version of both lists: 1 in the top byte, the size below.
pub(crate) const LIST_VERSION: u32 = 1 << 24 | size_of::<ProcessDetails>() as u32;
const _: () = assert!(size_of::<ProcessDetails>() == size_of::<ProcessSamples>());

/// `nvmlAccountingStats_t`: percent, bytes, milliseconds, microseconds since 1970.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accounting {
    pub(crate) gpu: u32,
    pub(crate) memory: u32,
    pub(crate) most_used: u64,
    pub(crate) time: u64,
    pub(crate) start: u64,
    pub(crate) running: u32,
    pub(crate) reserved: [u32; 5],
}

/// Fields with which both versions of `nvmlPciInfo_t` begin.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PciHead {
    pub(crate) bus_id: [u8; 16],
    pub(crate) domain: u32,
    pub(crate) bus: u32,
    pub(crate) device: u32,
    pub(crate) device_id: u32,
    pub(crate) subsystem_id: u32,
}

/// `nvmlPciInfo_t` of the second version of the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PciV2 {
    pub(crate) head: PciHead,
    pub(crate) reserved: [u32; 4],
}

/// `nvmlPciInfo_t` of the third version of the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PciV3 {
    pub(crate) head: PciHead,
    pub(crate) bus_id: [u8; 32],
}

/// `nvmlEventData_t`, second version.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventV2 {
    pub(crate) device: Handle,
    pub(crate) kind: u64,
    pub(crate) data: u64,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
}

/// `nvmlGpuFabricInfo_t`: these GPUs are registered with no fabric manager.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fabric {
    pub(crate) cluster: [u8; 16],
    pub(crate) status: u32,
    pub(crate) clique: u32,
    /// `NVML_GPU_FABRIC_STATE_NOT_SUPPORTED` is 0.
    pub(crate) state: u8,
}

impl Fabric {
    /// Answer of a GPU that is in no fabric.
    pub(crate) const NONE: Self = Self { cluster: [0; 16], status: 0, clique: 0, state: 0 };
}

/// `nvmlGpuFabricInfo_v2_t`; callers write the version first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct FabricV {
    pub(crate) version: u32,
    pub(crate) fabric: Fabric,
    /// Bits of health: none is known.
    pub(crate) health: u32,
}

impl FabricV {
    /// Version 2 in the top byte, the size below.
    pub(crate) const VERSION: u32 = 2 << 24 | size_of::<Self>() as u32;
    /// Answer of a GPU that is in no fabric.
    pub(crate) const NONE: Self = Self { version: Self::VERSION, fabric: Fabric::NONE, health: 0 };
}

/// No instance: the whole GPU.
pub(crate) const NO_INSTANCE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_callers_have_them() {
        assert_eq!(MemoryV2::VERSION, 0x0200_0028);
        assert_eq!((size_of::<PciV2>(), size_of::<PciV3>()), (52, 68));
        assert_eq!((size_of::<ProcessV1>(), size_of::<ProcessV2>()), (16, 24));
        assert_eq!((size_of::<ProcessSample>(), size_of::<EventV2>()), (32, 32));
        assert_eq!(
            (LIST_VERSION, size_of::<ProcessDetail>(), size_of::<ProcessSampleV2>()),
            (0x0100_0018, 32, 40)
        );
        assert_eq!(size_of::<Accounting>(), 56);
        assert_eq!((size_of::<Fabric>(), FabricV::VERSION), (28, 0x0200_0024));
    }
}
