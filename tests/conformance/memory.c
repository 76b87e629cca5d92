/* Plain device memory: sizes, pointers, threads, what cuMemGetInfo says. */
#include "suite.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void an_allocation_of_zero_bytes_is_invalid(void)
{
    CUdeviceptr at = 0xabc;
    open_context();
    ANSWERS(INVALID_VALUE, cuMemAlloc_v2, &at, 0);
    seen("out-parameter %s", at == 0xabc ? "untouched" : "written");
}

static void an_allocation_into_null_is_invalid(void)
{
    open_context();
    ANSWERS(INVALID_VALUE, cuMemAlloc_v2, NULL, 4096);
}

static void far_too_much_is_out_of_memory(void)
{
    CUdeviceptr at = 0xabc;
    open_context();
    ANSWERS(OUT_OF_MEMORY, cuMemAlloc_v2, &at, FAR_TOO_MUCH);
    seen("out-parameter %s", at == 0xabc ? "untouched" : "written");
}

static void more_than_is_free_is_refused_and_nothing_is_lost(void)
{
    CUdeviceptr at;
    open_context();
    size_t before = bytes_free();
    ANSWERS(OUT_OF_MEMORY, cuMemAlloc_v2, &at, before + 64 * MIB);
    comes_back(before);
    WORKS(cuMemAlloc_v2, &at, 64 * MIB);
    WORKS(cuMemFree_v2, at);
}

static void what_is_free_can_be_had_in_one_piece_nearly(void)
{
    CUdeviceptr at;
    open_context();
    size_t most = bytes_free() / (2 * MIB) * (2 * MIB);
    size_t asked = most - most / 1000;
    WORKS(cuMemAlloc_v2, &at, asked);
    WORKS(cuMemFree_v2, at);
}

static void a_double_free_is_refused(void)
{
    CUdeviceptr at;
    open_context();
    WORKS(cuMemAlloc_v2, &at, 4 * MIB);
    WORKS(cuMemFree_v2, at);
    size_t before = bytes_free();
    CUresult again = cu.cuMemFree_v2(at);
    EXPECT(again != SUCCESS, "the second cuMemFree succeeded");
    comes_back(before);
    seen("answer %d", again);
}

static void an_unknown_pointer_cannot_be_freed(void)
{
    CUdeviceptr at;
    open_context();
    EXPECT(cu.cuMemFree_v2(0x10) != SUCCESS, "freeing 0x10 succeeded");
    WORKS(cuMemAlloc_v2, &at, 4 * MIB);
    CUresult inside = cu.cuMemFree_v2(at + 512);
    EXPECT(inside != SUCCESS, "freeing the inside of an allocation succeeded");
    seen("inside of an allocation: %d, null: %d", inside, cu.cuMemFree_v2(0));
    WORKS(cuMemFree_v2, at);
}

struct handed { CUcontext context; CUdeviceptr at; CUresult result; };

static void *free_there(void *argument)
{
    struct handed *handed = argument;
    cu.cuCtxSetCurrent(handed->context);
    handed->result = cu.cuMemFree_v2(handed->at);
    return NULL;
}

static void memory_can_be_freed_by_another_thread(void)
{
    struct handed handed = {.context = open_context()};
    pthread_t thread;
    size_t before = bytes_free();
    WORKS(cuMemAlloc_v2, &handed.at, 64 * MIB);
    pthread_create(&thread, NULL, free_there, &handed);
    pthread_join(thread, NULL);
    EXPECT(handed.result == SUCCESS, "cuMemFree in the other thread answered %d", handed.result);
    comes_back(before);
}

static void free_moves_by_what_is_allocated(void)
{
    CUdeviceptr at;
    open_context();
    size_t before = bytes_free();
    WORKS(cuMemAlloc_v2, &at, 64 * MIB);
    EXPECT(before - bytes_free() == 64 * MIB, "64 MiB moved cuMemGetInfo by %zu bytes", before - bytes_free());
    WORKS(cuMemFree_v2, at);
    comes_back(before);
}

static void total_is_the_same_through_both_calls(void)
{
    size_t left, total, device_total;
    open_context();
    WORKS(cuMemGetInfo_v2, &left, &total);
    WORKS(cuDeviceTotalMem_v2, &device_total, open_device());
    EXPECT(total == device_total, "cuMemGetInfo says %zu, cuDeviceTotalMem %zu", total, device_total);
    EXPECT(left < total, "all memory is free although a context exists");
}

