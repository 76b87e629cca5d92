/* Sections pools, virtual and abilities. */
#include "probe.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double mib_since(size_t free_before) { return ((double)free_before - (double)memory_free()) / MIB; }

static void pool_state(CUpool pool, const char *name)
{
    uint64_t reserved = 0, used = 0;
    cu.cuMemPoolGetAttribute(pool, POOL_RESERVED, &reserved);
    cu.cuMemPoolGetAttribute(pool, POOL_USED, &used);
    row_number(name, (double)reserved / MIB, "MiB", "reserved; used %.2f MiB", (double)used / MIB);
}

static void pools(CUdevice device)
{
    CUpool pool;
    CUstream stream;
    CUdeviceptr at;
    uint64_t threshold = 0;
    if (!cu.cuDeviceGetDefaultMemPool || !cu.cuMemPoolGetAttribute || !cu.cuMemAllocAsync)
        return row_absent("cuDeviceGetDefaultMemPool");
    MUST(cuDeviceGetDefaultMemPool, &pool, device);
    MUST(cuStreamCreate, &stream, STREAM_NON_BLOCKING);
    MUST(cuMemPoolGetAttribute, pool, POOL_RELEASE_THRESHOLD, &threshold);
    row_number("release_threshold", (double)threshold, "bytes", "default pool");
    size_t before = memory_free();
    MUST(cuMemAllocAsync, &at, 4096, stream);
    MUST(cuStreamSynchronize, stream);
    row_number("async_alloc_4KiB_takes", mib_since(before), "MiB", "the pool's block");
    pool_state(pool, "pool_after_alloc");
    MUST(cuMemFreeAsync, at, stream);
    MUST(cuStreamSynchronize, stream);
    row_number("held_after_free_and_sync", mib_since(before), "MiB", "0: the threshold is kept at a synchronisation");
    threshold = UINT64_MAX;
    MUST(cuMemPoolSetAttribute, pool, POOL_RELEASE_THRESHOLD, &threshold);
    MUST(cuMemAllocAsync, &at, 100u << 20, stream);
    MUST(cuMemFreeAsync, at, stream);
    MUST(cuStreamSynchronize, stream);
    row_number("held_with_no_threshold", mib_since(before), "MiB", "after 100 MiB allocated and freed");
    MUST(cuMemPoolTrimTo, pool, 0);
    row_number("held_after_trim", mib_since(before), "MiB", "cuMemPoolTrimTo(0)");
}

/* 64 MiB only, far below what is free: too much managed memory can hang a GPU. */
static void managed(struct bench b)
{
    CUdeviceptr at;
    int able = 0;
    MUST(cuDeviceGetAttribute, &able, ATTR_MANAGED, b.device);
    if (!cu.cuMemAllocManaged || !able || memory_free() < (size_t)1 << 30)
        return row_text("managed", "not measured", "unsupported here, or too little memory free");
    size_t before = memory_free();
    MUST(cuMemAllocManaged, &at, 64u << 20, MANAGED_GLOBAL);
    row_number("managed_64_MiB_at_once", mib_since(before), "MiB", "before anything touches it");
    MUST(cuMemsetD8_v2, at, 1, 64u << 20);
    MUST(cuCtxSynchronize);
    row_number("managed_64_MiB_touched", mib_since(before), "MiB", "after the device wrote it");
    MUST(cuMemFree_v2, at);
    row_number("managed_freed", mib_since(before), "MiB", "still held");
}

void section_pools(void)
{
    struct bench b = bench_open();
    pools(b.device);
    managed(b);
}

