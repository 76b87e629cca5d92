/* NVML as the second witness: its figures agree with the driver's and with each other. */
#include "suite.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION_MISMATCH = 25, ROOM = 256 };

static NvmlMemoryV2 memory_v2(NvmlDevice witness)
{
    NvmlMemoryV2 memory = {.version = NVML_MEMORY_V2};
    if (!nv.nvmlDeviceGetMemoryInfo_v2)
        skips("NVML has no nvmlDeviceGetMemoryInfo_v2");
    EXPECT(nv.nvmlDeviceGetMemoryInfo_v2(witness, &memory) == NVML_OK, "nvmlDeviceGetMemoryInfo_v2 failed");
    return memory;
}

static void total_less_reserved_is_the_drivers_total(void)
{
    size_t total;
    NvmlMemoryV2 memory = memory_v2(open_witness());
    WORKS(cuDeviceTotalMem_v2, &total, open_device());
    long long apart = (long long)(memory.total - memory.reserved) - (long long)total;
    EXPECT(apart > -(long long)(64 * MIB) && apart < (long long)(64 * MIB), "NVML's is %lld bytes more", apart);
}

static void memory_adds_up(void)
{
    NvmlMemory v1 = {0};
    NvmlDevice witness = open_witness();
    NvmlMemoryV2 v2 = memory_v2(witness);
    EXPECT(v2.total == v2.reserved + v2.used + v2.free, "v2: total is not reserved + used + free");
    EXPECT(nv.nvmlDeviceGetMemoryInfo(witness, &v1) == NVML_OK, "nvmlDeviceGetMemoryInfo failed");
    EXPECT(v1.total == v1.used + v1.free, "v1: total is not used + free");
    EXPECT(v1.total == v2.total, "v1 and v2 have different totals");
}

static void a_wrong_struct_version_is_refused(void)
{
    NvmlMemoryV2 memory = {.version = 0x3000028};
    NvmlDevice witness = open_witness();
    if (!nv.nvmlDeviceGetMemoryInfo_v2)
        skips("NVML has no nvmlDeviceGetMemoryInfo_v2");
    NvmlResult result = nv.nvmlDeviceGetMemoryInfo_v2(witness, &memory);
    EXPECT(result == VERSION_MISMATCH, "answered %d, not 25", result);
}

static void used_follows_an_allocation(void)
{
    CUdeviceptr at;
    NvmlDevice witness = open_witness();
    open_context();
    uint64_t before = nvml_used(witness);
    WORKS(cuMemAlloc_v2, &at, 128 * MIB);
    uint64_t with = nvml_used(witness);
    EXPECT(with >= before + 128 * MIB, "128 MiB moved NVML by %lld bytes", (long long)(with - before));
    WORKS(cuMemFree_v2, at);
    EXPECT(nvml_used(witness) < with, "NVML's used memory stayed after a free");
}

static bool lists_me(void *witness) { return nvml_process_used(witness, (unsigned)getpid()) >= 0; }

/* In a container of another pid namespace NVML may not know our pid: nothing to check then. */
static NvmlDevice witness_that_lists_us(void)
{
    NvmlDevice witness = open_witness();
    open_context();
    if (!within_ms(2000, lists_me, witness))
        skips("NVML does not list this process (another pid namespace?)");
    return witness;
}

static void my_process_grows_by_what_it_allocates(void)
{
    CUdeviceptr at;
    NvmlDevice witness = witness_that_lists_us();
    int64_t before = nvml_process_used(witness, (unsigned)getpid());
    WORKS(cuMemAlloc_v2, &at, 128 * MIB);
    usleep(50000);
    int64_t with = nvml_process_used(witness, (unsigned)getpid());
    EXPECT(with - before == (int64_t)(128 * MIB), "128 MiB moved the process by %lld bytes",
           (long long)(with - before));
    WORKS(cuMemFree_v2, at);
}

static void processes_use_no_more_than_is_used(void)
{
    NvmlProcess list[ROOM];
    NvmlDevice witness = witness_that_lists_us();
    uint64_t sum = 0;
    int count = nvml_processes(witness, list, ROOM);
    EXPECT(count >= 1, "no process is listed");
    for (int i = 0; i < count; i++)
        sum += list[i].used;
    NvmlMemory v1 = {0};
    nv.nvmlDeviceGetMemoryInfo(witness, &v1);
    EXPECT(sum <= v1.used, "processes use %llu, the device %llu", (unsigned long long)sum, (unsigned long long)v1.used);
}

static void a_short_process_list_is_said(void)
{
    unsigned count = 0;
    NvmlProcess list[1];
    NvmlDevice witness = witness_that_lists_us();
    if (!nv.nvmlDeviceGetComputeRunningProcesses_v3)
        skips("NVML has no nvmlDeviceGetComputeRunningProcesses_v3");
    NvmlResult result = nv.nvmlDeviceGetComputeRunningProcesses_v3(witness, &count, list);
    EXPECT(result == NVML_INSUFFICIENT_SIZE && count >= 1, "answered %d with count %u", result, count);
}

static void driver_and_nvml_agree_on_what_is_free(void)
{
    NvmlMemory v1 = {0};
    NvmlDevice witness = open_witness();
    open_context();
    size_t left = bytes_free();
    EXPECT(nv.nvmlDeviceGetMemoryInfo(witness, &v1) == NVML_OK, "nvmlDeviceGetMemoryInfo failed");
    long long apart = (long long)v1.free - (long long)left;
    EXPECT(apart > -(long long)(64 * MIB) && apart < (long long)(64 * MIB), "NVML has %lld bytes more free", apart);
}

static void every_device_of_the_driver_is_one_of_nvml(void)
{
    int count = 0;
    unsigned seen_by_nvml = 0;
    open_witness();
    WORKS(cuDeviceGetCount, &count);
    EXPECT(nv.nvmlDeviceGetCount_v2(&seen_by_nvml) == NVML_OK, "nvmlDeviceGetCount_v2 failed");
    EXPECT((int)seen_by_nvml >= count, "the driver has %d devices, NVML %u", count, seen_by_nvml);
    for (int i = 0; i < count; i++) {
        CUuuid uuid;
        CUdevice device;
        WORKS(cuDeviceGet, &device, i);
        WORKS(cuDeviceGetUuid, &uuid, device);
        EXPECT(nvml_device(uuid.bytes), "NVML does not know device %d of the driver", i);
    }
}

const struct check NVML_CHECKS[] = {
    {"total_less_reserved_is_the_drivers_total", total_less_reserved_is_the_drivers_total},
    {"memory_adds_up", memory_adds_up},
    {"a_wrong_struct_version_is_refused", a_wrong_struct_version_is_refused},
    {"used_follows_an_allocation", used_follows_an_allocation},
    {"my_process_grows_by_what_it_allocates", my_process_grows_by_what_it_allocates},
    {"processes_use_no_more_than_is_used", processes_use_no_more_than_is_used},
    {"a_short_process_list_is_said", a_short_process_list_is_said},
    {"driver_and_nvml_agree_on_what_is_free", driver_and_nvml_agree_on_what_is_free},
    {"every_device_of_the_driver_is_one_of_nvml", every_device_of_the_driver_is_one_of_nvml},
    {NULL, NULL},
};
