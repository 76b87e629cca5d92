/* Sections sharing, slices and rates: who gets the GPU's time when several contexts want it. */
#include "probe.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_PARTIES = 4 };

/* One page all parties of a scenario share: a gate, a stop, and each one's count. */
struct stage {
    _Atomic int ready, go, stop;
    _Atomic uint64_t done[MOST_PARTIES];
    double turns_per_ns;
};
static struct stage *stage;

/* Kernel of a given length. Real GPUs get a fixed amount of work: a kernel that waits for the
 * clock would end on time even while another context runs. The simulator knows only spin_ns. */
static CUfunction timed_kernel(void)
{
    return plan.simulated ? kernel_of(SPIN_PTX, "spin_ns") : kernel_of(WORK_PTX, "work");
}

static uint64_t argument_for(double ns) { return (uint64_t)(ns * (plan.simulated ? 1.0 : stage->turns_per_ns)); }

/* Solo: the slope between two lengths, so that the launch itself drops out. */
static void calibrate(void)
{
    CUfunction work = kernel_of(WORK_PTX, "work");
    double took[2] = {1e18, 1e18};
    static const uint64_t TURNS[2] = {200000, 2200000};
    for (int round = 0; round < 6; round++)
        for (int i = 0; i < 2; i++) {
            uint64_t from = now_ns();
            launch_u64(work, NULL, TURNS[i]);
            MUST(cuCtxSynchronize);
            double ns = (double)(now_ns() - from);
            took[i] = ns < took[i] ? ns : took[i];
        }
    stage->turns_per_ns = (double)(TURNS[1] - TURNS[0]) / (took[1] - took[0] > 1 ? took[1] - took[0] : 1);
}

/* One tenant: keeps a few kernels of `ns` outstanding until told to stop, and counts those done. */
static void party(int who, double ns, int depth)
{
    CUstream stream;
    CUevent marks[8];
    bench_open();
    CUfunction kernel = timed_kernel();
    MUST(cuStreamCreate, &stream, STREAM_NON_BLOCKING);
    for (int i = 0; i < depth; i++)
        MUST(cuEventCreate, &marks[i], EVENT_NO_TIMING);
    launch_u64(kernel, stream, argument_for(1000));
    MUST(cuStreamSynchronize, stream);
    atomic_fetch_add(&stage->ready, 1);
    while (!atomic_load(&stage->go))
        pause_ms(0.1);
    for (uint64_t i = 0; !atomic_load(&stage->stop); i++) {
        if (i >= (uint64_t)depth) {
            MUST(cuEventSynchronize, marks[i % (uint64_t)depth]);
            atomic_fetch_add(&stage->done[who], !atomic_load(&stage->stop));
        }
        launch_u64(kernel, stream, argument_for(ns));
        MUST(cuEventRecord, marks[i % (uint64_t)depth], stream);
    }
    cu.cuStreamSynchronize(stream);
    _exit(0);
}

/* Runs `count` parties together; GPU time each got, as permille of wall time. False: one failed. */
static bool share(int count, const double *ns, double seconds, double *permille)
{
    pid_t pids[MOST_PARTIES];
    bool all_well = true;
    atomic_store(&stage->ready, 0);
    atomic_store(&stage->go, 0);
    atomic_store(&stage->stop, 0);
    for (int i = 0; i < count; i++) {
        atomic_store(&stage->done[i], 0);
        pids[i] = fork_tied();
        if (pids[i] == 0)
            party(i, ns[i], ns[i] < 1e6 ? 8 : 4);
    }
    for (uint64_t until = now_ns() + 10000000000u; atomic_load(&stage->ready) < count && now_ns() < until;)
        pause_ms(1);
    uint64_t from = now_ns();
    atomic_store(&stage->go, 1);
    pause_ms(seconds * 1000);
    atomic_store(&stage->stop, 1);
    double wall = (double)(now_ns() - from);
    for (int i = 0; i < count; i++) {
        all_well &= reap(pids[i], 5);
        permille[i] = 1000.0 * (double)atomic_load(&stage->done[i]) * ns[i] / wall;
    }
    return all_well;
}

