/* What no correct program does: freeing twice, freeing what is not one's own, sizes that cannot be.
 * The driver may answer as it likes; it must answer the same in a slice, and nothing may be lost. */
#include "suite.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static CUstream open_stream(void)
{
    CUstream stream;
    WORKS(cuStreamCreate, &stream, STREAM_NON_BLOCKING);
    return stream;
}

/* Everything that was given back in a stream is back. */
static void settles(size_t before)
{
    WORKS(cuCtxSynchronize);
    comes_back(before);
}

static void refused(const char *what, CUresult answer)
{
    EXPECT(answer != SUCCESS, "%s succeeded", what);
    seen("%s: %d", what, answer);
}

/* ---- twice ---- */

static void plain_memory_is_freed_once_in_whatever_way(void)
{
    CUdeviceptr at;
    open_context();
    CUstream stream = open_stream();
    size_t before = bytes_free();
    for (int first_in_stream = 0; first_in_stream < 2; first_in_stream++) {
        WORKS(cuMemAlloc_v2, &at, 64 * MIB);
        if (first_in_stream) WORKS(cuMemFreeAsync, at, stream);
        else WORKS(cuMemFree_v2, at);
        refused("again in a stream", cu.cuMemFreeAsync(at, stream));
        refused("again plainly", cu.cuMemFree_v2(at));
    }
    settles(before);
}

static void stream_ordered_memory_is_freed_once_in_whatever_way(void)
{
    CUdeviceptr at;
    open_context();
    CUstream stream = open_stream();
    size_t before = bytes_free();
    for (int first_in_stream = 0; first_in_stream < 2; first_in_stream++) {
        WORKS(cuMemAllocAsync, &at, 64 * MIB, stream);
        if (first_in_stream) WORKS(cuMemFreeAsync, at, stream);
        else WORKS(cuMemFree_v2, at);
        refused("again in a stream", cu.cuMemFreeAsync(at, stream));
        refused("again plainly", cu.cuMemFree_v2(at));
    }
    settles(before);
}

static void managed_memory_is_freed_once(void)
{
    CUdeviceptr at;
    open_context();
    NEEDS(cuMemAllocManaged);
    size_t before = bytes_free();
    WORKS(cuMemAllocManaged, &at, 16 * MIB, MANAGED_GLOBAL);
    WORKS(cuMemFree_v2, at);
    refused("again", cu.cuMemFree_v2(at));
    settles(before);
}

static void pitched_memory_is_freed_once(void)
{
    CUdeviceptr at;
    size_t pitch;
    open_context();
    size_t before = bytes_free();
    WORKS(cuMemAllocPitch_v2, &at, &pitch, 1000, 5000, 4);
    WORKS(cuMemFree_v2, at);
    refused("again", cu.cuMemFree_v2(at));
    settles(before);
}

static void a_mapping_ends_once(void)
{
    CUdeviceptr at;
    CUmemHandle handle;
    size_t bytes = 0;
    CUallocationProp prop = {.type = 1, .location = {1, open_device()}};
    open_context();
    WORKS(cuMemGetAllocationGranularity, &bytes, &prop, 0);
    size_t before = bytes_free();
    WORKS(cuMemAddressReserve, &at, bytes, 0, 0, 0);
    WORKS(cuMemCreate, &handle, bytes, &prop, 0);
    WORKS(cuMemMap, at, bytes, 0, handle, 0);
    refused("mapping there again", cu.cuMemMap(at, bytes, 0, handle, 0));
    WORKS(cuMemRelease, handle);
    refused("freeing a mapping", cu.cuMemFree_v2(at));
    WORKS(cuMemUnmap, at, bytes);
    refused("unmapping again", cu.cuMemUnmap(at, bytes));
    WORKS(cuMemAddressFree, at, bytes);
    settles(before);
}

/* ---- what is not one's own ---- */

static void what_was_never_allocated_cannot_be_freed(void)
{
    static const CUdeviceptr never[] = {0x10, 0x200000, 1ull << 32, (1ull << 47) - 512, 1ull << 60, ~0ull, ~511ull};
    CUdeviceptr at, inside = 0;
    char here;
    open_context();
    CUstream stream = open_stream();
    WORKS(cuMemAlloc_v2, &at, 4 * MIB);
    size_t before = bytes_free();
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        refused("plainly", cu.cuMemFree_v2(never[i]));
        refused("in a stream", cu.cuMemFreeAsync(never[i], stream));
    }
    refused("host memory", cu.cuMemFree_v2((CUdeviceptr)(uintptr_t)&here));
    for (inside = at + 512; inside < at + 4 * MIB; inside += MIB) {
        refused("the inside, plainly", cu.cuMemFree_v2(inside));
        refused("the inside, in a stream", cu.cuMemFreeAsync(inside, stream));
    }
    seen("null in a stream: %d", cu.cuMemFreeAsync(0, stream));
    settles(before);
    WORKS(cuMemFree_v2, at);
}

