/* Sections context, code and pids: what the driver takes by itself, as NVML sees it. */
#include "probe.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the tenant does at each step; the witness looks before and after. */
enum step { INIT, PRIMARY, SECOND, THIRD, DROP_THIRD, DROP_SECOND, DROP_PRIMARY, PRIMARY_AGAIN, LEAVE };
static const char *const STEP_NAMES[] = {"cuInit",       "primary_retain", "second_ctx_create",
                                         "third_ctx_create", "third_ctx_destroy", "second_ctx_destroy",
                                         "primary_release",  "primary_again", "leave"};

/* A process of its own that does one step for each byte it reads, and answers with the time it took. */
static void tenant(int orders, int answers)
{
    CUdevice device = 0;
    CUcontext primary, second = NULL, third = NULL;
    unsigned char step;
    if (driver_open() != 0)
        _exit(1);
    while (read(orders, &step, 1) == 1) {
        uint64_t from = now_ns();
        switch (step) {
        case INIT: MUST(cuInit, 0); MUST(cuDeviceGet, &device, plan.ordinal); break;
        case PRIMARY:
        case PRIMARY_AGAIN: MUST(cuDevicePrimaryCtxRetain, &primary, device); break;
        case SECOND: MUST(cuCtxCreate_v2, &second, 0, device); break;
        case THIRD: MUST(cuCtxCreate_v2, &third, 0, device); break;
        case DROP_THIRD: MUST(cuCtxDestroy_v2, third); break;
        case DROP_SECOND: MUST(cuCtxDestroy_v2, second); break;
        case DROP_PRIMARY: MUST(cuDevicePrimaryCtxRelease_v2, device); break;
        default: exit(0);
        }
        uint64_t took[2] = {from, now_ns()};
        if (write(answers, took, sizeof took) != sizeof took)
            _exit(1);
    }
    exit(0); /* not _exit: the driver's own exit handlers are part of what is measured */
}

struct tenant { pid_t pid; int orders, answers; };

