/* parked: holds memory with known contents, and tells whether they are still there.
 *
 * usage: parked MIB
 * Allocates MIB MiB in one piece, fills each of them with its number, prints "ready" (flushed), and then answers each
 * line of its input: {"equal": true, "mib": MIB}. Exit 1 if a call fails. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long CUdeviceptr;
enum { WORDS = 1 << 18 }; /* of four bytes, in a MiB */

static int (*cuInit)(unsigned), (*cuDeviceGet)(int *, int), (*cuCtxCreate)(void **, unsigned, int);
static int (*cuMemAlloc)(CUdeviceptr *, size_t), (*cuMemsetD32)(CUdeviceptr, unsigned, size_t);
static int (*cuMemcpyDtoH)(void *, CUdeviceptr, size_t), (*cuCtxSynchronize)(void);

static void must(int result, const char *call)
{
    if (result == 0)
        return;
    fprintf(stderr, "parked: %s answered %d\n", call, result);
    exit(1);
}

static void find(void *driver, void *function, const char *name)
{
    *(void **)function = dlsym(driver, name);
    if (!*(void **)function) {
        fprintf(stderr, "parked: the driver has no %s\n", name);
        exit(1);
    }
}

static void open_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "parked: %s\n", dlerror());
        exit(1);
    }
    find(driver, &cuInit, "cuInit");
    find(driver, &cuDeviceGet, "cuDeviceGet");
    find(driver, &cuCtxCreate, "cuCtxCreate_v2");
    find(driver, &cuMemAlloc, "cuMemAlloc_v2");
    find(driver, &cuMemsetD32, "cuMemsetD32_v2");
    find(driver, &cuMemcpyDtoH, "cuMemcpyDtoH_v2");
    find(driver, &cuCtxSynchronize, "cuCtxSynchronize");
}

/* Every word of each MiB is its number. */
static bool holds(CUdeviceptr memory, unsigned mib)
{
    static unsigned seen[WORDS];
    for (unsigned number = 0; number < mib; number++) {
        must(cuMemcpyDtoH(seen, memory + ((CUdeviceptr)number << 20), sizeof seen), "cuMemcpyDtoH");
        for (unsigned word = 0; word < WORDS; word++)
            if (seen[word] != number)
                return false;
    }
    return true;
}

int main(int count, char **arguments)
{
    unsigned mib = count == 2 ? (unsigned)strtoul(arguments[1], NULL, 10) : 0;
    if (!mib) {
        fprintf(stderr, "usage: parked MIB\n");
        return 2;
    }
    int device = 0;
    void *context = NULL;
    CUdeviceptr memory = 0;
    open_driver();
    must(cuInit(0), "cuInit");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuCtxCreate(&context, 0, device), "cuCtxCreate");
    must(cuMemAlloc(&memory, (size_t)mib << 20), "cuMemAlloc");
    for (unsigned number = 0; number < mib; number++)
        must(cuMemsetD32(memory + ((CUdeviceptr)number << 20), number, WORDS), "cuMemsetD32");
    must(cuCtxSynchronize(), "cuCtxSynchronize");
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        printf("{\"equal\": %s, \"mib\": %u}\n", holds(memory, mib) ? "true" : "false", mib);
        fflush(stdout);
    }
    return 0;
}
