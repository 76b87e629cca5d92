/* Sections versions, memory, granularity, packing and capacity. */
#include "probe.h"

#include <stdlib.h>
#include <string.h>

void section_versions(void)
{
    char text[96] = "";
    int number = 0, major = 0, minor = 0;
    struct bench b = bench_open();
    MUST(cuDeviceGetName, text, sizeof text, b.device);
    row_text("device", text, "ordinal %d", plan.ordinal);
    MUST(cuDriverGetVersion, &number);
    row_number("cuda_driver_version", number, "", "cuDriverGetVersion");
    MUST(cuDeviceGetAttribute, &major, ATTR_CC_MAJOR, b.device);
    MUST(cuDeviceGetAttribute, &minor, ATTR_CC_MINOR, b.device);
    row_number("compute_capability", major * 10 + minor, "", "major x 10 + minor");
    MUST(cuDeviceGetAttribute, &number, ATTR_SM_COUNT, b.device);
    row_number("sm_count", number, "", " ");
    MUST(cuDeviceGetAttribute, &number, ATTR_PREEMPTION, b.device);
    row_number("compute_preemption", number, "", "1: the device can preempt a running kernel");
    if (!b.witness) {
        row_text("nvml", "absent", "every NVML row below is missing");
        return;
    }
    nv.nvmlSystemGetDriverVersion(text, sizeof text);
    row_text("driver_version", text, "NVML");
    nv.nvmlSystemGetNVMLVersion(text, sizeof text);
    row_text("nvml_version", text, plan.simulated ? "simulated" : "real");
}

void section_memory(void)
{
    struct bench b = bench_open();
    size_t total = 0, left = 0, all = 0;
    MUST(cuDeviceTotalMem_v2, &total, b.device);
    MUST(cuMemGetInfo_v2, &left, &all);
    row_number("cuDeviceTotalMem", (double)total / MIB, "MiB", "%zu bytes", total);
    row_number("cuMemGetInfo_total", (double)all / MIB, "MiB", "%zu bytes", all);
    row_number("cuMemGetInfo_free", (double)left / MIB, "MiB", "with one context");
    NvmlMemory v1 = {0};
    if (!b.witness || nv.nvmlDeviceGetMemoryInfo(b.witness, &v1) != NVML_OK)
        return row_absent("nvmlDeviceGetMemoryInfo");
    row_number("nvml_v1_total", (double)v1.total / MIB, "MiB", " ");
    row_number("nvml_v1_used", (double)v1.used / MIB, "MiB", " ");
    row_number("nvml_v1_free", (double)v1.free / MIB, "MiB", "total - used - free = %lld bytes",
               (long long)(v1.total - v1.used - v1.free));
    row_number("nvml_free_minus_driver_free", ((double)v1.free - (double)left) / MIB, "MiB", " ");
    NvmlMemoryV2 v2 = {.version = NVML_MEMORY_V2};
    if (!nv.nvmlDeviceGetMemoryInfo_v2)
        return row_absent("nvmlDeviceGetMemoryInfo_v2");
    NvmlResult result = nv.nvmlDeviceGetMemoryInfo_v2(b.witness, &v2);
    if (result != NVML_OK)
        return row_number("nvml_v2_refused", result, "", "NVML's code");
    row_number("nvml_v2_total", (double)v2.total / MIB, "MiB", " ");
    row_number("nvml_v2_reserved", (double)v2.reserved / MIB, "MiB", " ");
    row_number("nvml_v2_used", (double)v2.used / MIB, "MiB", " ");
    row_number("nvml_v2_free", (double)v2.free / MIB, "MiB", " ");
    row_number("v2_total_less_reserved_less_driver",
               ((double)v2.total - (double)v2.reserved - (double)total) / MIB, "MiB",
               "0: cuDeviceTotalMem is NVML total less reserved");
}

void section_granularity(void)
{
    static const size_t SIZES[] = {1,         512,           4096,      65536,     524288,   1048575,
                                   1048576,   1048577,       2097151,   2097152,   2097153,  3145728,
                                   4194304,   4194305,       16777216,  67108864};
    struct bench b = bench_open();
    /* One kept allocation each time, so that a size is seen both on fresh and on used ground. */
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        CUdeviceptr first, second;
        char name[40];
        uint64_t witness0 = nvml_used(b.witness);
        size_t free0 = memory_free();
        MUST(cuMemAlloc_v2, &first, SIZES[i]);
        size_t free1 = memory_free();
        uint64_t witness1 = nvml_used(b.witness);
        MUST(cuMemAlloc_v2, &second, SIZES[i]);
        size_t free2 = memory_free();
        MUST(cuMemFree_v2, first);
        MUST(cuMemFree_v2, second);
        size_t free3 = memory_free();
        snprintf(name, sizeof name, "alloc_%zu", SIZES[i]);
        row_number(name, (double)(free0 - free1), "bytes",
                   "NVML %lld, a second one %zu, not returned %zu; address mod 2 MiB %llu",
                   (long long)(witness1 - witness0), free1 - free2, free0 - free3, first % BLOCK);
    }
}

