//! `CUdevice_attribute` by number, answered from the model. Numbers are the driver's public ones.

use simgpu::GpuSpec;

/// Values that every device of compute capability 7 and later shares: `(attribute, value)`.
const COMMON: &[(i32, i32)] = &[
    (1, 1024), // threads per block
    (2, 1024), // block sides
    (3, 1024),
    (4, 64),
    (5, 0x7fff_ffff), // grid sides
    (6, 65535),
    (7, 65535),
    (8, 48 << 10),     // shared memory per block
    (9, 64 << 10),     // constant memory
    (10, 32),          // warp
    (11, 0x7fff_ffff), // pitch
    (12, 65536),       // registers per block
    (14, 512),         // texture alignment
    (15, 1),           // overlaps copies
    (17, 0),           // no time limit
    (18, 0),           // not integrated
    (19, 1),           // maps host memory
    (21, 131_072),     // textures
    (22, 131_072),
    (23, 65536),
    (24, 16384),
    (25, 16384),
    (26, 16384),
    (27, 32768),
    (28, 32768),
    (29, 2048),
    (30, 512),   // surface alignment
    (31, 1),     // concurrent kernels
    (32, 1),     // ECC
    (34, 0),     // PCI device number
    (35, 0),     // no TCC driver
    (41, 1),     // unified addressing
    (42, 32768), // layered textures
    (43, 2048),
    (44, 0),
    (45, 32768),
    (46, 32768),
    (47, 8192),
    (48, 8192),
    (49, 32768),
    (50, 0),  // PCI domain
    (51, 32), // texture pitch alignment
    (52, 32768),
    (53, 32768),
    (54, 2046),
    (55, 32768), // surfaces
    (56, 131_072),
    (57, 65536),
    (58, 16384),
    (59, 16384),
    (60, 16384),
    (61, 32768),
    (62, 2048),
    (63, 32768),
    (64, 32768),
    (65, 2048),
    (66, 32768),
    (67, 32768),
    (68, 2046),
    (69, 268_435_456), // linear textures
    (70, 131_072),
    (71, 65000),
    (72, 2_097_120),
    (73, 32768),
    (74, 32768),
    (77, 32768),
    (78, 1), // stream priorities
    (79, 1), // caches globals in L1
    (80, 1),
    (82, 65536), // registers per multiprocessor
    (83, 1),     // managed memory
    (84, 0),     // not a multi-GPU board
    (86, 0),     // no native host atomics
    (87, 2),     // single to double precision
    (88, 0),     // no pageable access
    (89, 1),     // concurrent managed access
    (90, 1),     // compute preemption
    (91, 1),     // host pointers of registered memory
    (92, 1),     // stream memory operations, in their first and second form
    (93, 1),
    (94, 1),
    (95, 1), // cooperative launch
    (96, 1),
    (98, 0),
    (99, 1), // host registration
    (100, 0),
    (101, 0),
    (102, 1), // virtual memory management
    (103, 1), // exported as a POSIX file descriptor
    (104, 0),
    (105, 0),
    (107, 0), // no compressible memory
    (109, 0), // no access-policy windows
    (110, 0), // no GPUDirect RDMA
    (112, 1), // sparse arrays
    (113, 0),
    (114, 0), // no timeline semaphores
    (115, 1), // memory pools
    (116, 0),
    (117, 0),
    (118, 0),
    (119, 1), // pools are shareable by descriptor
    (121, 1), // deferred arrays
    (122, 1), // stream memory operations, second form
    (123, 1),
    (124, 0), // no DMA-BUF
    (125, 0), // no IPC events
    (126, 0),
    (127, 0), // no tensor maps
    (128, 0),
    (129, 0),
    (130, 0), // no NUMA node of its own
    (133, 0),
    (134, -1),
    (135, 0),
];

/// Value of an attribute; `None` for an unknown one.
pub(crate) fn of(spec: &GpuSpec, attribute: i32) -> Option<i32> {
    let model = &spec.model;
    let compute = &model.compute;
    let [major, minor] = model.compute_capability;
    let ampere = i32::from(major >= 8);
    let value = match attribute {
        13 => model.clocks.max_mhz * 1000,
        16 => compute.sm_count,
        33 => u32::from(spec.pci_bus),
        36 => model.clocks.memory_mhz * 1000,
        37 => model.memory.bus_bits,
        38 => compute.l2_kib << 10,
        39 => compute.max_threads_per_sm,
        40 => compute.copy_engines,
        75 => major,
        76 => minor,
        81 => compute.shared_kib_per_sm << 10,
        85 => u32::from(spec.pci_bus),
        97 => compute.shared_kib_per_block_optin << 10,
        106 => compute.max_blocks_per_sm,
        108 => return Some(0),
        111 => return Some(ampere * 1024),
        // Clusters and multicast came with Hopper.
        120 | 132 => u32::from(major >= 9),
        _ => return COMMON.iter().find(|(known, _)| *known == attribute).map(|(_, value)| *value),
    };
    i32::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::of;
    use simgpu::NodeSpec;

    #[test]
    fn more_than_a_hundred_attributes_are_answered_and_no_other() {
        let node = NodeSpec::preset("v100x8").unwrap();
        let answered = (1..=200).filter(|attribute| of(&node.gpus[0], *attribute).is_some()).count();
        assert!(answered > 100, "{answered}");
        assert_eq!(of(&node.gpus[0], 75), Some(7));
        assert_eq!(of(&node.gpus[0], 0), None);
        assert_eq!(of(&node.gpus[0], 999), None);
    }
}
