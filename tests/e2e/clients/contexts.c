/* What goes with contexts, asked of a driver: rules about missing pointers, sizes of variables, libraries.
 *
 * Each line of the answer is a call and the driver's number for what came of it. It knows nothing of slices. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long Handle;

static void *driver, *nvml;
#define CALL(library, name, types, ...)                                  \
    ({                                                                   \
        int(*function) types = (int(*) types)dlsym(library, name);       \
        function ? function(__VA_ARGS__) : 9002;                         \
    })
#define CUDA(name, types, ...) CALL(driver, name, types, __VA_ARGS__)
#define NVML(name, types, ...) CALL(nvml, name, types, __VA_ARGS__)
#define SAY(what, ...) printf("%s %d\n", what, (int)(__VA_ARGS__))

static void begin(void) {
    Handle context;
    int device;
    if (CUDA("cuInit", (unsigned), 0) || CUDA("cuDeviceGet", (int *, int), &device, 0) ||
        CUDA("cuDevicePrimaryCtxRetain", (Handle *, int), &context, device) ||
        CUDA("cuCtxSetCurrent", (Handle), context))
        exit(3);
}

static void nulls(void) {
    size_t free = 0, total = 0, both_free, both_total;
    unsigned old_free = 0;
    int device = 0;
    Handle nvml_device = 0;
    SAY("device before init", CUDA("cuDeviceGet", (int *, int), NULL, 0));
    begin();
    CUDA("cuMemGetInfo_v2", (size_t *, size_t *), &both_free, &both_total);
    SAY("free", CUDA("cuMemGetInfo_v2", (size_t *, size_t *), &free, NULL));
    SAY("total", CUDA("cuMemGetInfo_v2", (size_t *, size_t *), NULL, &total));
    SAY("neither", CUDA("cuMemGetInfo_v2", (size_t *, size_t *), NULL, NULL));
    SAY("oldest", CUDA("cuMemGetInfo", (unsigned *, unsigned *), &old_free, NULL));
    SAY("the same", free == both_free && total == both_total);
    SAY("total of none", CUDA("cuDeviceTotalMem_v2", (size_t *, int), NULL, device));
    SAY("total of no device", CUDA("cuDeviceTotalMem_v2", (size_t *, int), &total, 99));
    SAY("device", CUDA("cuDeviceGet", (int *, int), NULL, 0));
    SAY("count", CUDA("cuDeviceGetCount", (int *), NULL));
    SAY("by bus id", CUDA("cuDeviceGetByPCIBusId", (int *, const char *), NULL, "0000:00:00.0"));
    SAY("retain", CUDA("cuDevicePrimaryCtxRetain", (Handle *, int), NULL, device));
    SAY("create", CUDA("cuCtxCreate_v2", (Handle *, unsigned, int), NULL, 0, device));
    SAY("alloc", CUDA("cuMemAlloc_v2", (Handle *, size_t), NULL, 4096));
    SAY("alloc nothing", CUDA("cuMemAlloc_v2", (Handle *, size_t), &nvml_device, 0));
    SAY("free nothing", CUDA("cuMemFree_v2", (Handle), 0));
    SAY("module", CUDA("cuModuleLoadData", (Handle *, const void *), &nvml_device, NULL));
    SAY("unload nothing", CUDA("cuModuleUnload", (Handle), 0));
    SAY("destroy nothing", CUDA("cuCtxDestroy_v2", (Handle), 0));
    SAY("array of nothing", CUDA("cuArrayCreate_v2", (Handle *, const void *), &nvml_device, NULL));
    SAY("nvml before init", NVML("nvmlDeviceGetCount_v2", (unsigned *), NULL));
    SAY("nvml init", NVML("nvmlInit_v2", (void)));
    SAY("nvml count", NVML("nvmlDeviceGetCount_v2", (unsigned *), NULL));
    SAY("nvml no handle", NVML("nvmlDeviceGetHandleByIndex_v2", (unsigned, Handle *), 0, NULL));
    SAY("nvml handle", NVML("nvmlDeviceGetHandleByIndex_v2", (unsigned, Handle *), 0, &nvml_device));
    SAY("nvml memory", NVML("nvmlDeviceGetMemoryInfo", (Handle, void *), nvml_device, NULL));
    SAY("nvml utilisation", NVML("nvmlDeviceGetUtilizationRates", (Handle, void *), nvml_device, NULL));
    SAY("nvml processes",
        NVML("nvmlDeviceGetComputeRunningProcesses_v3", (Handle, unsigned *, void *), nvml_device, NULL, NULL));
}

/* Modules, each with the variables that the program was given. */
static void variables(int count, char **given) {
    begin();
    for (int at = 0; at < count; at++) {
        char text[512];
        Handle module;
        snprintf(text, sizeof text, ".version 7.0\n.target sm_70\n.address_size 64\n%s\n", given[at]);
        SAY("load", CUDA("cuModuleLoadData", (Handle *, const void *), &module, text));
    }
}

/* Libraries of 100 MiB, in a primary context and another, and then contexts, until there is no more room. */
static void libraries(void) {
    static const char text[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n.global .align 8 .b8 room[104857600];\n";
    Handle handle;
    int loaded = 0, created = 0;
    char line[16];
    begin();
    if (CUDA("cuCtxCreate_v2", (Handle *, unsigned, int), &handle, 0, 0)) exit(4);
    while (loaded < 3 && CUDA("cuLibraryLoadData",
                (Handle *, const void *, void *, void *, unsigned, void *, void *, unsigned), &handle, text,
                NULL, NULL, 0, NULL, NULL, 0) == 0)
        loaded++;
    SAY("loaded", loaded);
    while (CUDA("cuCtxCreate_v2", (Handle *, unsigned, int), &handle, 0, 0) == 0) created++;
    SAY("created", created);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(5);
}

int main(int count, char **given) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!driver || !nvml || count < 2) return 2;
    if (strcmp(given[1], "nulls") == 0) nulls();
    else if (strcmp(given[1], "variables") == 0) variables(count - 2, given + 2);
    else libraries();
    return 0;
}
