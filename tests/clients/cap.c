/* cap: finds out how much memory it really gets.
 *
 * usage: cap [--hold SECONDS]
 * Allocates in shrinking steps until nothing more is given, and reports the largest single
 * allocation, the sum, and the answer to one more. With --hold it keeps everything for so
 * long after printing (flushed), so that others can look. Exit 1 if a refusal is not
 * CUDA_ERROR_OUT_OF_MEMORY or memory does not come back. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long CUdeviceptr;
enum { ROOM = 65536, OUT_OF_MEMORY = 2 };
#define MIB ((size_t)1 << 20)

static int (*cuInit)(unsigned), (*cuDeviceGet)(int *, int), (*cuDeviceGetCount)(int *);
static int (*cuDeviceTotalMem)(size_t *, int), (*cuCtxCreate)(void **, unsigned, int);
static int (*cuMemGetInfo)(size_t *, size_t *), (*cuMemAlloc)(CUdeviceptr *, size_t), (*cuMemFree)(CUdeviceptr);

static CUdeviceptr kept[ROOM];
static size_t count;

static void must(int result, const char *call)
{
    if (result == 0)
        return;
    fprintf(stderr, "cap: %s answered %d\n", call, result);
    exit(1);
}

static void find(void *driver, void *function, const char *name)
{
    *(void **)function = dlsym(driver, name);
    if (!*(void **)function) {
        fprintf(stderr, "cap: the driver has no %s\n", name);
        exit(1);
    }
}

static void open_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "cap: %s\n", dlerror());
        exit(1);
    }
    find(driver, &cuInit, "cuInit");
    find(driver, &cuDeviceGet, "cuDeviceGet");
    find(driver, &cuDeviceGetCount, "cuDeviceGetCount");
    find(driver, &cuDeviceTotalMem, "cuDeviceTotalMem_v2");
    find(driver, &cuCtxCreate, "cuCtxCreate_v2");
    find(driver, &cuMemGetInfo, "cuMemGetInfo_v2");
    find(driver, &cuMemAlloc, "cuMemAlloc_v2");
    find(driver, &cuMemFree, "cuMemFree_v2");
}

/* The largest single allocation, to 2 MiB, by bisection. */
static size_t largest(size_t total)
{
    size_t fits = 0, too_much = total / (2 * MIB) + 1;
    while (too_much - fits > 1) {
        size_t middle = (fits + too_much) / 2;
        CUdeviceptr at;
        if (cuMemAlloc(&at, middle * 2 * MIB) == 0) {
            must(cuMemFree(at), "cuMemFree");
            fits = middle;
        } else {
            too_much = middle;
        }
    }
    return fits * 2 * MIB;
}

/* Takes everything there is, in steps of 256 MiB, 2 MiB and 64 KiB; the last refusal goes to `refusal`. */
static size_t fill(int *refusal)
{
    static const size_t STEPS[] = {256 * MIB, 2 * MIB, 65536};
    size_t sum = 0;
    for (int s = 0; s < 3; s++)
        while (count < ROOM && (*refusal = cuMemAlloc(&kept[count], STEPS[s])) == 0) {
            sum += STEPS[s];
            count++;
        }
    return sum;
}

int main(int argc, char **argv)
{
    int device, devices, refusal = 0, beyond;
    size_t device_total, total, available, full, back;
    void *context;
    CUdeviceptr at;
    unsigned hold = argc == 3 && !strcmp(argv[1], "--hold") ? (unsigned)atoi(argv[2]) : 0;
    open_driver();
    must(cuInit(0), "cuInit");
    must(cuDeviceGetCount(&devices), "cuDeviceGetCount");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuDeviceTotalMem(&device_total, device), "cuDeviceTotalMem");
    must(cuCtxCreate(&context, 0, device), "cuCtxCreate");
    must(cuMemGetInfo(&available, &total), "cuMemGetInfo");
    beyond = cuMemAlloc(&at, available + 2 * MIB);
    size_t single = largest(total), sum = fill(&refusal);
    must(cuMemGetInfo(&full, &total), "cuMemGetInfo");
    printf("{\"client\": \"cap\", \"devices\": %d, \"device_total\": %zu, \"total\": %zu, \"free\": %zu, "
           "\"largest\": %zu, \"filled\": %zu, \"free_when_full\": %zu, \"beyond\": %d, \"refusal\": %d}\n",
           devices, device_total, total, available, single, sum, full, beyond, refusal);
    fflush(stdout);
    sleep(hold);
    while (count)
        must(cuMemFree(kept[--count]), "cuMemFree");
    must(cuMemGetInfo(&back, &total), "cuMemGetInfo");
    if (back != available)
        fprintf(stderr, "cap: %lld bytes did not come back\n", (long long)(available - back));
    return beyond == OUT_OF_MEMORY && refusal == OUT_OF_MEMORY && back == available ? 0 : 1;
}
