/* Stream-ordered memory, pools, and memory nodes of graphs. */
#include "suite.h"

#include <stddef.h>

static CUstream open_stream(void)
{
    CUstream stream;
    WORKS(cuStreamCreate, &stream, STREAM_NON_BLOCKING);
    return stream;
}

static CUpool open_pool(void)
{
    CUpool pool;
    CUpoolProps props = {.type = 1, .location = {1, open_device()}};
    WORKS(cuMemPoolCreate, &pool, &props);
    return pool;
}

static uint64_t attribute(CUpool pool, int which)
{
    uint64_t value = 0;
    WORKS(cuMemPoolGetAttribute, pool, which, &value);
    return value;
}

static void async_memory_comes_back_at_a_synchronisation(void)
{
    CUdeviceptr at;
    open_context();
    CUstream stream = open_stream();
    size_t before = bytes_free();
    WORKS(cuMemAllocAsync, &at, 64 * MIB, stream);
    WORKS(cuStreamSynchronize, stream);
    EXPECT(before - bytes_free() >= 64 * MIB, "stream-ordered memory is not counted");
    WORKS(cuMemFreeAsync, at, stream);
    WORKS(cuStreamSynchronize, stream);
    comes_back(before);
}

static void async_refusals_have_the_plain_codes(void)
{
    CUdeviceptr at;
    open_context();
    CUstream stream = open_stream();
    ANSWERS(OUT_OF_MEMORY, cuMemAllocAsync, &at, FAR_TOO_MUCH, stream);
    size_t before = bytes_free();
    ANSWERS(OUT_OF_MEMORY, cuMemAllocAsync, &at, before + 64 * MIB, stream);
    seen("zero bytes: %d", cu.cuMemAllocAsync(&at, 0, stream));
    WORKS(cuMemAllocAsync, &at, 4096, stream);
    WORKS(cuMemFreeAsync, at, stream);
    WORKS(cuStreamSynchronize, stream);
}

static void async_requests_that_are_wrong_and_too_large_are_told_to_be_wrong(void)
{
    CUdeviceptr at = 0xabc;
    open_context();
    CUstream stream = open_stream();
    CUpool pool = open_pool();
    ANSWERS(INVALID_VALUE, cuMemAllocAsync, NULL, FAR_TOO_MUCH, stream);
    ANSWERS(INVALID_VALUE, cuMemAllocFromPoolAsync, NULL, FAR_TOO_MUCH, pool, stream);
    CUresult nowhere = cu.cuMemAllocFromPoolAsync(&at, FAR_TOO_MUCH, NULL, stream);
    EXPECT(nowhere != SUCCESS && nowhere != OUT_OF_MEMORY, "from no pool: %d", nowhere);
    ANSWERS(OUT_OF_MEMORY, cuMemAllocFromPoolAsync, &at, FAR_TOO_MUCH, pool, stream);
    EXPECT(at == 0xabc, "the out-parameter was written");
    seen("from no pool: %d", nowhere);
    WORKS(cuMemPoolDestroy, pool);
}

static void async_memory_may_be_freed_plainly(void)
{
    CUdeviceptr at;
    open_context();
    CUstream stream = open_stream();
    size_t before = bytes_free();
    WORKS(cuMemAllocAsync, &at, 64 * MIB, stream);
    WORKS(cuStreamSynchronize, stream);
    WORKS(cuMemFree_v2, at);
    WORKS(cuStreamSynchronize, stream);
    WORKS(cuMemAllocAsync, &at, 4096, stream);
    WORKS(cuMemFreeAsync, at, stream);
    WORKS(cuStreamSynchronize, stream);
    EXPECT(bytes_free() + 32 * MIB >= before, "%lld bytes are still held", (long long)(before - bytes_free()));
}

