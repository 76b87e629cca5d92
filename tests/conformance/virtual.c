/* Virtual memory (cuMemCreate and its family) and arrays. */
#include "suite.h"

#include <stddef.h>
#include <string.h>

static CUallocationProp on_device(void) { return (CUallocationProp){.type = 1, .location = {1, open_device()}}; }

static size_t granularity(void)
{
    size_t bytes = 0;
    CUallocationProp prop = on_device();
    WORKS(cuMemGetAllocationGranularity, &bytes, &prop, 0);
    EXPECT(bytes >= 4096, "granularity %zu", bytes);
    return bytes;
}

static CUmemHandle create(size_t bytes)
{
    CUmemHandle handle = 0;
    CUallocationProp prop = on_device();
    WORKS(cuMemCreate, &handle, bytes, &prop, 0);
    return handle;
}

static CUdeviceptr map(CUmemHandle handle, size_t bytes)
{
    CUdeviceptr at = 0;
    CUaccess access = {{1, open_device()}, 3};
    WORKS(cuMemAddressReserve, &at, bytes, 0, 0, 0);
    WORKS(cuMemMap, at, bytes, 0, handle, 0);
    WORKS(cuMemSetAccess, at, bytes, &access, 1);
    return at;
}

static void created_memory_is_counted_before_it_is_mapped(void)
{
    open_context();
    size_t bytes = 32 * granularity(), before = bytes_free();
    CUmemHandle handle = create(bytes);
    EXPECT(before - bytes_free() >= bytes, "created memory is not counted");
    WORKS(cuMemRelease, handle);
    comes_back(before);
}

static void memory_released_while_mapped_is_held_until_unmapped(void)
{
    open_context();
    size_t bytes = 32 * granularity(), before = bytes_free();
    CUmemHandle handle = create(bytes);
    CUdeviceptr at = map(handle, bytes);
    WORKS(cuMemRelease, handle);
    EXPECT(before - bytes_free() >= bytes, "mapped memory was given back at the release");
    WORKS(cuMemUnmap, at, bytes);
    WORKS(cuMemAddressFree, at, bytes);
    comes_back(before);
}

static void memory_unmapped_before_its_release_is_held_until_then(void)
{
    open_context();
    size_t bytes = 32 * granularity(), before = bytes_free();
    CUmemHandle handle = create(bytes);
    CUdeviceptr at = map(handle, bytes);
    WORKS(cuMemUnmap, at, bytes);
    EXPECT(before - bytes_free() >= bytes, "memory with a handle was given back at the unmap");
    WORKS(cuMemRelease, handle);
    WORKS(cuMemAddressFree, at, bytes);
    comes_back(before);
}

static void memory_mapped_twice_is_counted_once(void)
{
    open_context();
    size_t bytes = 32 * granularity(), before = bytes_free();
    CUmemHandle handle = create(bytes);
    CUdeviceptr first = map(handle, bytes);
    size_t with_one = bytes_free();
    CUdeviceptr second = map(handle, bytes);
    EXPECT(with_one - bytes_free() < bytes, "a second mapping was counted again");
    WORKS(cuMemRelease, handle);
    WORKS(cuMemUnmap, first, bytes);
    EXPECT(before - bytes_free() >= bytes, "memory went back while one mapping is left");
    WORKS(cuMemUnmap, second, bytes);
    WORKS(cuMemAddressFree, first, bytes);
    WORKS(cuMemAddressFree, second, bytes);
    comes_back(before);
}