/* How many 2 MiB blocks `count` allocations of `size` touch; frees them unless `keep`. */
static size_t blocks_of(size_t size, size_t count, CUdeviceptr *keep)
{
    size_t blocks = 0;
    for (size_t i = 0; i < count; i++) {
        MUST(cuMemAlloc_v2, &keep[i], size);
        bool fresh = true;
        for (size_t j = 0; j < i && fresh; j++)
            fresh = keep[j] / BLOCK != keep[i] / BLOCK;
        blocks += fresh;
    }
    return blocks;
}

static void free_all(CUdeviceptr *kept, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (kept[i])
            MUST(cuMemFree_v2, kept[i]);
}

/* The smallest size of which eight allocations do not share blocks. */
static void find_packing_threshold(void)
{
    CUdeviceptr kept[8];
    size_t packed = 512, alone = 4u << 20;
    while (alone - packed > 512) {
        size_t middle = (packed + alone) / 2 / 512 * 512, blocks = blocks_of(middle, 8, kept);
        free_all(kept, 8);
        *(blocks < 8 ? &packed : &alone) = middle;
    }
    row_number("packing_ends_at", (double)alone, "bytes", "from this size on each allocation has its own block");
}

/* 4 KiB allocations over eight blocks; then all but one a block are freed; then all. */
static void return_of_blocks(NvmlDevice witness)
{
    enum { COUNT = 4096 };
    static CUdeviceptr kept[COUNT], last[COUNT];
    size_t before = memory_free(), keepers = 0;
    uint64_t seen = nvml_used(witness);
    size_t blocks = blocks_of(4096, COUNT, kept);
    row_number("blocks_for_4096_x_4KiB", (double)blocks, "blocks", "driver says %zu bytes, NVML %lld",
               before - memory_free(), (long long)(nvml_used(witness) - seen));
    for (size_t i = 0; i < COUNT; i++) {
        bool seen_block = false;
        for (size_t j = 0; j < keepers && !seen_block; j++)
            seen_block = last[j] / BLOCK == kept[i] / BLOCK;
        if (!seen_block) {
            last[keepers++] = kept[i];
            kept[i] = 0;
        }
    }
    free_all(kept, COUNT);
    row_number("held_with_one_left_a_block", (double)(before - memory_free()) / MIB, "MiB",
               "%zu allocations left", keepers);
    free_all(last, keepers);
    row_number("held_when_blocks_are_empty", (double)(before - memory_free()) / MIB, "MiB",
               "0: an emptied block goes back; NVML %lld bytes", (long long)(nvml_used(witness) - seen));
}

void section_packing(void)
{
    CUdeviceptr two[2];
    struct bench b = bench_open();
    static const size_t SIZES[] = {1, 512, 513, 4096, 65536};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        char name[40];
        MUST(cuMemAlloc_v2, &two[0], SIZES[i]);
        MUST(cuMemAlloc_v2, &two[1], SIZES[i]);
        snprintf(name, sizeof name, "spacing_of_%zu", SIZES[i]);
        row_number(name, (double)(two[1] > two[0] ? two[1] - two[0] : two[0] - two[1]), "bytes",
                   "between two allocations in a row");
        free_all(two, 2);
    }
    find_packing_threshold();
    return_of_blocks(b.witness);
}

void section_capacity(void)
{
    static const size_t STEPS[] = {1u << 30, 64u << 20, 2u << 20, 4096};
    enum { ROOM = 8192 };
    static CUdeviceptr kept[ROOM];
    struct bench b = bench_open();
    size_t count = 0, sum = 0, total = 0, promised = memory_free();
    NvmlProcess others[8];
    if (b.witness && nvml_processes(b.witness, others, 8) > 1)
        return row_text("capacity", "not measured", "somebody else uses this GPU: filling it would hurt them");
    MUST(cuDeviceTotalMem_v2, &total, b.device);
    CUresult end = SUCCESS;
    for (size_t s = 0; s < 4; s++, end = SUCCESS)
        while (count < ROOM && (end = cu.cuMemAlloc_v2(&kept[count], STEPS[s])) == SUCCESS) {
            sum += STEPS[s];
            count++;
        }
    row_number("promised", (double)promised / MIB, "MiB", "cuMemGetInfo free before");
    row_number("allocated", (double)sum / MIB, "MiB", "in %zu allocations down to 4 KiB", count);
    row_number("left_when_full", (double)memory_free() / MIB, "MiB", "cuMemGetInfo");
    row_number("usable_permille", 1000.0 * (double)sum / (double)total, "permille", "of cuDeviceTotalMem");
    CUdeviceptr one;
    end = cu.cuMemAlloc_v2(&one, 64u << 20);
    row_number("one_more_64_MiB", end, "", "%s", driver_error(end));
    uint64_t from = now_ns();
    free_all(kept, count);
    row_number("free_all", (double)(now_ns() - from) / 1e6, "ms", "back: %.0f MiB", (double)memory_free() / MIB);
}
