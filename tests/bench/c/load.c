/* A program that keeps a GPU busy, in one of several ways, and counts what it finishes. It obeys lines on its
 * standard input and answers each with a line of numbers, or with `err CODE`.
 *
 * Law: it costs little. It launches ahead and sleeps until there is room for more; it never spins. */
#define _GNU_SOURCE
#include "driver.h"
#include "kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { MOST_THREADS = 8, MOST_LATENCIES = 1 << 16, BATCHES = 4, EVENT_SLEEPS = 1, MOST_BATCH = 60, GRAPH_KERNELS = 20 };
enum { BAD_ORDER = 9001, NO_DRIVER, NO_FILE, NO_THREAD };

/* Gives up a function whose driver call fails. */
#define TRY(call)                \
    do {                         \
        CUresult error_ = (call); \
        if (error_)              \
            return error_;       \
    } while (0)

static CUcontext context;
static CUfunction kernel;
static double turns_per_ns;

/* Kernels of which the lengths are not all the same. */
static uint64_t *trace;
static size_t traced;

static pthread_t threads[MOST_THREADS];
static int running;
static atomic_bool stop;
static atomic_int failed;
static atomic_uint_fast64_t kernels_done, ns_done, begun;

static pthread_mutex_t measured = PTHREAD_MUTEX_INITIALIZER;
static double latencies[MOST_LATENCIES];
static size_t latency_count;

/* What each thread does. */
enum work { FLOOD, ROUNDS, COPIES, FEED };

static struct plan {
    uint64_t ns, ahead_ns, gap_low, gap_high, launches, bytes;
    bool graph;
    enum work work;
} plan;

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void nap_ns(uint64_t ns)
{
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&time, NULL);
}

static int load_kernel(const char *ptx, const char *name, CUfunction *function)
{
    CUmodule module;
    TRY(cu.cuModuleLoadData(&module, ptx));
    return cu.cuModuleGetFunction(function, module, name);
}

/* Turns per nanosecond: a real GPU gets a fixed amount of work, because a kernel that watches the clock would end
 * on time even while another context runs. The simulator knows only the clock. */
static int begin(double turns)
{
    CUdevice device;
    prctl(PR_SET_TIMERSLACK, 1);
    if (driver_open() != 0)
        return NO_DRIVER;
    TRY(cu.cuInit(0));
    TRY(cu.cuDeviceGet(&device, 0));
    TRY(cu.cuDevicePrimaryCtxRetain(&context, device));
    TRY(cu.cuCtxSetCurrent(context));
    turns_per_ns = turns > 0 ? turns : 1;
    return turns > 0 ? load_kernel(WORK_PTX, "work", &kernel) : load_kernel(SPIN_PTX, "spin_ns", &kernel);
}

