/* Initialisation and contexts. */
#include "suite.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void calls_before_init_are_refused(void)
{
    int count;
    ANSWERS(NOT_INITIALIZED, cuDeviceGetCount, &count);
    WORKS(cuInit, 0);
    WORKS(cuDeviceGetCount, &count);
    EXPECT(count >= 1, "no device");
}

static void init_with_unknown_flags_is_invalid(void)
{
    ANSWERS(INVALID_VALUE, cuInit, 0x100);
}

static void a_device_beyond_the_last_is_invalid(void)
{
    int count;
    CUdevice device = open_device();
    WORKS(cuDeviceGetCount, &count);
    ANSWERS(INVALID_DEVICE, cuDeviceGet, &device, count);
    ANSWERS(INVALID_DEVICE, cuDeviceGet, &device, -1);
}

static void allocation_without_a_context_is_refused(void)
{
    CUdeviceptr at;
    size_t left, total;
    open_device();
    ANSWERS(INVALID_CONTEXT, cuMemAlloc_v2, &at, 4096);
    ANSWERS(INVALID_CONTEXT, cuMemGetInfo_v2, &left, &total);
}

static void push_and_pop_restore_the_current_context(void)
{
    CUcontext first = open_context(), second, current = NULL;
    WORKS(cuCtxCreate_v2, &second, 0, open_device());
    WORKS(cuCtxGetCurrent, &current);
    EXPECT(current == second, "a created context is not current");
    WORKS(cuCtxPopCurrent_v2, &current);
    EXPECT(current == second, "pop gave another context");
    WORKS(cuCtxGetCurrent, &current);
    EXPECT(current == first, "after pop the earlier context is not current");
    WORKS(cuCtxPushCurrent_v2, second);
    WORKS(cuCtxDestroy_v2, second);
    WORKS(cuCtxGetCurrent, &current);
    EXPECT(current == first, "destroying the current context did not restore the earlier one");
}

static void pop_of_an_empty_stack_is_refused(void)
{
    CUcontext context;
    open_device();
    ANSWERS(INVALID_CONTEXT, cuCtxPopCurrent_v2, &context);
}

static void *current_there(void *context)
{
    cu.cuCtxGetCurrent(context);
    return NULL;
}

static void a_new_thread_has_no_context(void)
{
    pthread_t thread;
    CUcontext there = open_context();
    pthread_create(&thread, NULL, current_there, &there);
    pthread_join(thread, NULL);
    EXPECT(there == NULL, "a new thread starts with a context");
}

static void the_primary_context_lives_until_its_last_release(void)
{
    unsigned flags;
    int active = -1;
    CUcontext first, second;
    CUdevice device = open_device();
    WORKS(cuDevicePrimaryCtxGetState, device, &flags, &active);
    EXPECT(active == 0, "active before it is retained");
    WORKS(cuDevicePrimaryCtxRetain, &first, device);
    WORKS(cuDevicePrimaryCtxRetain, &second, device);
    EXPECT(first == second, "two primary contexts");
    WORKS(cuDevicePrimaryCtxRelease_v2, device);
    WORKS(cuDevicePrimaryCtxGetState, device, &flags, &active);
    EXPECT(active == 1, "gone after the first of two releases");
    WORKS(cuDevicePrimaryCtxRelease_v2, device);
    WORKS(cuDevicePrimaryCtxGetState, device, &flags, &active);
    EXPECT(active == 0, "active after the last release");
    ANSWERS(INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2, device);
}

static void a_destroyed_context_gives_its_memory_back(void)
{
    CUcontext first = open_context(), second;
    CUdeviceptr at;
    size_t before = bytes_free();
    WORKS(cuCtxCreate_v2, &second, 0, open_device());
    WORKS(cuMemAlloc_v2, &at, 128 * MIB);
    EXPECT(before - bytes_free() >= 128 * MIB, "memory of a second context is not counted");
    WORKS(cuCtxDestroy_v2, second);
    WORKS(cuCtxSetCurrent, first);
    EXPECT(bytes_free() + 64 * MIB > before, "%zu bytes are still held", before - bytes_free());
    EXPECT(cu.cuMemFree_v2(at) != SUCCESS, "memory of a destroyed context was freed again");
}

static void a_released_primary_context_gives_its_memory_back(void)
{
    CUdevice device = open_device();
    CUdeviceptr at;
    open_context();
    size_t before = bytes_free();
    WORKS(cuMemAlloc_v2, &at, 128 * MIB);
    WORKS(cuDevicePrimaryCtxRelease_v2, device);
    open_context();
    EXPECT(bytes_free() + 64 * MIB > before, "%zu bytes are still held", before - bytes_free());
}

static void limits_read_back(void)
{
    size_t limit = 0;
    open_context();
    WORKS(cuCtxSetLimit, LIMIT_HEAP, 32 * MIB);
    WORKS(cuCtxGetLimit, &limit, LIMIT_HEAP);
    EXPECT(limit >= 32 * MIB, "the heap limit reads back as %zu", limit);
    size_t before = limit;
    CUresult much = cu.cuCtxSetLimit(LIMIT_HEAP, FAR_TOO_MUCH);
    WORKS(cuCtxGetLimit, &limit, LIMIT_HEAP);
    EXPECT(much == SUCCESS || limit == before, "a refused limit was taken");
}

static void a_forked_child_gets_an_error_and_no_crash(void)
{
    CUdeviceptr at;
    int status;
    open_context();
    pid_t child = fork();
    if (child == 0) {
        alarm(5);
        _exit(cu.cuMemAlloc_v2(&at, 4096) == SUCCESS ? 1 : 0);
    }
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status), "the child ended by signal %d", WTERMSIG(status));
    EXPECT(WEXITSTATUS(status) == 0, "a forked child allocated through its parent's context");
    WORKS(cuMemAlloc_v2, &at, 4096);
}

const struct check CONTEXT_CHECKS[] = {
    {"calls_before_init_are_refused", calls_before_init_are_refused},
    {"init_with_unknown_flags_is_invalid", init_with_unknown_flags_is_invalid},
    {"a_device_beyond_the_last_is_invalid", a_device_beyond_the_last_is_invalid},
    {"allocation_without_a_context_is_refused", allocation_without_a_context_is_refused},
    {"push_and_pop_restore_the_current_context", push_and_pop_restore_the_current_context},
    {"pop_of_an_empty_stack_is_refused", pop_of_an_empty_stack_is_refused},
    {"a_new_thread_has_no_context", a_new_thread_has_no_context},
    {"the_primary_context_lives_until_its_last_release", the_primary_context_lives_until_its_last_release},
    {"a_destroyed_context_gives_its_memory_back", a_destroyed_context_gives_its_memory_back},
    {"a_released_primary_context_gives_its_memory_back", a_released_primary_context_gives_its_memory_back},
    {"limits_read_back", limits_read_back},
    {"a_forked_child_gets_an_error_and_no_crash", a_forked_child_gets_an_error_and_no_crash},
    {NULL, NULL},
};