static void virtual_memory(CUdevice device)
{
    CUallocationProp prop = {.type = 1, .location = {1, device}};
    CUaccess access = {{1, device}, 3};
    CUmemHandle handle;
    CUdeviceptr at;
    size_t least = 0, recommended = 0;
    if (!cu.cuMemCreate || !cu.cuMemGetAllocationGranularity)
        return row_absent("cuMemCreate");
    MUST(cuMemGetAllocationGranularity, &least, &prop, 0);
    MUST(cuMemGetAllocationGranularity, &recommended, &prop, 1);
    row_number("granularity_minimum", (double)least, "bytes", "recommended %zu", recommended);
    CUresult odd = cu.cuMemCreate(&handle, least + 1, &prop, 0);
    row_number("create_of_an_odd_size", odd, "", "%s", driver_error(odd));
    size_t before = memory_free();
    MUST(cuMemCreate, &handle, 32 * least, &prop, 0);
    row_number("create_takes", mib_since(before), "MiB", "for %.0f MiB, before it is mapped", 32.0 * (double)least / MIB);
    MUST(cuMemAddressReserve, &at, 32 * least, 0, 0, 0);
    MUST(cuMemMap, at, 32 * least, 0, handle, 0);
    MUST(cuMemSetAccess, at, 32 * least, &access, 1);
    row_number("mapping_takes", mib_since(before), "MiB", "created, mapped and accessible");
    MUST(cuMemRelease, handle);
    row_number("held_released_while_mapped", mib_since(before), "MiB", "the mapping keeps it");
    MUST(cuMemUnmap, at, 32 * least);
    row_number("held_after_unmap", mib_since(before), "MiB", " ");
    MUST(cuMemAddressFree, at, 32 * least);
    int fd = 0;
    MUST(cuDeviceGetAttribute, &fd, ATTR_FD_HANDLES, device);
    row_number("fd_handles", fd, "", "1: allocations can be exported as file descriptors");
}

static void arrays(void)
{
    CUarrayShape small = {16, 16, 0x20, 1}, large = {4096, 1024, 0x20, 4}; /* 0x20: float */
    CUarray array;
    if (!cu.cuArrayCreate_v2)
        return row_absent("cuArrayCreate_v2");
    size_t before = memory_free();
    MUST(cuArrayCreate_v2, &array, &small);
    row_number("array_1_KiB_takes", mib_since(before), "MiB", "16 x 16 floats");
    MUST(cuArrayDestroy, array);
    MUST(cuArrayCreate_v2, &array, &large);
    row_number("array_64_MiB_takes", mib_since(before), "MiB", "4096 x 1024 x 4 floats");
    MUST(cuArrayDestroy, array);
    row_number("arrays_destroyed", mib_since(before), "MiB", "still held");
}

static void graph_memory(CUdevice device)
{
    CUallocNode params = {.pool = {.type = 1, .location = {1, device}}, .bytes = 64u << 20};
    CUgraph graph;
    CUexec exec;
    CUnode alloc, release;
    if (!cu.cuGraphAddMemAllocNode || !cu.cuGraphInstantiateWithFlags)
        return row_absent("cuGraphAddMemAllocNode");
    size_t before = memory_free();
    MUST(cuGraphCreate, &graph, 0);
    MUST(cuGraphAddMemAllocNode, &alloc, graph, NULL, 0, &params);
    MUST(cuGraphAddMemFreeNode, &release, graph, &alloc, 1, params.address);
    row_number("graph_64_MiB_node_added", mib_since(before), "MiB", " ");
    MUST(cuGraphInstantiateWithFlags, &exec, graph, 0);
    row_number("graph_instantiated", mib_since(before), "MiB", " ");
    MUST(cuGraphLaunch, exec, NULL);
    MUST(cuCtxSynchronize);
    row_number("graph_launched", mib_since(before), "MiB", " ");
    MUST(cuGraphExecDestroy, exec);
    MUST(cuGraphDestroy, graph);
    row_number("graph_destroyed", mib_since(before), "MiB", "still held by the graph pool");
    if (cu.cuDeviceGraphMemTrim) {
        MUST(cuDeviceGraphMemTrim, device);
        row_number("graph_trimmed", mib_since(before), "MiB", "after cuDeviceGraphMemTrim");
    }
}

