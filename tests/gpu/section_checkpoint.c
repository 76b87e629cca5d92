/* Section checkpoint: a process with memory is locked, checkpointed, restored and unlocked, as of driver 570. */
#include "probe.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TENANTS = 3, SAMPLE = 4096, PATTERN = 0x5a };

/* A process that waits for its turn before it opens the driver. */
struct tenant { pid_t pid; int orders, answers; size_t bytes; };

static bool pattern_holds(CUdeviceptr at, size_t bytes)
{
    static unsigned char seen[2 * SAMPLE];
    if (cu.cuMemcpyDtoH_v2(seen, at, SAMPLE) != SUCCESS ||
        cu.cuMemcpyDtoH_v2(seen + SAMPLE, at + bytes - SAMPLE, SAMPLE) != SUCCESS)
        return false;
    for (size_t i = 0; i < sizeof seen; i++)
        if (seen[i] != PATTERN)
            return false;
    return true;
}

/* First order: allocate. Second: compare the bytes with what they were. */
_Noreturn static void hold(int orders, int answers, size_t bytes)
{
    CUdeviceptr at;
    char order, answer = 1;
    if (read(orders, &order, 1) != 1)
        _exit(0);
    report_pipe = -1; /* the section's rows are its parent's */
    bench_open();
    if (cu.cuMemAlloc_v2(&at, bytes) != SUCCESS || cu.cuMemsetD8_v2(at, PATTERN, bytes) != SUCCESS ||
        cu.cuCtxSynchronize() != SUCCESS || write(answers, &answer, 1) != 1 || read(orders, &order, 1) != 1)
        _exit(1);
    answer = pattern_holds(at, bytes);
    _exit(write(answers, &answer, 1) != 1);
}

static struct tenant start(size_t bytes)
{
    int orders[2], answers[2];
    if (pipe(orders) != 0 || pipe(answers) != 0)
        give_up("pipe", INVALID_VALUE);
    struct tenant t = {fork_tied(), orders[1], answers[0], bytes};
    if (t.pid == 0) {
        close(orders[1]);
        close(answers[0]);
        hold(orders[0], answers[1], bytes);
    }
    close(orders[0]);
    close(answers[1]);
    return t;
}

static bool obey(const struct tenant *t)
{
    char word = 0;
    return write(t->orders, &word, 1) == 1 && read(t->answers, &word, 1) == 1 && word == 1;
}

static const char *state_of(pid_t pid)
{
    static const char *const STATES[] = {"running", "locked", "checkpointed", "failed"};
    int state = -1;
    if (cu.cuCheckpointProcessGetState(pid, &state) != SUCCESS)
        return "no state";
    return state >= 0 && state < 4 ? STATES[state] : "unknown";
}

static CUresult lock(int pid)
{
    CUlockArgs args = {.timeout_ms = 5000};
    return cu.cuCheckpointProcessLock(pid, &args);
}
static CUresult checkpoint(int pid) { return cu.cuCheckpointProcessCheckpoint(pid, NULL); }
static CUresult restore(int pid) { return cu.cuCheckpointProcessRestore(pid, NULL); }
static CUresult unlock(int pid) { return cu.cuCheckpointProcessUnlock(pid, NULL); }

struct act { const char *name; CUresult (*call)(int); };
static const struct act ACTS[] = {{"lock", lock}, {"checkpoint", checkpoint}, {"restore", restore}, {"unlock", unlock}};

static void pass_through(const struct tenant *t, NvmlDevice witness)
{
    unsigned mib = (unsigned)(t->bytes >> 20);
    char row[56];
    for (size_t i = 0; i < sizeof ACTS / sizeof *ACTS; i++) {
        uint64_t before = nvml_used(witness), from = now_ns();
        CUresult result = ACTS[i].call(t->pid);
        double took = (double)(now_ns() - from) / 1e6;
        snprintf(row, sizeof row, "%s_%u_MiB", ACTS[i].name, mib);
        if (result != SUCCESS) {
            row_text(row, "refused", "%d %s; the process is %s", result, driver_error(result), state_of(t->pid));
            return;
        }
        pause_ms(20);
        row_number(row, took, "ms", "%+.0f MiB on the device; the process is %s, NVML books %lld MiB on it",
                   ((double)nvml_used(witness) - (double)before) / MIB, state_of(t->pid),
                   (long long)nvml_process_used(witness, (unsigned)t->pid) >> 20);
    }
    snprintf(row, sizeof row, "contents_after_%u_MiB", mib);
    row_text(row, obey(t) ? "right" : "wrong", "first and last 4 KiB");
}

/* A checkpoint is kept in the host's memory: a quarter of what is free there is the most. */
void section_checkpoint(void)
{
    static const size_t SIZES[MOST_TENANTS] = {16u << 20, 256u << 20, (size_t)2 << 30};
    size_t host = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    struct tenant tenants[MOST_TENANTS];
    size_t count = plan.quick ? 2 : MOST_TENANTS;
    while (count > 1 && SIZES[count - 1] > host / 4)
        count--;
    for (size_t i = 0; i < count; i++)
        tenants[i] = start(SIZES[i]); /* before the driver is opened here: it does not survive a fork */
    NvmlDevice witness = witness_open();
    if (driver_open() != 0)
        give_up("dlopen libcuda.so.1", NOT_FOUND);
    MUST(cuInit, 0);
    MUST_HAVE(cuCheckpointProcessGetState);
    MUST_HAVE(cuCheckpointProcessLock);
    MUST_HAVE(cuCheckpointProcessCheckpoint);
    MUST_HAVE(cuCheckpointProcessRestore);
    MUST_HAVE(cuCheckpointProcessUnlock);
    for (size_t i = 0; i < count; i++) {
        if (!obey(&tenants[i])) {
            row_text("tenant", "failed", "no %zu MiB for it", SIZES[i] >> 20);
            continue;
        }
        int thread = -1;
        row_text("state_before", state_of(tenants[i].pid), " ");
        if (cu.cuCheckpointProcessGetRestoreThreadId &&
            cu.cuCheckpointProcessGetRestoreThreadId(tenants[i].pid, &thread) == SUCCESS)
            row_text("restore_thread", thread == tenants[i].pid ? "first thread" : "another thread",
                     "pid %d, thread %d", tenants[i].pid, thread);
        pass_through(&tenants[i], witness);
        close(tenants[i].orders);
    }
}