static void allocations_are_aligned_and_apart(void)
{
    enum { COUNT = 64 };
    CUdeviceptr at[COUNT];
    open_context();
    for (int i = 0; i < COUNT; i++)
        WORKS(cuMemAlloc_v2, &at[i], 1000);
    for (int i = 0; i < COUNT; i++) {
        EXPECT(at[i] % 256 == 0, "an allocation is at %#llx", at[i]);
        for (int j = 0; j < i; j++)
            EXPECT(at[i] >= at[j] + 1000 || at[j] >= at[i] + 1000, "two allocations overlap");
    }
    for (int i = 0; i < COUNT; i++)
        WORKS(cuMemFree_v2, at[i]);
}

static void small_allocations_come_back_entirely(void)
{
    enum { COUNT = 1500 };
    static CUdeviceptr at[COUNT];
    open_context();
    size_t before = bytes_free();
    for (int i = 0; i < COUNT; i++)
        WORKS(cuMemAlloc_v2, &at[i], (size_t)(i % 7 + 1) * 3000);
    EXPECT(bytes_free() < before, "1500 small allocations cost nothing");
    for (int i = 0; i < COUNT; i++)
        WORKS(cuMemFree_v2, at[(i * 7) % COUNT]);
    comes_back(before);
}

static void the_address_range_of_an_inner_pointer_is_its_allocation(void)
{
    CUdeviceptr at, base = 0;
    size_t bytes = 0;
    open_context();
    WORKS(cuMemAlloc_v2, &at, 4 * MIB);
    WORKS(cuMemGetAddressRange_v2, &base, &bytes, at + 12345);
    EXPECT(base == at && bytes >= 4 * MIB, "range is %#llx + %zu, allocation %#llx + 4 MiB", base, bytes, at);
    WORKS(cuMemFree_v2, at);
}

static void a_pitch_is_at_least_the_width(void)
{
    CUdeviceptr at;
    size_t pitch = 0;
    open_context();
    size_t before = bytes_free();
    WORKS(cuMemAllocPitch_v2, &at, &pitch, 1000, 5000, 4);
    EXPECT(pitch >= 1000, "pitch %zu", pitch);
    EXPECT(before - bytes_free() >= pitch * 5000, "pitched memory is not counted");
    WORKS(cuMemFree_v2, at);
    comes_back(before);
    ANSWERS(OUT_OF_MEMORY, cuMemAllocPitch_v2, &at, &pitch, 1ull << 30, 1ull << 18, 4);
}

static void what_is_wrong_and_too_large_is_told_to_be_wrong(void)
{
    CUdeviceptr at = 0xabc;
    size_t pitch = 0xdef;
    open_context();
    ANSWERS(INVALID_VALUE, cuMemAlloc_v2, NULL, FAR_TOO_MUCH);
    ANSWERS(INVALID_VALUE, cuMemAllocPitch_v2, NULL, &pitch, 1ull << 30, 1ull << 18, 4);
    ANSWERS(INVALID_VALUE, cuMemAllocPitch_v2, &at, NULL, 1ull << 30, 1ull << 18, 4);
    ANSWERS(INVALID_VALUE, cuMemAllocPitch_v2, &at, &pitch, 1ull << 30, 1ull << 18, 3);
    ANSWERS(INVALID_VALUE, cuMemAllocPitch_v2, &at, &pitch, 0, 1ull << 48, 4);
    ANSWERS(INVALID_VALUE, cuMemAllocPitch_v2, &at, &pitch, 1ull << 48, 0, 4);
    EXPECT(at == 0xabc && pitch == 0xdef, "an out-parameter was written");
}

static void managed_memory_that_is_wrong_and_too_large_is_told_to_be_wrong(void)
{
    CUdeviceptr at = 0xabc;
    int able = 0;
    CUdevice device = open_device();
    open_context();
    WORKS(cuDeviceGetAttribute, &able, ATTR_MANAGED, device);
    if (!able)
        skips("no managed memory");
    ANSWERS(INVALID_VALUE, cuMemAllocManaged, NULL, FAR_TOO_MUCH, MANAGED_GLOBAL);
    ANSWERS(INVALID_VALUE, cuMemAllocManaged, &at, FAR_TOO_MUCH, 0);
    ANSWERS(INVALID_VALUE, cuMemAllocManaged, &at, FAR_TOO_MUCH, 4);
    ANSWERS(INVALID_VALUE, cuMemAllocManaged, &at, 0, MANAGED_GLOBAL);
    EXPECT(at == 0xabc, "the out-parameter was written");
}