static void try_to_free(int from, int to)
{
    CUdeviceptr theirs;
    CUresult answers[2] = {-1, -1};
    if (read(from, &theirs, sizeof theirs) != sizeof theirs) _exit(1);
    open_context();
    answers[0] = cu.cuMemFree_v2(theirs + 64 * MIB); /* far from anything of our own */
    answers[1] = cu.cuMemFreeAsync(theirs + 64 * MIB, NULL);
    _exit(write(to, answers, sizeof answers) != sizeof answers);
}

static void memory_of_another_process_cannot_be_freed(void)
{
    CUdeviceptr at;
    CUresult answers[2];
    int there[2], back[2], status = 0;
    EXPECT(pipe(there) == 0 && pipe(back) == 0, "no pipe");
    pid_t child = fork(); /* before this process opens the driver */
    if (child == 0) try_to_free(there[0], back[1]);
    open_context();
    WORKS(cuMemAlloc_v2, &at, 256 * MIB);
    EXPECT(write(there[1], &at, sizeof at) == sizeof at, "the other process is gone");
    EXPECT(read(back[0], answers, sizeof answers) == sizeof answers, "the other process did not answer");
    waitpid(child, &status, 0);
    EXPECT(status == 0, "the other process ended with %d", status);
    refused("plainly", answers[0]);
    refused("in a stream", answers[1]);
    WORKS(cuMemsetD8_v2, at, 7, 256 * MIB);
    WORKS(cuMemFree_v2, at);
}

/* ---- other threads and streams ---- */

struct pieces { CUcontext context; CUdeviceptr streamed, plain; CUarray array; CUmemHandle handle; CUresult results[4]; };

static void *free_there(void *argument)
{
    struct pieces *pieces = argument;
    cu.cuCtxSetCurrent(pieces->context);
    pieces->results[0] = cu.cuMemFreeAsync(pieces->streamed, NULL);
    pieces->results[1] = cu.cuMemFreeAsync(pieces->plain, NULL);
    pieces->results[2] = cu.cuArrayDestroy(pieces->array);
    pieces->results[3] = cu.cuMemRelease(pieces->handle);
    return NULL;
}

static void all_kinds_can_be_freed_by_another_thread_in_another_stream(void)
{
    struct pieces pieces = {.context = open_context()};
    CUallocationProp prop = {.type = 1, .location = {1, open_device()}};
    CUarrayShape shape = {4096, 1024, 0x20, 4};
    pthread_t thread;
    CUstream stream = open_stream();
    size_t before = bytes_free();
    WORKS(cuMemAllocAsync, &pieces.streamed, 64 * MIB, stream);
    WORKS(cuMemAlloc_v2, &pieces.plain, 64 * MIB);
    WORKS(cuArrayCreate_v2, &pieces.array, &shape);
    WORKS(cuMemCreate, &pieces.handle, 64 * MIB, &prop, 0);
    WORKS(cuStreamSynchronize, stream);
    pthread_create(&thread, NULL, free_there, &pieces);
    pthread_join(thread, NULL);
    for (int i = 0; i < 4; i++)
        EXPECT(pieces.results[i] == SUCCESS, "kind %d answered %d", i, pieces.results[i]);
    settles(before);
}

static void memory_freed_behind_a_kernel_is_back_when_that_is_over(void)
{
    CUdeviceptr at;
    CUevent event;
    open_context();
    CUfunction kernel = open_spin();
    CUstream stream = open_stream();
    WORKS(cuEventCreate, &event, EVENT_NO_TIMING);
    size_t before = bytes_free();
    WORKS(cuMemAlloc_v2, &at, 64 * MIB);
    spin(kernel, stream, 50000000);
    WORKS(cuMemFreeAsync, at, stream);
    WORKS(cuEventRecord, event, stream);
    WORKS(cuEventSynchronize, event);
    settles(before);
}

/* ---- sizes ---- */

#define ENDLESS ((size_t)-1)
static const size_t SIZES[] = {0, ENDLESS, ENDLESS - 511, ENDLESS - 4095, ENDLESS - (2 << 20) + 1, (size_t)1 << 63,
                               (size_t)1 << 44, ((size_t)1 << 44) - 1};
enum { ALL_SIZES = sizeof SIZES / sizeof *SIZES };

static void sizes_that_cannot_be_are_refused_by_plain_calls(void)
{
    CUdeviceptr at;
    open_context();
    size_t before = bytes_free();
    for (int i = 0; i < ALL_SIZES; i++) {
        refused("plain", cu.cuMemAlloc_v2(&at, SIZES[i]));
        if (cu.cuMemAllocManaged) refused("managed", cu.cuMemAllocManaged(&at, SIZES[i], MANAGED_GLOBAL));
    }
    settles(before);
}