static void copies_and_fills_cross_from_one_mapping_into_the_next(void)
{
    open_context();
    size_t bytes = granularity(), before = bytes_free();
    CUmemHandle handles[2] = {create(bytes), create(bytes)};
    CUdeviceptr at = 0;
    CUaccess access = {{1, open_device()}, 3};
    WORKS(cuMemAddressReserve, &at, 3 * bytes, 0, 0, 0);
    for (int side = 0; side < 2; side++)
        WORKS(cuMemMap, at + side * bytes, bytes, 0, handles[side], 0);
    WORKS(cuMemSetAccess, at, 2 * bytes, &access, 1);
    unsigned char sent[64], back[64] = {0};
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (unsigned char)(i + 1);
    WORKS(cuMemsetD8_v2, at + bytes - 64, 9, 128);
    WORKS(cuMemcpyHtoD_v2, at + bytes - 32, sent, sizeof sent);
    WORKS(cuMemcpyDtoH_v2, back, at + bytes - 32, sizeof back);
    EXPECT(!memcmp(sent, back, sizeof sent), "bytes over the seam came back as others");
    WORKS(cuMemcpyDtoH_v2, back, at + bytes - 40, 48);
    EXPECT(back[7] == 9 && back[8] == 1 && back[40] == 33, "the fill or the copy lies elsewhere");
    WORKS(cuMemcpyDtoH_v2, back, at + bytes + 32, 32);
    EXPECT(back[0] == 9 && back[31] == 9, "the fill ends at the seam");
    /* Nothing is mapped behind the second one. */
    ANSWERS(INVALID_VALUE, cuMemsetD8_v2, at + 2 * bytes - 16, 9, 32);
    WORKS(cuMemUnmap, at, bytes);
    WORKS(cuMemUnmap, at + bytes, bytes);
    WORKS(cuMemRelease, handles[0]);
    WORKS(cuMemRelease, handles[1]);
    WORKS(cuMemAddressFree, at, 3 * bytes);
    comes_back(before);
}

static void a_retained_handle_needs_its_own_release(void)
{
    CUmemHandle again = 0;
    open_context();
    NEEDS(cuMemRetainAllocationHandle);
    size_t bytes = 32 * granularity(), before = bytes_free();
    CUmemHandle handle = create(bytes);
    CUdeviceptr at = map(handle, bytes);
    WORKS(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)at);
    EXPECT(again == handle, "the retained handle is another one");
    WORKS(cuMemRelease, handle);
    WORKS(cuMemUnmap, at, bytes);
    EXPECT(before - bytes_free() >= bytes, "memory went back before the last release");
    WORKS(cuMemRelease, again);
    WORKS(cuMemAddressFree, at, bytes);
    comes_back(before);
}

static void odd_and_endless_sizes_are_refused(void)
{
    CUmemHandle handle;
    open_context();
    CUallocationProp prop = on_device();
    NEEDS(cuMemCreate);
    ANSWERS(INVALID_VALUE, cuMemCreate, &handle, granularity() + 1, &prop, 0);
    ANSWERS(INVALID_VALUE, cuMemCreate, &handle, 0, &prop, 0);
    ANSWERS(OUT_OF_MEMORY, cuMemCreate, &handle, FAR_TOO_MUCH, &prop, 0);
    size_t left = bytes_free() / granularity() * granularity();
    ANSWERS(OUT_OF_MEMORY, cuMemCreate, &handle, left + 32 * granularity(), &prop, 0);
}

static void what_is_wrong_and_too_large_is_told_to_be_wrong(void)
{
    CUmemHandle handle = 0xabc;
    open_context();
    NEEDS(cuMemCreate);
    CUallocationProp prop = on_device(), strange = {.type = 7, .location = {1, open_device()}};
    ANSWERS(INVALID_VALUE, cuMemCreate, NULL, FAR_TOO_MUCH, &prop, 0);
    ANSWERS(INVALID_VALUE, cuMemCreate, &handle, FAR_TOO_MUCH, NULL, 0);
    ANSWERS(INVALID_VALUE, cuMemCreate, &handle, FAR_TOO_MUCH + 1, &prop, 0);
    ANSWERS(INVALID_VALUE, cuMemCreate, &handle, FAR_TOO_MUCH, &prop, 1);
    ANSWERS(INVALID_VALUE, cuMemCreate, &handle, FAR_TOO_MUCH, &strange, 0);
    EXPECT(handle == 0xabc, "the out-parameter was written");
}

