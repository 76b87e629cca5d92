/* The plumbing of the sections: contexts, clocks, processes. */
#include "probe.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void give_up(const char *call, CUresult result)
{
    if (result == NOT_FOUND)
        row_text(call, "failed", "not found, so the rest of this section was not measured");
    else
        row_text(call, "failed", "%d %s: the rest of this section was not measured", result,
                 driver_error(result));
    _exit(3);
}

NvmlDevice witness_open(void)
{
    return nvml_open() == NVML_OK ? nvml_device(plan.uuid.bytes) : NULL;
}

struct bench bench_open(void)
{
    struct bench bench = {0};
    if (driver_open() != 0)
        give_up("dlopen libcuda.so.1", NOT_FOUND);
    bench.witness = witness_open();
    MUST(cuInit, 0);
    MUST(cuDeviceGet, &bench.device, plan.ordinal);
    MUST(cuDevicePrimaryCtxRetain, &bench.context, bench.device);
    MUST(cuCtxSetCurrent, bench.context);
    return bench;
}

CUfunction kernel_of(const char *ptx, const char *name)
{
    CUmodule module;
    CUfunction function;
    MUST(cuModuleLoadData, &module, ptx);
    MUST(cuModuleGetFunction, &function, module, name);
    return function;
}

void launch_u64(CUfunction kernel, CUstream stream, uint64_t argument)
{
    void *params[] = {&argument};
    MUST(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void pause_ms(double ms)
{
    struct timespec rest = {(time_t)(ms / 1000), (long)(ms * 1e6) % 1000000000};
    nanosleep(&rest, NULL);
}

size_t memory_free(void)
{
    size_t left = 0, total = 0;
    MUST(cuMemGetInfo_v2, &left, &total);
    return left;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread spread_of(double *samples, size_t count)
{
    if (count == 0)
        return (struct spread){0};
    qsort(samples, count, sizeof *samples, ascending);
    return (struct spread){samples[count / 2], samples[(count * 99) / 100], samples[0],
                           samples[count - 1]};
}

pid_t fork_tied(void)
{
    pid_t parent = getpid(), child = fork();
    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    return 0;
}

bool reap(pid_t child, double seconds)
{
    int status = 0;
    uint64_t until = now_ns() + (uint64_t)(seconds * 1e9);
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (now_ns() > until)
            kill(child, SIGKILL);
        pause_ms(1);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
