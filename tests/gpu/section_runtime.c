/* Section runtime: what the CUDA runtime takes beside a bare context, and to which process NVML charges it.
 *
 * NVIDIA's runtime requests private tables of the driver (cuGetExportTable). Those are neither called nor read here: a
 * process of its own uses the public runtime API, and the device's memory is observed before and after. */
#include "probe.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum act { LOAD, FIRST, BYTE, RESET, END };
static const char *const ACTS[] = {"load", "context", "one_byte", "reset"};
static const char *const FOLDERS[] = {"", "/usr/local/cuda/lib64/", "/opt/cuda/lib64/"};

struct runtime {
    int (*cudaFree)(void *), (*cudaMalloc)(void **, size_t), (*cudaDeviceReset)(void);
};

static void *open_runtime(const char *file)
{
    char path[96];
    void *found = NULL;
    for (size_t i = 0; !found && i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
        snprintf(path, sizeof path, "%s%s", FOLDERS[i], file);
        found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return found;
}

/* Answers with 500 where the library or a function of it is not there. */
static int act_by_runtime(const char *file, struct runtime *rt, enum act act)
{
    static void *library;
    void *at;
    if (act == LOAD) {
        library = open_runtime(file);
        if (!library)
            return NOT_FOUND;
        *(void **)&rt->cudaFree = dlsym(library, "cudaFree");
        *(void **)&rt->cudaMalloc = dlsym(library, "cudaMalloc");
        *(void **)&rt->cudaDeviceReset = dlsym(library, "cudaDeviceReset");
        return rt->cudaFree && rt->cudaMalloc && rt->cudaDeviceReset ? SUCCESS : NOT_FOUND;
    }
    return act == FIRST ? rt->cudaFree(NULL) : act == BYTE ? rt->cudaMalloc(&at, 1) : rt->cudaDeviceReset();
}

/* The same by the driver API alone; without bench_open, as NVML is open in the parent and does not survive a fork. */
static int act_by_driver(enum act act)
{
    static CUdevice device;
    CUcontext context;
    CUdeviceptr at;
    switch (act) {
    case LOAD: return driver_open() == 0 ? SUCCESS : NOT_FOUND;
    case FIRST:
        MUST(cuInit, 0);
        MUST(cuDeviceGet, &device, plan.ordinal);
        MUST(cuDevicePrimaryCtxRetain, &context, device);
        return cu.cuCtxSetCurrent(context);
    case BYTE: return cu.cuMemAlloc_v2(&at, 1);
    default: return cu.cuDevicePrimaryCtxRelease_v2(device);
    }
}

_Noreturn static void actor(const char *file, int orders, int answers)
{
    struct runtime rt = {0};
    unsigned char act;
    while (read(orders, &act, 1) == 1) {
        int result = file ? act_by_runtime(file, &rt, act) : act_by_driver(act);
        if (write(answers, &result, sizeof result) != sizeof result)
            break;
    }
    _exit(0);
}

/* The process that NVML charges for what has grown: "own pid", "pid N", or "no process". */
static void charged(NvmlDevice witness, pid_t actor, const NvmlProcess *old, int old_count, char *to, size_t room)
{
    NvmlProcess list[256];
    int count = nvml_processes(witness, list, 256);
    snprintf(to, room, count < 0 ? "NVML does not list processes" : "no process");
    for (int i = 0; i < count; i++) {
        uint64_t before = 0;
        for (int k = 0; k < old_count; k++)
            before = old[k].pid == list[i].pid ? old[k].used : before;
        if (list[i].used > before)
            snprintf(to, room, list[i].pid == (unsigned)actor ? "own pid" : "pid %u", list[i].pid);
    }
}

/* MiB that the context took; -1 where there is none. */
static double watch_actor(NvmlDevice witness, const char *file, const char *name)
{
    int orders[2], answers[2], result = SUCCESS;
    double context = -1;
    if (pipe(orders) != 0 || pipe(answers) != 0)
        give_up("pipe", INVALID_VALUE);
    pid_t child = fork_tied();
    if (child == 0) {
        close(orders[1]);
        actor(file, orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    for (unsigned char act = LOAD; act < END && result == SUCCESS; act++) {
        NvmlProcess list[256];
        char row[56], whom[48];
        int count = nvml_processes(witness, list, 256);
        uint64_t before = nvml_used(witness), from = now_ns();
        snprintf(row, sizeof row, "%s_%s", name, ACTS[act]);
        if (write(orders[1], &act, 1) != 1 || read(answers[0], &result, sizeof result) != sizeof result)
            result = NOT_READY;
        double took = (double)(now_ns() - from) / 1e6;
        pause_ms(20);
        double mib = ((double)nvml_used(witness) - (double)before) / MIB;
        charged(witness, child, list, count, whom, sizeof whom);
        if (result == SUCCESS)
            row_number(row, mib, "MiB", "took %.1f ms; charged to %s", took, whom);
        else if (act == LOAD)
            row_text(row, "absent", "no %s here", file ? file : "libcuda.so.1");
        else
            row_text(row, "refused", "answered %d", result);
        if (act == FIRST && result == SUCCESS)
            context = mib;
    }
    close(orders[1]);
    close(answers[0]);
    reap(child, 5);
    return context;
}

void section_runtime(void)
{
    static const char *const FILES[][2] = {{"libcudart.so.13", "runtime_13"},
                                           {"libcudart.so.12", "runtime_12"},
                                           {"libcudart.so.11.0", "runtime_11"}};
    NvmlDevice witness = witness_open();
    if (!witness)
        give_up("nvmlInit_v2", NOT_FOUND);
    double bare = watch_actor(witness, NULL, "driver");
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        char row[56];
        double context = watch_actor(witness, FILES[i][0], FILES[i][1]);
        snprintf(row, sizeof row, "%s_beyond_driver", FILES[i][1]);
        if (bare >= 0 && context >= 0)
            row_number(row, context - bare, "MiB", "its context less a bare one: private tables, modules, heaps");
    }
}