static void arrays_that_are_wrong_and_too_large_are_told_to_be_wrong(void)
{
    enum { HUGE = 1 << 28 };
    CUarray array = NULL;
    CUarrayShape good = {HUGE, HUGE, 0x20, 4}, format = {HUGE, HUGE, 0x77, 4}, channels = {HUGE, HUGE, 0x20, 3},
                 empty = {0, 1ull << 50, 0x20, 4};
    CUarray3dShape solid = {HUGE, HUGE, 4, 0x20, 5, 0};
    open_context();
    ANSWERS(INVALID_VALUE, cuArrayCreate_v2, NULL, &good);
    ANSWERS(INVALID_VALUE, cuArrayCreate_v2, &array, NULL);
    ANSWERS(INVALID_VALUE, cuArrayCreate_v2, &array, &format);
    ANSWERS(INVALID_VALUE, cuArrayCreate_v2, &array, &channels);
    ANSWERS(INVALID_VALUE, cuArrayCreate_v2, &array, &empty);
    ANSWERS(INVALID_VALUE, cuArray3DCreate_v2, &array, &solid);
    EXPECT(!array, "the out-parameter was written");
    seen("too large and nothing else: %d", cu.cuArrayCreate_v2(&array, &good));
}

static void a_reservation_costs_no_memory(void)
{
    CUdeviceptr at;
    open_context();
    size_t before = bytes_free();
    WORKS(cuMemAddressReserve, &at, 1ull << 36, 0, 0, 0);
    comes_back(before);
    WORKS(cuMemAddressFree, at, 1ull << 36);
}

static void arrays_are_counted_and_come_back(void)
{
    CUarray array;
    CUarrayShape shape = {4096, 1024, 0x20, 4};
    open_context();
    size_t before = bytes_free();
    WORKS(cuArrayCreate_v2, &array, &shape);
    EXPECT(before - bytes_free() >= 60 * MIB, "an array of 64 MiB moved cuMemGetInfo by %zu", before - bytes_free());
    WORKS(cuArrayDestroy, array);
    comes_back(before);
}

static void deep_arrays_are_counted_and_come_back(void)
{
    CUarray array;
    CUarray3dShape shape = {256, 256, 64, 0x20, 4, 0};
    open_context();
    size_t before = bytes_free();
    WORKS(cuArray3DCreate_v2, &array, &shape);
    EXPECT(before - bytes_free() >= 60 * MIB, "an array of 64 MiB moved cuMemGetInfo by %zu", before - bytes_free());
    WORKS(cuArrayDestroy, array);
    comes_back(before);
    EXPECT(cu.cuArrayDestroy(array) != SUCCESS, "an array was destroyed twice");
}

const struct check VIRTUAL_CHECKS[] = {
    {"created_memory_is_counted_before_it_is_mapped", created_memory_is_counted_before_it_is_mapped},
    {"memory_released_while_mapped_is_held_until_unmapped", memory_released_while_mapped_is_held_until_unmapped},
    {"memory_unmapped_before_its_release_is_held_until_then", memory_unmapped_before_its_release_is_held_until_then},
    {"memory_mapped_twice_is_counted_once", memory_mapped_twice_is_counted_once},
    {"copies_and_fills_cross_from_one_mapping_into_the_next", copies_and_fills_cross_from_one_mapping_into_the_next},
    {"a_retained_handle_needs_its_own_release", a_retained_handle_needs_its_own_release},
    {"odd_and_endless_sizes_are_refused", odd_and_endless_sizes_are_refused},
    {"what_is_wrong_and_too_large_is_told_to_be_wrong", what_is_wrong_and_too_large_is_told_to_be_wrong},
    {"arrays_that_are_wrong_and_too_large_are_told_to_be_wrong",
     arrays_that_are_wrong_and_too_large_are_told_to_be_wrong},
    {"a_reservation_costs_no_memory", a_reservation_costs_no_memory},
    {"arrays_are_counted_and_come_back", arrays_are_counted_and_come_back},
    {"deep_arrays_are_counted_and_come_back", deep_arrays_are_counted_and_come_back},
    {NULL, NULL},
};
