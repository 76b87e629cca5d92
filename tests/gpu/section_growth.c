/* Sections growth and libraries: by which steps pools grow, and what a library takes in each context. */
#include "probe.h"

#include <string.h>

static double mib_since(size_t free_before) { return ((double)free_before - (double)memory_free()) / MIB; }

static double reserved_mib(CUpool pool)
{
    uint64_t reserved = 0;
    MUST(cuMemPoolGetAttribute, pool, POOL_RESERVED, &reserved);
    return (double)reserved / MIB;
}

static void named(char *row, const char *pool, const char *what) { snprintf(row, 56, "%s_%s", pool, what); }

/* Allocates MiB by MiB and notes by how much the pool grows each time that it does. */
static void small_requests(CUpool pool, CUstream stream, const char *name)
{
    enum { PIECES = 160 };
    CUdeviceptr at[PIECES];
    char row[56];
    double steps[PIECES], held = reserved_mib(pool);
    size_t grown = 0;
    for (int i = 0; i < PIECES; i++) {
        MUST(cuMemAllocFromPoolAsync, &at[i], 1u << 20, pool, stream);
        double now = reserved_mib(pool);
        if (now != held)
            steps[grown++] = now - held;
        held = now;
    }
    struct spread step = spread_of(steps, grown);
    named(row, name, "grows_by");
    row_number(row, step.median, "MiB", "%.0f to %.0f, %zu times for %d requests of 1 MiB", step.least, step.most,
               grown, PIECES);
    for (int i = 0; i < PIECES; i++)
        if (i != PIECES / 2)
            MUST(cuMemFreeAsync, at[i], stream);
    MUST(cuStreamSynchronize, stream);
    named(row, name, "kept_by_one_left");
    row_number(row, reserved_mib(pool), "MiB", "1 MiB in the middle is still allocated");
    MUST(cuMemFreeAsync, at[PIECES / 2], stream);
    MUST(cuStreamSynchronize, stream);
    named(row, name, "kept_when_empty");
    row_number(row, reserved_mib(pool), "MiB", "after a synchronisation, with the default threshold");
}

static void one_request(CUpool pool, CUstream stream, const char *name, const char *what, size_t bytes)
{
    char row[56];
    CUdeviceptr at;
    size_t before = memory_free();
    named(row, name, what);
    MUST(cuMemPoolTrimTo, pool, 0);
    double held = reserved_mib(pool);
    MUST(cuMemAllocFromPoolAsync, &at, bytes, pool, stream);
    MUST(cuStreamSynchronize, stream);
    row_number(row, reserved_mib(pool) - held, "MiB", "for %zu bytes; the device gave %.0f MiB", bytes,
               mib_since(before));
    MUST(cuMemFreeAsync, at, stream);
    MUST(cuStreamSynchronize, stream);
}

static void one_pool(CUpool pool, CUstream stream, const char *name)
{
    one_request(pool, stream, name, "one_byte", 1);
    one_request(pool, stream, name, "2_MiB_and_a_byte", BLOCK + 1);
    one_request(pool, stream, name, "33_MiB", 33u << 20);
    one_request(pool, stream, name, "100_MiB", 100u << 20);
    small_requests(pool, stream, name);
}

void section_growth(void)
{
    CUpool pool;
    CUstream stream;
    struct bench b = bench_open();
    CUpoolProps props = {.type = 1, .location = {1, b.device}};
    MUST_HAVE(cuMemAllocFromPoolAsync);
    MUST_HAVE(cuMemPoolCreate);
    MUST(cuStreamCreate, &stream, STREAM_NON_BLOCKING);
    MUST(cuDeviceGetDefaultMemPool, &pool, b.device);
    one_pool(pool, stream, "default_pool");
    size_t before = memory_free();
    MUST(cuMemPoolCreate, &pool, &props);
    row_number("own_pool_made", mib_since(before), "MiB", "before anything is allocated from it");
    one_pool(pool, stream, "own_pool");
    MUST(cuMemPoolDestroy, pool);
    row_number("own_pool_destroyed", mib_since(before), "MiB", "still held");
}

static void moved(const char *row, size_t before, const char *note)
{
    row_number(row, mib_since(before), "MiB", "%s", note);
}

/* The library's kernel in the current context. */
static void first_use(CUlibrary library, const char *name)
{
    char row[56];
    CUkernel kernel;
    CUfunction touch;
    CUdeviceptr wide = 0;
    size_t bytes = 0, before = memory_free();
    MUST(cuLibraryGetKernel, &kernel, library, "touch");
    MUST(cuKernelGetFunction, &touch, kernel);
    named(row, name, "function");
    moved(row, before, "cuKernelGetFunction");
    launch_u64(touch, NULL, 4096);
    MUST(cuCtxSynchronize);
    named(row, name, "launched");
    moved(row, before, "and a launch");
    named(row, name, "variable");
    if (cu.cuLibraryGetGlobal && cu.cuLibraryGetGlobal(&wide, &bytes, library, "wide") == SUCCESS)
        row_number(row, (double)bytes / MIB, "MiB", "its own at %llx", wide);
}

void section_libraries(void)
{
    CUcontext second, third;
    CUlibrary library;
    struct bench b = bench_open();
    MUST_HAVE(cuLibraryLoadData);
    MUST_HAVE(cuLibraryGetKernel);
    MUST_HAVE(cuKernelGetFunction);
    size_t before = memory_free();
    MUST(cuCtxCreate_v2, &second, 0, b.device);
    double context = mib_since(before);
    row_number("context_without_library", context, "MiB", "a second one");
    before = memory_free();
    MUST(cuLibraryLoadData, &library, TOUCH_PTX, NULL, NULL, 0, NULL, NULL, 0);
    moved("library_loaded", before, "with two contexts; its variable is 64 MiB");
    MUST(cuCtxSetCurrent, b.context);
    first_use(library, "first_context");
    MUST(cuCtxSetCurrent, second);
    first_use(library, "second_context");
    before = memory_free();
    MUST(cuCtxCreate_v2, &third, 0, b.device);
    row_number("third_context_made_later", mib_since(before) - context, "MiB", "beyond a context without a library");
    first_use(library, "third_context");
    before = memory_free();
    MUST(cuCtxDestroy_v2, third);
    row_number("third_context_destroyed", mib_since(before) + context, "MiB", "negative: the library's part came back");
    before = memory_free();
    MUST(cuLibraryUnload, library);
    moved("library_unloaded", before, "negative: given back in the contexts that are left");
}