static struct tenant start_tenant(void)
{
    int orders[2], answers[2];
    if (pipe(orders) != 0 || pipe(answers) != 0)
        give_up("pipe", INVALID_VALUE);
    struct tenant t = {fork_tied(), orders[1], answers[0]};
    if (t.pid == 0) {
        close(orders[1]);
        close(answers[0]);
        tenant(orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    return t;
}

/* Milliseconds from `from` until NVML's figure for the device stops at `wanted`; -1 after two seconds. */
static double until_used(NvmlDevice witness, uint64_t wanted, uint64_t from)
{
    while (now_ns() - from < 2000000000u) {
        if (nvml_used(witness) <= wanted)
            return (double)(now_ns() - from) / 1e6;
        pause_ms(0.2);
    }
    return -1;
}

/* Milliseconds from `from` until NVML lists the pid, or no longer does; -1 after two seconds. */
static double until_listed(NvmlDevice witness, pid_t pid, bool listed, uint64_t from)
{
    while (now_ns() - from < 2000000000u) {
        if ((nvml_process_used(witness, (unsigned)pid) >= 0) == listed)
            return (double)(now_ns() - from) / 1e6;
        pause_ms(0.2);
    }
    return -1;
}

static bool take_step(struct tenant *t, NvmlDevice witness, enum step step)
{
    unsigned char order = (unsigned char)step;
    uint64_t took[2], before = nvml_used(witness);
    char name[48];
    if (write(t->orders, &order, 1) != 1 || read(t->answers, took, sizeof took) != sizeof took) {
        row_text(STEP_NAMES[step], "failed", "the process of this step ended");
        return false;
    }
    double listed = step == PRIMARY ? until_listed(witness, t->pid, true, took[1]) : 0;
    pause_ms(20); /* let a late NVML catch up */
    row_number(STEP_NAMES[step], ((double)nvml_used(witness) - (double)before) / MIB, "MiB",
               "took %.1f ms; NVML books %lld MiB on the process", (double)(took[1] - took[0]) / 1e6,
               (long long)nvml_process_used(witness, (unsigned)t->pid) >> 20);
    if (step == PRIMARY) {
        snprintf(name, sizeof name, "nvml_lists_pid_after");
        row_number(name, listed, "ms", "-1: not within two seconds (another pid namespace?)");
    }
    return true;
}

static void see_end(struct tenant *t, NvmlDevice witness, uint64_t idle, const char *how)
{
    char name[48];
    uint64_t from = now_ns();
    if (!strcmp(how, "sigkill"))
        kill(t->pid, SIGKILL);
    else
        close(t->orders);
    waitpid(t->pid, NULL, 0);
    snprintf(name, sizeof name, "reaped_after_%s", how);
    row_number(name, (double)(now_ns() - from) / 1e6, "ms", "waitpid returned");
    snprintf(name, sizeof name, "memory_back_after_%s", how);
    row_number(name, until_used(witness, idle, from), "ms", "NVML used is what it was");
    snprintf(name, sizeof name, "forgotten_after_%s", how);
    row_number(name, until_listed(witness, t->pid, false, from), "ms", "NVML no longer lists the pid");
}

void section_context(void)
{
    NvmlDevice witness = witness_open();
    if (!witness)
        give_up("nvmlInit_v2", NOT_FOUND);
    uint64_t idle = nvml_used(witness);
    struct tenant t = start_tenant();
    for (enum step step = INIT; step < LEAVE; step++)
        if (!take_step(&t, witness, step))
            return;
    see_end(&t, witness, idle, "exit");
    t = start_tenant();
    for (enum step step = INIT; step <= PRIMARY; step++)
        if (!take_step(&t, witness, step))
            return;
    see_end(&t, witness, idle, "sigkill");
}

static void cost(const char *name, size_t before, uint64_t from, const char *what)
{
    row_number(name, ((double)before - (double)memory_free()) / MIB, "MiB", "%s; took %.2f ms", what,
               (double)(now_ns() - from) / 1e6);
}

static void limit_cost(const char *name, int limit, size_t value, CUfunction kernel)
{
    char row[64];
    size_t old = 0, before = memory_free();
    uint64_t from = now_ns();
    if (cu.cuCtxGetLimit && cu.cuCtxGetLimit(&old, limit) == SUCCESS)
        row_number(name, (double)old / MIB, "MiB", "default");
    CUresult result = cu.cuCtxSetLimit ? cu.cuCtxSetLimit(limit, value) : NOT_FOUND;
    snprintf(row, sizeof row, "%s_set", name);
    if (result != SUCCESS)
        return row_text(row, "refused", "%d %s", result, driver_error(result));
    cost(row, before, from, "at cuCtxSetLimit");
    launch_u64(kernel, NULL, 1);
    MUST(cuCtxSynchronize);
    snprintf(row, sizeof row, "%s_set_and_launched", name);
    cost(row, before, from, "after a launch");
}

void section_code(void)
{
    struct bench b = bench_open();
    CUmodule module;
    CUfunction spin, deep;
    CUdeviceptr out;
    int mode = 0;
    if (cu.cuModuleGetLoadingMode && cu.cuModuleGetLoadingMode(&mode) == SUCCESS)
        row_text("loading_mode", mode == 2 ? "lazy" : "eager", "cuModuleGetLoadingMode says %d", mode);
    size_t before = memory_free();
    uint64_t from = now_ns();
    MUST(cuModuleLoadData, &module, SPIN_PTX);
    cost("module_load", before, from, "PTX of one kernel");
    MUST(cuModuleGetFunction, &spin, module, "spin_ns");
    cost("module_get_function", before, from, "since before the load");
    launch_u64(spin, NULL, 1);
    MUST(cuCtxSynchronize);
    cost("module_first_launch", before, from, "since before the load");
    MUST(cuModuleLoadData, &module, DEEP_PTX);
    MUST(cuModuleGetFunction, &deep, module, "deep");
    MUST(cuMemAlloc_v2, &out, 4096);
    before = memory_free();
    from = now_ns();
    uint64_t index = 7;
    void *params[] = {&out, &index};
    MUST(cuLaunchKernel, deep, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
    MUST(cuCtxSynchronize);
    cost("local_memory_16_KiB_a_thread", before, from, "first launch of a kernel that needs it");
    limit_cost("printf_buffer", LIMIT_PRINTF, 64u << 20, spin);
    limit_cost("malloc_heap", LIMIT_HEAP, 256u << 20, spin);
    limit_cost("stack", LIMIT_STACK, 8192, spin);
    before = memory_free();
    from = now_ns();
    MUST(cuModuleUnload, module);
    cost("module_unload", before, from, "negative: given back");
    if (b.witness)
        row_number("nvml_books_on_process", (double)nvml_process_used(b.witness, (unsigned)getpid()) / MIB,
                   "MiB", "at the end of this section");
}

void section_pids(void)
{
    struct bench b = bench_open();
    NvmlProcess list[256];
    char text[96] = "";
    if (!b.witness)
        give_up("nvmlInit_v2", NOT_FOUND);
    pause_ms(50);
    int count = nvml_processes(b.witness, list, 256);
    int64_t mine = nvml_process_used(b.witness, (unsigned)getpid());
    row_number("compute_processes", count, "", "-1: NVML will not say");
    row_text("own_pid_listed", mine >= 0 ? "yes" : "no", "pid %d", getpid());
    for (int i = 0; i < count && i < 8; i++) {
        snprintf(text, sizeof text, "pid %u", list[i].pid);
        row_number(text, (double)list[i].used / MIB, "MiB", "as NVML lists it");
    }
    unsigned room = 0;
    if (!nv.nvmlDeviceGetComputeRunningProcesses_v3)
        row_absent("nvmlDeviceGetComputeRunningProcesses_v3");
    else {
        NvmlResult result = nv.nvmlDeviceGetComputeRunningProcesses_v3(b.witness, &room, list);
        row_number("v3_asked_with_no_room", result, "", "7: insufficient size; count %u", room);
    }
    room = 256;
    if (nv.nvmlDeviceGetGraphicsRunningProcesses_v3) {
        NvmlResult result = nv.nvmlDeviceGetGraphicsRunningProcesses_v3(b.witness, &room, list);
        row_number("graphics_processes_code", result, "", "count %u", room);
    }
    if (nv.nvmlSystemGetProcessName) {
        NvmlResult result = nv.nvmlSystemGetProcessName((unsigned)getpid(), text, sizeof text);
        row_text("process_name", result == NVML_OK ? text : "not told", "NVML's code %d", result);
    }
}