struct scenario { const char *name; int count; double ns[MOST_PARTIES]; };
static const struct scenario SCENARIOS[] = {
    {"solo_1ms", 1, {1e6}},
    {"solo_100us", 1, {1e5}},
    {"two_1ms_1ms", 2, {1e6, 1e6}},
    {"two_100us_10ms", 2, {1e5, 1e7}},
    {"two_1ms_40ms", 2, {1e6, 4e7}},
    {"three_1ms", 3, {1e6, 1e6, 1e6}},
    {"three_100us_1ms_10ms", 3, {1e5, 1e6, 1e7}},
};

static void open_stage(void)
{
    stage = mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stage == MAP_FAILED)
        give_up("mmap", OUT_OF_MEMORY);
}

/* The driver must not be open in the process that forks parties: calibration has its own. */
static void calibrate_apart(void)
{
    pid_t child = fork_tied();
    if (child == 0) {
        bench_open();
        calibrate();
        _exit(0);
    }
    if (!reap(child, 15))
        give_up("calibration", NOT_READY);
}

void section_sharing(void)
{
    open_stage();
    if (!plan.simulated) {
        calibrate_apart();
        row_number("work_turns_per_us", stage->turns_per_ns * 1000, "turns", "fixed-work kernels, not clock-bound ones");
    }
    double seconds = plan.quick ? 0.4 : 3.0;
    for (size_t s = 0; s < sizeof SCENARIOS / sizeof *SCENARIOS; s++) {
        const struct scenario *it = &SCENARIOS[s];
        double got[MOST_PARTIES], sum = 0;
        char text[96] = "";
        if (!share(it->count, it->ns, seconds, got)) {
            row_text(it->name, "failed", "a process of this scenario ended early");
            continue;
        }
        for (int i = 0; i < it->count; i++) {
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%.0f", i ? " " : "", got[i]);
            sum += got[i];
        }
        row_text(it->name, text, "permille of GPU time each; %.0f in all", sum);
    }
}