static void host_memory_can_be_had_and_mapped(void)
{
    void *host = NULL;
    CUdeviceptr at = 0;
    open_context();
    size_t before = bytes_free();
    WORKS(cuMemHostAlloc, &host, 16 * MIB, HOST_MAPPED);
    memset(host, 7, 16 * MIB);
    WORKS(cuMemHostGetDevicePointer_v2, &at, host, 0);
    EXPECT(at != 0, "the mapped address is null");
    EXPECT(before - bytes_free() < 16 * MIB, "host memory is counted as device memory");
    WORKS(cuMemFreeHost, host);
}

static void managed_memory_can_be_touched_by_the_host(void)
{
    CUdeviceptr at;
    int able = 0;
    CUdevice device = open_device();
    open_context();
    WORKS(cuDeviceGetAttribute, &able, ATTR_MANAGED, device);
    NEEDS(cuMemAllocManaged);
    if (!able || bytes_free() < 512 * MIB)
        skips("no managed memory, or too little free to be sure");
    WORKS(cuMemAllocManaged, &at, 16 * MIB, MANAGED_GLOBAL);
    memset((void *)(uintptr_t)at, 1, 4096);
    WORKS(cuMemFree_v2, at);
}

static void a_slot_of_the_dead(int ready)
{
    CUdeviceptr at;
    open_context();
    WORKS(cuMemAlloc_v2, &at, 256 * MIB);
    if (write(ready, "", 1) == 1)
        pause();
    _exit(1);
}

static bool is_back(void *before) { return bytes_free() >= *(size_t *)before; }

static void memory_of_a_killed_process_comes_back(void)
{
    int ready[2];
    char byte;
    EXPECT(pipe(ready) == 0, "no pipe");
    pid_t child = fork(); /* before this process opens the driver */
    if (child == 0)
        a_slot_of_the_dead(ready[1]);
    EXPECT(read(ready[0], &byte, 1) == 1, "the process to be killed did not start");
    open_context();
    size_t with = bytes_free();
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    with += 256 * MIB;
    EXPECT(within_ms(5000, is_back, &with), "after five seconds %lld bytes are missing",
           (long long)with - (long long)bytes_free());
}

const struct check MEMORY_CHECKS[] = {
    {"an_allocation_of_zero_bytes_is_invalid", an_allocation_of_zero_bytes_is_invalid},
    {"an_allocation_into_null_is_invalid", an_allocation_into_null_is_invalid},
    {"far_too_much_is_out_of_memory", far_too_much_is_out_of_memory},
    {"more_than_is_free_is_refused_and_nothing_is_lost", more_than_is_free_is_refused_and_nothing_is_lost},
    {"what_is_free_can_be_had_in_one_piece_nearly", what_is_free_can_be_had_in_one_piece_nearly},
    {"a_double_free_is_refused", a_double_free_is_refused},
    {"an_unknown_pointer_cannot_be_freed", an_unknown_pointer_cannot_be_freed},
    {"memory_can_be_freed_by_another_thread", memory_can_be_freed_by_another_thread},
    {"free_moves_by_what_is_allocated", free_moves_by_what_is_allocated},
    {"total_is_the_same_through_both_calls", total_is_the_same_through_both_calls},
    {"allocations_are_aligned_and_apart", allocations_are_aligned_and_apart},
    {"small_allocations_come_back_entirely", small_allocations_come_back_entirely},
    {"the_address_range_of_an_inner_pointer_is_its_allocation",
     the_address_range_of_an_inner_pointer_is_its_allocation},
    {"a_pitch_is_at_least_the_width", a_pitch_is_at_least_the_width},
    {"what_is_wrong_and_too_large_is_told_to_be_wrong", what_is_wrong_and_too_large_is_told_to_be_wrong},
    {"managed_memory_that_is_wrong_and_too_large_is_told_to_be_wrong",
     managed_memory_that_is_wrong_and_too_large_is_told_to_be_wrong},
    {"host_memory_can_be_had_and_mapped", host_memory_can_be_had_and_mapped},
    {"managed_memory_can_be_touched_by_the_host", managed_memory_can_be_touched_by_the_host},
    {"memory_of_a_killed_process_comes_back", memory_of_a_killed_process_comes_back},
    {NULL, NULL},
};
