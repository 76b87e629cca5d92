/* Sections checkpoint and obstacles: a process with memory is locked, checkpointed, restored and unlocked, as of driver
 * 570; and what happens where that is not possible. */
#include "probe.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_TENANTS = 3, SAMPLE = 4096, PATTERN = 0x5a };

/* Memory of a tenant: plain, managed, or all that the device has left beside it. */
enum kind { PLAIN, MANAGED, ALL_LEFT };

/* A process that waits for its turn before it opens the driver. */
struct tenant { pid_t pid; int orders, answers; enum kind kind; size_t bytes; };

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

static CUresult allocate(CUdeviceptr *at, enum kind kind, size_t bytes)
{
    if (kind == PLAIN)
        return cu.cuMemAlloc_v2(at, bytes);
    if (kind == MANAGED)
        return cu.cuMemAllocManaged ? cu.cuMemAllocManaged(at, bytes, MANAGED_GLOBAL) : NOT_FOUND;
    CUresult result = OUT_OF_MEMORY;
    for (size_t piece = memory_free(); piece >= bytes; piece = piece > BLOCK ? piece - piece / 16 : 0)
        while (cu.cuMemAlloc_v2(at, piece) == SUCCESS)
            result = SUCCESS;
    return result;
}

/* First order: allocate. Second: compare the bytes with what they were. */
_Noreturn static void hold(int orders, int answers, enum kind kind, size_t bytes)
{
    CUdeviceptr at;
    char order, answer = 1;
    if (read(orders, &order, 1) != 1)
        _exit(0);
    report_pipe = -1; /* the section's rows are its parent's */
    bench_open();
    if (allocate(&at, kind, bytes) != SUCCESS || cu.cuMemsetD8_v2(at, PATTERN, bytes) != SUCCESS ||
        cu.cuCtxSynchronize() != SUCCESS || write(answers, &answer, 1) != 1 || read(orders, &order, 1) != 1)
        _exit(1);
    answer = pattern_holds(at, bytes);
    _exit(write(answers, &answer, 1) != 1);
}

static struct tenant start(enum kind kind, size_t bytes)
{
    int orders[2], answers[2];
    if (pipe(orders) != 0 || pipe(answers) != 0)
        give_up("pipe", INVALID_VALUE);
    struct tenant t = {fork_tied(), orders[1], answers[0], kind, bytes};
    if (t.pid == 0) {
        close(orders[1]);
        close(answers[0]);
        hold(orders[0], answers[1], kind, bytes);
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

/* Opens the driver to control other processes; false, with a row, where it cannot. */
static bool controller(void)
{
    if (driver_open() != 0)
        give_up("dlopen libcuda.so.1", NOT_FOUND);
    MUST(cuInit, 0);
    const struct { const char *name; bool is_there; } calls[] = {
        {"cuCheckpointProcessGetState", cu.cuCheckpointProcessGetState != NULL},
        {"cuCheckpointProcessLock", cu.cuCheckpointProcessLock != NULL},
        {"cuCheckpointProcessCheckpoint", cu.cuCheckpointProcessCheckpoint != NULL},
        {"cuCheckpointProcessRestore", cu.cuCheckpointProcessRestore != NULL},
        {"cuCheckpointProcessUnlock", cu.cuCheckpointProcessUnlock != NULL},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!calls[i].is_there) {
            row_absent(calls[i].name);
            return false;
        }
    return true;
}

/* Calls in their order until one fails; returns what that answered. */
static CUresult until_refused(const char *what, const struct tenant *t, size_t from, size_t to)
{
    char row[56];
    for (size_t i = from; i < to; i++) {
        CUresult result = ACTS[i].call(t->pid);
        snprintf(row, sizeof row, "%s_%s", what, ACTS[i].name);
        if (result != SUCCESS) {
            row_text(row, "refused", "%d %s; the process is %s", result, driver_error(result), state_of(t->pid));
            return result;
        }
    }
    row_text(row, "granted", "the process is %s", state_of(t->pid));
    return SUCCESS;
}

/* Managed memory; and a restore without room, twice, as the first may have left a process that none can restore. */
void section_obstacles(void)
{
    enum { LOCK, CHECKPOINT, RESTORE, ACT_COUNT = 4 };
    struct tenant managed = start(MANAGED, 16u << 20), starved = start(PLAIN, 256u << 20), filler = start(ALL_LEFT, BLOCK);
    if (!controller())
        return;
    if (obey(&managed))
        until_refused("managed", &managed, LOCK, ACT_COUNT);
    else
        row_text("managed", "failed", "no managed memory for it");
    kill(managed.pid, SIGKILL);
    if (!obey(&starved) || until_refused("starved", &starved, LOCK, RESTORE) != SUCCESS)
        return;
    if (!obey(&filler)) {
        row_text("starved_restore", "not tried", "the device could not be filled");
        return;
    }
    until_refused("starved", &starved, RESTORE, ACT_COUNT);
    kill(filler.pid, SIGKILL);
    waitpid(filler.pid, NULL, 0);
    pause_ms(2000); /* for the driver to have its memory back */
    if (until_refused("with_room_again", &starved, RESTORE, ACT_COUNT) == SUCCESS)
        row_text("contents_with_room_again", obey(&starved) ? "right" : "wrong", "first and last 4 KiB");
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
        tenants[i] = start(PLAIN, SIZES[i]); /* before the driver is opened here: it does not survive a fork */
    NvmlDevice witness = witness_open();
    if (!controller())
        return;
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