/* A kernel that watches the clock sees a jump whenever its context is not running. */
void watch_turns(const char *what, double seconds)
{
    enum { ROOM = 2000 };
    static uint64_t log[1 + 2 * ROOM];
    static double runs[ROOM], gaps[ROOM];
    char seen[56], length[56], away[56];
    CUdeviceptr at;
    CUfunction watch = kernel_of(WATCH_PTX, "watch");
    uint64_t ns = (uint64_t)(seconds * 1e9), gap = 20000, room = ROOM;
    MUST(cuMemAlloc_v2, &at, sizeof log);
    MUST(cuMemsetD8_v2, at, 0, sizeof log);
    void *params[] = {&ns, &gap, &at, &room};
    MUST(cuLaunchKernel, watch, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
    MUST(cuCtxSynchronize);
    MUST(cuMemcpyDtoH_v2, log, at, sizeof log);
    size_t count = log[0] < ROOM ? (size_t)log[0] : ROOM;
    snprintf(seen, sizeof seen, "%sturns_seen", what);
    snprintf(length, sizeof length, "%sturn_length", what);
    snprintf(away, sizeof away, "%saway_length", what);
    if (count < 3)
        return row_number(seen, (double)count, "",
                          plan.simulated ? "simulated kernels compute nothing" : "no context switch was seen");
    for (size_t i = 0; i < count; i++)
        gaps[i] = (double)(log[2 + 2 * i] - log[1 + 2 * i]) / 1000;
    for (size_t i = 1; i < count; i++)
        runs[i - 1] = (double)(log[1 + 2 * i] - log[2 * i]) / 1000;
    struct spread run = spread_of(runs, count - 1), gone = spread_of(gaps, count);
    row_number(seen, (double)count, "", "in %.1f s", seconds);
    row_number(length, run.median, "us", "p99 %.0f, %.0f to %.0f", run.p99, run.least, run.most);
    row_number(away, gone.median, "us", "p99 %.0f, %.0f to %.0f; turn + away of one neighbour", gone.p99, gone.least,
               gone.most);
}

void section_slices(void)
{
    open_stage();
    if (!plan.simulated)
        calibrate_apart();
    pid_t neighbour = fork_tied();
    if (neighbour == 0)
        party(0, 1e6, 4);
    for (uint64_t until = now_ns() + 10000000000u; !atomic_load(&stage->ready) && now_ns() < until;)
        pause_ms(1);
    atomic_store(&stage->go, 1);
    pid_t watcher = fork_tied();
    if (watcher == 0) {
        bench_open();
        watch_turns("", plan.quick ? 0.2 : 1.0);
        _exit(0);
    }
    bool seen = reap(watcher, 15);
    atomic_store(&stage->stop, 1);
    reap(neighbour, 5);
    if (!seen)
        give_up("watch", NOT_READY);
}

/* Milliseconds between changes of the newest GPU sample, over half a second of load. */
static void sample_period(NvmlDevice witness)
{
    static NvmlSample list[512];
    unsigned count = 512;
    int type = 0;
    if (!nv.nvmlDeviceGetSamples)
        return row_absent("nvmlDeviceGetSamples");
    NvmlResult result = nv.nvmlDeviceGetSamples(witness, NVML_GPU_SAMPLES, 0, &type, &count, list);
    if (result != NVML_OK || count < 3)
        return row_number("gpu_samples_code", result, "", "count %u", count);
    static double periods[512];
    for (unsigned i = 1; i < count; i++)
        periods[i - 1] = (double)(list[i].at_us - list[i - 1].at_us) / 1000;
    struct spread p = spread_of(periods, count - 1);
    row_number("gpu_sample_period", p.median, "ms", "%.1f to %.1f, %u kept", p.least, p.most, count);
}

static void process_rates(NvmlDevice witness, pid_t pid)
{
    static NvmlProcessRate list[256];
    unsigned count = 256, found = 0, ours = 0;
    if (!nv.nvmlDeviceGetProcessUtilization)
        return row_absent("nvmlDeviceGetProcessUtilization");
    NvmlResult result = nv.nvmlDeviceGetProcessUtilization(witness, list, &count, 0);
    for (unsigned i = 0; result == NVML_OK && i < count; i++)
        if (list[i].pid == (unsigned)pid) {
            found = 1;
            ours = list[i].sm;
        }
    row_number("process_utilisation_code", result, "", "0: available; %u samples, ours %s at %u %%", count,
               found ? "listed" : "not listed", ours);
}

void section_rates(void)
{
    open_stage();
    if (!plan.simulated)
        calibrate_apart();
    NvmlRates rates = {0};
    pid_t load = fork_tied(); /* before NVML is opened here: neither library likes a fork */
    if (load == 0)
        party(0, 1e6, 4);
    NvmlDevice witness = witness_open();
    if (!witness || !nv.nvmlDeviceGetUtilizationRates)
        return row_absent("nvmlDeviceGetUtilizationRates");
    while (!atomic_load(&stage->ready))
        pause_ms(1); /* the section's alarm bounds this */
    uint64_t from = now_ns();
    NvmlResult result = NVML_OK;
    do {
        pause_ms(1);
        result = nv.nvmlDeviceGetUtilizationRates(witness, &rates);
    } while (result == NVML_OK && rates.gpu && now_ns() - from < 3000000000u);
    row_number("idle_utilisation", rates.gpu, "%", "NVML's code %d, after %.0f ms without load", result,
               (double)(now_ns() - from) / 1e6);
    from = now_ns();
    atomic_store(&stage->go, 1);
    double late = -1;
    while (late < 0 && now_ns() - from < 3000000000u) {
        if (nv.nvmlDeviceGetUtilizationRates(witness, &rates) == NVML_OK && rates.gpu >= 50)
            late = (double)(now_ns() - from) / 1e6;
        pause_ms(1);
    }
    row_number("half_load_seen_after", late, "ms", "-1: not within three seconds");
    pause_ms(plan.quick ? 300 : 2000);
    nv.nvmlDeviceGetUtilizationRates(witness, &rates);
    row_number("busy_utilisation", rates.gpu, "%", "under a saturating load");
    sample_period(witness);
    process_rates(witness, load);
    atomic_store(&stage->stop, 1);
    reap(load, 5);
}