static void a_pool_counts_what_is_used(void)
{
    CUdeviceptr at;
    open_context();
    CUstream stream = open_stream();
    CUpool pool = open_pool();
    WORKS(cuMemAllocFromPoolAsync, &at, 8 * MIB, pool, stream);
    WORKS(cuStreamSynchronize, stream);
    EXPECT(attribute(pool, POOL_USED) >= 8 * MIB, "a pool with 8 MiB in use says %llu",
           (unsigned long long)attribute(pool, POOL_USED));
    EXPECT(attribute(pool, POOL_RESERVED) >= attribute(pool, POOL_USED), "a pool uses more than it reserves");
    WORKS(cuMemFreeAsync, at, stream);
    WORKS(cuStreamSynchronize, stream);
    EXPECT(attribute(pool, POOL_USED) == 0, "an empty pool says it is used");
    WORKS(cuMemPoolDestroy, pool);
}

static void a_pool_keeps_what_its_threshold_allows_until_trimmed(void)
{
    CUdeviceptr at;
    uint64_t threshold = UINT64_MAX;
    open_context();
    CUstream stream = open_stream();
    CUpool pool = open_pool();
    size_t before = bytes_free();
    WORKS(cuMemPoolSetAttribute, pool, POOL_RELEASE_THRESHOLD, &threshold);
    WORKS(cuMemAllocFromPoolAsync, &at, 64 * MIB, pool, stream);
    WORKS(cuMemFreeAsync, at, stream);
    WORKS(cuStreamSynchronize, stream);
    EXPECT(before - bytes_free() >= 64 * MIB, "the pool did not keep its memory");
    WORKS(cuMemPoolTrimTo, pool, 0);
    comes_back(before);
    WORKS(cuMemPoolDestroy, pool);
}

static void a_destroyed_pool_gives_its_memory_back(void)
{
    CUdeviceptr at;
    uint64_t threshold = UINT64_MAX;
    open_context();
    CUstream stream = open_stream();
    size_t before = bytes_free();
    CUpool pool = open_pool();
    WORKS(cuMemPoolSetAttribute, pool, POOL_RELEASE_THRESHOLD, &threshold);
    WORKS(cuMemAllocFromPoolAsync, &at, 64 * MIB, pool, stream);
    WORKS(cuMemFreeAsync, at, stream);
    WORKS(cuStreamSynchronize, stream);
    WORKS(cuMemPoolDestroy, pool);
    comes_back(before);
}

static void memory_nodes_of_a_graph_are_counted(void)
{
    CUgraph graph;
    CUexec exec;
    CUnode alloc, release;
    CUcontext context = open_context();
    CUallocNode params = {.pool = {.type = 1, .location = {1, open_device()}}, .bytes = 64 * MIB};
    WORKS(cuCtxSetCurrent, context);
    CUstream stream = open_stream();
    size_t before = bytes_free();
    WORKS(cuGraphCreate, &graph, 0);
    WORKS(cuGraphAddMemAllocNode, &alloc, graph, NULL, 0, &params);
    EXPECT(params.address != 0, "the node has no address");
    WORKS(cuGraphAddMemFreeNode, &release, graph, &alloc, 1, params.address);
    WORKS(cuGraphInstantiateWithFlags, &exec, graph, 0);
    WORKS(cuGraphLaunch, exec, stream);
    WORKS(cuStreamSynchronize, stream);
    WORKS(cuGraphExecDestroy, exec);
    WORKS(cuGraphDestroy, graph);
    WORKS(cuDeviceGraphMemTrim, open_device());
    comes_back(before);
}

const struct check POOL_CHECKS[] = {
    {"async_memory_comes_back_at_a_synchronisation", async_memory_comes_back_at_a_synchronisation},
    {"async_refusals_have_the_plain_codes", async_refusals_have_the_plain_codes},
    {"async_requests_that_are_wrong_and_too_large_are_told_to_be_wrong",
     async_requests_that_are_wrong_and_too_large_are_told_to_be_wrong},
    {"async_memory_may_be_freed_plainly", async_memory_may_be_freed_plainly},
    {"a_pool_counts_what_is_used", a_pool_counts_what_is_used},
    {"a_pool_keeps_what_its_threshold_allows_until_trimmed", a_pool_keeps_what_its_threshold_allows_until_trimmed},
    {"a_destroyed_pool_gives_its_memory_back", a_destroyed_pool_gives_its_memory_back},
    {"memory_nodes_of_a_graph_are_counted", memory_nodes_of_a_graph_are_counted},
    {NULL, NULL},
};