static int launch(CUstream stream, uint64_t ns)
{
    uint64_t argument = (uint64_t)((double)ns * turns_per_ns);
    void *parameters[] = {&argument};
    return cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

/* The slope between two lengths, so that the launch itself drops out. */
static int calibrate(double *turns)
{
    static const uint64_t TURNS[2] = {200000, 2200000};
    double took[2] = {1e18, 1e18};
    TRY(load_kernel(WORK_PTX, "work", &kernel));
    turns_per_ns = 1;
    for (int round = 0; round < 8; round++)
        for (int i = 0; i < 2; i++) {
            uint64_t from = now_ns();
            TRY(launch(NULL, TURNS[i]));
            TRY(cu.cuCtxSynchronize());
            double ns = (double)(now_ns() - from);
            took[i] = ns < took[i] ? ns : took[i];
        }
    *turns = (double)(TURNS[1] - TURNS[0]) / (took[1] - took[0] > 1 ? took[1] - took[0] : 1);
    return 0;
}

static int read_trace(const char *path)
{
    static uint64_t room[1 << 16];
    FILE *file = fopen(path, "rb");
    if (!file)
        return NO_FILE;
    traced = fread(room, sizeof *room, sizeof room / sizeof *room, file);
    fclose(file);
    trace = room;
    return traced ? 0 : NO_FILE;
}

static uint64_t length_of(size_t number)
{
    return plan.ns ? plan.ns : traced ? trace[number % traced] : 1000000;
}

static int make_graph(CUexec *made)
{
    CUgraph graph;
    CUnode last = NULL, next;
    uint64_t argument = (uint64_t)((double)plan.ns * turns_per_ns);
    void *parameters[] = {&argument};
    CUkernelNode node = {kernel, {1, 1, 1}, {1, 1, 1}, 0, parameters, NULL, NULL, NULL};
    TRY(cu.cuGraphCreate(&graph, 0));
    for (int i = 0; i < GRAPH_KERNELS; i++, last = next)
        TRY(cu.cuGraphAddKernelNode_v2(&next, graph, &last, i > 0, &node));
    return cu.cuGraphInstantiateWithFlags(made, graph, 0);
}

/* What is launched before the next mark. */
struct batch { uint64_t kernels, ns; };

static int launch_batch(CUstream stream, CUexec graph, size_t *number, struct batch *batch)
{
    *batch = (struct batch){0, 0};
    do {
        if (graph) {
            TRY(cu.cuGraphLaunch(graph, stream));
            batch->kernels += GRAPH_KERNELS;
            batch->ns += GRAPH_KERNELS * plan.ns;
        } else {
            uint64_t ns = length_of((*number)++);
            TRY(launch(stream, ns));
            batch->kernels++;
            batch->ns += ns;
        }
    } while (batch->ns < plan.ahead_ns / BATCHES && batch->kernels < MOST_BATCH && !atomic_load(&stop));
    return 0;
}

static void count(const struct batch *batch)
{
    atomic_fetch_add(&kernels_done, batch->kernels);
    atomic_fetch_add(&ns_done, batch->ns);
}

/* Keeps some batches outstanding and sleeps until the oldest is done. */
static int flood(CUstream stream)
{
    CUevent marks[BATCHES];
    struct batch batches[BATCHES];
    CUexec graph = NULL;
    size_t number = 0, made = 0, ended = 0;
    for (int i = 0; i < BATCHES; i++)
        TRY(cu.cuEventCreate(&marks[i], EVENT_NO_TIMING | EVENT_SLEEPS));
    if (plan.graph)
        TRY(make_graph(&graph));
    while (!atomic_load(&stop) || ended < made) {
        if (!atomic_load(&stop) && made < ended + BATCHES) {
            TRY(launch_batch(stream, graph, &number, &batches[made % BATCHES]));
            TRY(cu.cuEventRecord(marks[made++ % BATCHES], stream));
        } else {
            TRY(cu.cuEventSynchronize(marks[ended % BATCHES]));
            count(&batches[ended++ % BATCHES]);
        }
    }
    return 0;
}

static void note(double us)
{
    pthread_mutex_lock(&measured);
    if (latency_count < MOST_LATENCIES)
        latencies[latency_count++] = us;
    pthread_mutex_unlock(&measured);
}

/* Launches some, waits for them, and thinks. */
static int rounds(CUstream stream)
{
    unsigned seed = (unsigned)getpid();
    while (!atomic_load(&stop)) {
        uint64_t from = now_ns(), spread = plan.gap_high - plan.gap_low;
        struct batch batch = {0, 0};
        for (; batch.kernels < plan.launches; batch.kernels++, batch.ns += plan.ns)
            TRY(launch(stream, plan.ns));
        TRY(cu.cuStreamSynchronize(stream));
        note((double)(now_ns() - from) / 1e3);
        count(&batch);
        nap_ns(plan.gap_low + (uint64_t)((double)spread * rand_r(&seed) / RAND_MAX));
    }
    return 0;
}

/* Copies inside the device, some ahead; done work is copies, as their length depends on the device. */
static int copies(CUstream stream)
{
    CUevent marks[BATCHES];
    CUdeviceptr places[2];
    size_t made = 0, ended = 0;
    for (int i = 0; i < 2; i++)
        TRY(cu.cuMemAlloc_v2(&places[i], plan.bytes));
    for (int i = 0; i < BATCHES; i++)
        TRY(cu.cuEventCreate(&marks[i], EVENT_NO_TIMING | EVENT_SLEEPS));
    while (!atomic_load(&stop) || ended < made) {
        if (!atomic_load(&stop) && made < ended + BATCHES) {
            for (uint64_t i = 0; i < plan.launches; i++)
                TRY(cu.cuMemcpyDtoDAsync_v2(places[1], places[0], plan.bytes, stream));
            TRY(cu.cuEventRecord(marks[made++ % BATCHES], stream));
        } else {
            TRY(cu.cuEventSynchronize(marks[ended++ % BATCHES]));
            count(&(struct batch){plan.launches, 0});
        }
    }
    for (int i = 0; i < 2; i++)
        TRY(cu.cuMemFree_v2(places[i]));
    return 0;
}

/* The next input comes from the host while a kernel works on the last: two buffers, and a stream for each kind. */
static int feed(CUstream stream)
{
    CUstream loading;
    CUevent loaded[2], used[2];
    CUdeviceptr places[2];
    void *host;
    TRY(cu.cuStreamCreate(&loading, STREAM_NON_BLOCKING));
    TRY(cu.cuMemAllocHost_v2(&host, plan.bytes));
    for (int i = 0; i < 2; i++) {
        TRY(cu.cuMemAlloc_v2(&places[i], plan.bytes));
        TRY(cu.cuEventCreate(&loaded[i], EVENT_NO_TIMING));
        TRY(cu.cuEventCreate(&used[i], EVENT_NO_TIMING | EVENT_SLEEPS));
    }
    for (size_t step = 0; !atomic_load(&stop); step++) {
        int at = (int)(step % 2);
        if (step >= 2) {
            TRY(cu.cuEventSynchronize(used[at]));
            count(&(struct batch){1, plan.ns});
        }
        TRY(cu.cuMemcpyHtoDAsync_v2(places[at], host, plan.bytes, loading));
        TRY(cu.cuEventRecord(loaded[at], loading));
        TRY(cu.cuStreamWaitEvent(stream, loaded[at], 0));
        TRY(launch(stream, plan.ns));
        TRY(cu.cuEventRecord(used[at], stream));
    }
    TRY(cu.cuStreamSynchronize(stream));
    for (int i = 0; i < 2; i++)
        TRY(cu.cuMemFree_v2(places[i]));
    TRY(cu.cuMemFreeHost(host));
    return cu.cuStreamDestroy_v2(loading);
}

static int work(void)
{
    static int (*const works[])(CUstream) = {[FLOOD] = flood, [ROUNDS] = rounds, [COPIES] = copies, [FEED] = feed};
    CUstream stream;
    prctl(PR_SET_TIMERSLACK, 1);
    TRY(cu.cuCtxSetCurrent(context));
    TRY(cu.cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    uint64_t nobody = 0;
    atomic_compare_exchange_strong(&begun, &nobody, now_ns());
    TRY(works[plan.work](stream));
    return cu.cuStreamDestroy_v2(stream);
}

static void *run(void *unused)
{
    int error = work();
    if (error)
        atomic_store(&failed, error);
    return unused;
}

static int end_work(void)
{
    atomic_store(&stop, true);
    while (running > 0)
        pthread_join(threads[--running], NULL);
    return atomic_load(&failed);
}

/* Answers once the first thread is about to launch, with the moment of that. */
static int start_work(int count, double *at)
{
    TRY(end_work());
    atomic_store(&stop, false);
    atomic_store(&begun, 0);
    for (; running < count && running < MOST_THREADS; running++)
        if (pthread_create(&threads[running], NULL, run, NULL))
            return NO_THREAD;
    while (!atomic_load(&begun) && !atomic_load(&failed))
        nap_ns(100000);
    *at = (double)atomic_load(&begun);
    return atomic_load(&failed);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How many rounds there were since this was asked last, their median, 99th percentile and greatest. */
static void tell_latencies(double answer[4])
{
    pthread_mutex_lock(&measured);
    size_t count = latency_count;
    qsort(latencies, count, sizeof *latencies, ascending);
    answer[0] = (double)count;
    answer[1] = count ? latencies[count / 2] : 0;
    answer[2] = count ? latencies[count * 99 / 100] : 0;
    answer[3] = count ? latencies[count - 1] : 0;
    latency_count = 0;
    pthread_mutex_unlock(&measured);
}

/* How many rounds there were since this or the above was asked last, how many took at most so long, and as above. */
static void tell_within(double us, double answer[4])
{
    size_t within = 0;
    pthread_mutex_lock(&measured);
    for (size_t i = 0; i < latency_count; i++)
        within += latencies[i] <= us;
    pthread_mutex_unlock(&measured);
    tell_latencies(answer);
    answer[1] = (double)within;
}

static int obey(char *line, double answer[4])
{
    unsigned long long a = 0, b = 0, c = 0, d = 0;
    char word[32] = "", path[4096] = "";
    sscanf(line, "%31s %llu %llu %llu %llu", word, &a, &b, &c, &d);
    if (!strcmp(word, "begin")) {
        answer[0] = getpid();
        return begin(strtod(line + strlen(word), NULL));
    }
    if (!strcmp(word, "calibrate"))
        return calibrate(&answer[0]);
    if (!strcmp(word, "trace") && sscanf(line, "%*s %4095s", path) == 1)
        return read_trace(path);
    if (!strcmp(word, "flood")) { /* NS AHEAD_NS GRAPH THREADS */
        plan = (struct plan){.ns = a, .ahead_ns = b, .graph = c};
        return start_work((int)d, &answer[0]);
    }
    if (!strcmp(word, "rounds")) { /* NS GAP_LOW GAP_HIGH LAUNCHES */
        plan = (struct plan){.ns = a, .gap_low = b, .gap_high = c, .launches = d ? d : 1, .work = ROUNDS};
        return start_work(1, &answer[0]);
    }
    if (!strcmp(word, "copies")) { /* BYTES COPIES: so many before each mark */
        plan = (struct plan){.bytes = a, .launches = b, .work = COPIES};
        return start_work(1, &answer[0]);
    }
    if (!strcmp(word, "feed")) { /* NS BYTES */
        plan = (struct plan){.ns = a, .bytes = b, .work = FEED};
        return start_work(1, &answer[0]);
    }
    if (!strcmp(word, "stop")) {
        answer[0] = (double)now_ns();
        return end_work();
    }
    if (!strcmp(word, "done")) {
        answer[0] = (double)atomic_load(&ns_done), answer[1] = (double)atomic_load(&kernels_done);
        return atomic_load(&failed);
    }
    if (!strcmp(word, "latencies"))
        return tell_latencies(answer), atomic_load(&failed);
    if (!strcmp(word, "within")) /* US */
        return tell_within((double)a, answer), atomic_load(&failed);
    return BAD_ORDER;
}

int main(void)
{
    char line[4200];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        double answer[4] = {0};
        int error = obey(line, answer);
        if (error)
            printf("err %d\n", error);
        else
            printf("%.3f %.3f %.3f %.3f\n", answer[0], answer[1], answer[2], answer[3]);
    }
    return 0;
}