void section_virtual(void)
{
    struct bench b = bench_open();
    virtual_memory(b.device);
    arrays();
    graph_memory(b.device);
}

static const char *there(void *handle, const char *name) { return dlsym(handle, name) ? "there" : "absent"; }

static void modes(struct bench b)
{
    static const char *const COMPUTE[] = {"default", "exclusive thread", "prohibited", "exclusive process"};
    int mode = 0;
    MUST(cuDeviceGetAttribute, &mode, ATTR_COMPUTE_MODE, b.device);
    row_text("compute_mode", mode >= 0 && mode < 4 ? COMPUTE[mode] : "unknown", "attribute says %d", mode);
    if (b.witness && nv.nvmlDeviceGetPersistenceMode && nv.nvmlDeviceGetPersistenceMode(b.witness, &mode) == NVML_OK)
        row_number("persistence_mode", mode, "", " ");
    if (b.witness && nv.nvmlDeviceGetVirtualizationMode &&
        nv.nvmlDeviceGetVirtualizationMode(b.witness, &mode) == NVML_OK)
        row_number("virtualisation_mode", mode, "", "0 none, 1 passthrough, 2 vGPU");
    unsigned now = 0, next = 0;
    if (b.witness && nv.nvmlDeviceGetMigMode) {
        NvmlResult result = nv.nvmlDeviceGetMigMode(b.witness, &now, &next);
        row_number("mig_mode", result == NVML_OK ? (double)now : -1, "", "NVML's code %d, pending %u", result, next);
    }
    if (nv.handle)
        row_text("nvmlDeviceSetComputeMode", there(nv.handle, "nvmlDeviceSetComputeMode"), "symbol only, never called");
}

static void mps(CUdevice device)
{
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
    int enabled = -1, affinity = -1;
    CUresult result = cu.cuDeviceGetAttribute(&enabled, ATTR_MPS, device);
    row_number("mps_attribute", result == SUCCESS ? enabled : -1, "", "cuDeviceGetAttribute answered %d", result);
    row_text("mps_pipe", access(pipe ? pipe : "/tmp/nvidia-mps", F_OK) == 0 ? "there" : "absent", "%s",
             pipe ? pipe : "/tmp/nvidia-mps");
    if (cu.cuDeviceGetExecAffinitySupport &&
        cu.cuDeviceGetExecAffinitySupport(&affinity, 0, device) == SUCCESS)
        row_number("sm_affinity_support", affinity, "", "contexts with a share of the SMs (MPS)");
}

void section_abilities(void)
{
    static const char *const SYMBOLS[] = {
        "cuCheckpointProcessGetState", "cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint",
        "cuCheckpointProcessRestore", "cuCheckpointProcessUnlock", "cuCheckpointProcessGetRestoreThreadId",
        "cuGreenCtxCreate", "cuDeviceGetDevResource", "cuDevSmResourceSplitByCount", "cuCtxCreate_v3",
        "cuCtxCreate_v4", "cuLaunchKernelEx", "cuMulticastCreate", "cuGraphAddNode_v2", "cuGraphConditionalHandleCreate",
        "cuMemBatchDecompressAsync", "cuGetProcAddress_v2", "cuGetExportTable", "cuCoredumpGetAttribute",
    };
    struct bench b = bench_open();
    modes(b);
    mps(b.device);
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++)
        row_text(SYMBOLS[i], there(cu.handle, SYMBOLS[i]), "symbol only, never called");
    int state = -1, ops = 0;
    if (cu.cuCheckpointProcessGetState) {
        CUresult result = cu.cuCheckpointProcessGetState((int)getpid(), &state);
        row_number("checkpoint_state_of_self", state, "", "answered %d; 0 is running", result);
    }
    if (cu.cuDeviceGetAttribute(&ops, ATTR_MEM_OPS, b.device) == SUCCESS)
        row_number("stream_memory_operations", ops, "", "v2; 1: write-value and wait-value work");
}