static void sizes_that_cannot_be_are_refused_by_pools(void)
{
    CUdeviceptr at;
    CUpool pool;
    CUpoolProps props = {.type = 1, .location = {1, open_device()}};
    open_context();
    CUstream stream = open_stream();
    WORKS(cuMemPoolCreate, &pool, &props);
    size_t before = bytes_free();
    for (int i = 1; i < ALL_SIZES; i++) {
        refused("default pool", cu.cuMemAllocAsync(&at, SIZES[i], stream));
        refused("a pool", cu.cuMemAllocFromPoolAsync(&at, SIZES[i], pool, stream));
    }
    seen("nothing: %d and %d", cu.cuMemAllocAsync(&at, 0, stream), cu.cuMemAllocFromPoolAsync(&at, 0, pool, stream));
    WORKS(cuMemPoolDestroy, pool);
    settles(before);
}

static void sizes_that_cannot_be_are_refused_as_physical_memory(void)
{
    CUmemHandle handle;
    CUallocationProp prop = {.type = 1, .location = {1, open_device()}};
    open_context();
    NEEDS(cuMemCreate);
    size_t before = bytes_free();
    for (int i = 0; i < ALL_SIZES; i++)
        if (SIZES[i] % (2 * MIB) == 0) /* others are invalid besides */
            refused("physical", cu.cuMemCreate(&handle, SIZES[i], &prop, 0));
    settles(before);
}

static void rows_that_overflow_are_refused(void)
{
    static const size_t shapes[][2] = {
        {0, 1}, {1, 0}, {0, 0}, {ENDLESS, 1}, {1, ENDLESS}, {ENDLESS, ENDLESS}, {(size_t)1 << 32, (size_t)1 << 32},
        {(size_t)1 << 33, (size_t)1 << 31}, {((size_t)1 << 32) + 1, (size_t)1 << 32}, {ENDLESS - 511, 2},
        {512, ((size_t)1 << 55) + 1},
    };
    CUdeviceptr at;
    size_t pitch;
    open_context();
    size_t before = bytes_free();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        refused("pitched", cu.cuMemAllocPitch_v2(&at, &pitch, shapes[i][0], shapes[i][1], 4));
    settles(before);
}

static void arrays_that_overflow_are_refused(void)
{
    static const size_t shapes[][3] = {
        {0, 0, 0}, {0, 1, 0}, {ENDLESS, 1, 0}, {1, ENDLESS, 0}, {ENDLESS, ENDLESS, ENDLESS},
        {(size_t)1 << 32, (size_t)1 << 32, 0}, {(size_t)1 << 22, (size_t)1 << 21, (size_t)1 << 21},
    };
    CUarray array;
    open_context();
    size_t before = bytes_free();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t *sides = shapes[i];
        CUarrayShape flat = {sides[0], sides[1], 0x20, 4};
        CUarray3dShape solid = {sides[0], sides[1], sides[2], 0x20, 4, 0};
        refused("flat", cu.cuArrayCreate_v2(&array, &flat));
        refused("solid", cu.cuArray3DCreate_v2(&array, &solid));
        if (cu.cuMipmappedArrayCreate) refused("mipmapped", cu.cuMipmappedArrayCreate(&array, &solid, 99));
    }
    settles(before);
}

const struct check ABUSE_CHECKS[] = {
    {"plain_memory_is_freed_once_in_whatever_way", plain_memory_is_freed_once_in_whatever_way},
    {"stream_ordered_memory_is_freed_once_in_whatever_way", stream_ordered_memory_is_freed_once_in_whatever_way},
    {"managed_memory_is_freed_once", managed_memory_is_freed_once},
    {"pitched_memory_is_freed_once", pitched_memory_is_freed_once},
    {"a_mapping_ends_once", a_mapping_ends_once},
    {"what_was_never_allocated_cannot_be_freed", what_was_never_allocated_cannot_be_freed},
    {"memory_of_another_process_cannot_be_freed", memory_of_another_process_cannot_be_freed},
    {"all_kinds_can_be_freed_by_another_thread_in_another_stream",
     all_kinds_can_be_freed_by_another_thread_in_another_stream},
    {"memory_freed_behind_a_kernel_is_back_when_that_is_over", memory_freed_behind_a_kernel_is_back_when_that_is_over},
    {"sizes_that_cannot_be_are_refused_by_plain_calls", sizes_that_cannot_be_are_refused_by_plain_calls},
    {"sizes_that_cannot_be_are_refused_by_pools", sizes_that_cannot_be_are_refused_by_pools},
    {"sizes_that_cannot_be_are_refused_as_physical_memory", sizes_that_cannot_be_are_refused_as_physical_memory},
    {"rows_that_overflow_are_refused", rows_that_overflow_are_refused},
    {"arrays_that_overflow_are_refused", arrays_that_overflow_are_refused},
    {NULL, NULL},
};
