/* Launches in all the ways that could hang behind a gate, one way for each name: WHAT [DETAIL [DEVICE]]. Says "ready"
 * when it has a context and a kernel, waits for a line, does it, and says "done" with how many launches that were and how many ms they took. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t handle;

#define FUNCTIONS(X)                                                                                                    \
    X(cuInit, (unsigned))                                                                                               \
    X(cuDevicePrimaryCtxRetain, (handle *, int))                                                                        \
    X(cuCtxSetCurrent, (handle))                                                                                        \
    X(cuCtxCreate_v2, (handle *, unsigned, int))                                                                        \
    X(cuCtxSynchronize, (void))                                                                                         \
    X(cuModuleLoadData, (handle *, const void *))                                                                       \
    X(cuModuleGetFunction, (handle *, handle, const char *))                                                            \
    X(cuStreamCreate, (handle *, unsigned))                                                                             \
    X(cuStreamDestroy_v2, (handle))                                                                                     \
    X(cuStreamSynchronize, (handle))                                                                                    \
    X(cuStreamBeginCapture_v2, (handle, int))                                                                           \
    X(cuStreamEndCapture, (handle, handle *))                                                                           \
    X(cuStreamWaitValue32_v2, (handle, uint64_t, uint32_t, unsigned))                                                   \
    X(cuStreamWriteValue32_v2, (handle, uint64_t, uint32_t, unsigned))                                                  \
    X(cuMemHostRegister_v2, (void *, size_t, unsigned))                                                                 \
    X(cuMemAlloc_v2, (uint64_t *, size_t))                                                                              \
    X(cuMemcpyDtoH_v2, (void *, uint64_t, size_t))                                                                      \
    X(cuEventCreate, (handle *, unsigned))                                                                              \
    X(cuEventRecord, (handle, handle))                                                                                  \
    X(cuEventSynchronize, (handle))                                                                                     \
    X(cuGraphInstantiateWithFlags, (handle *, handle, unsigned long long))                                              \
    X(cuGraphLaunch, (handle, handle))                                                                                  \
    X(cuLaunchKernel, (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **))

/* Functions that this driver may lack. */
#define NEWER(X)                                                                                                        \
    X(cuCtxSynchronize_v2, (handle))                                                                                    \
    X(cuStreamQuery, (handle))                                                                                          \
    X(cuStreamQuery_ptsz, (handle))                                                                                     \
    X(cuStreamSynchronize_ptsz, (handle))                                                                               \
    X(cuLaunchKernel_ptsz, (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **))

#define DECLARE(name, arguments) static int(*name) arguments;
FUNCTIONS(DECLARE)
NEWER(DECLARE)

static const char code[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                           ".visible .entry spin_us_50() { ret; }\n"
                           ".visible .entry spin_us_1000() { ret; }\n"
                           ".visible .entry spin_ms_40() { ret; }\n";
static handle context, quick, long_one, longest, first, second, event;
static long launches;

#define CHECK(call)                                                                                                     \
    do {                                                                                                                \
        int result_ = (call);                                                                                           \
        if (result_) printf("failed %d %s\n", result_, #call), fflush(stdout), _exit(1);                                 \
    } while (0)

static double ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void launch(handle kernel, handle stream)
{
    CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
}

/* Kernels and streams in the current context. */
static void load(void)
{
    handle module;
    CHECK(cuModuleLoadData(&module, code));
    CHECK(cuModuleGetFunction(&quick, module, "spin_us_50"));
    CHECK(cuModuleGetFunction(&long_one, module, "spin_us_1000"));
    CHECK(cuModuleGetFunction(&longest, module, "spin_ms_40"));
    CHECK(cuStreamCreate(&first, 1));
    CHECK(cuStreamCreate(&second, 1));
}

static void begin(int device)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) printf("failed 0 %s\n", dlerror()), exit(1);
#define FIND(name, arguments) if (!(name = (int(*) arguments)dlsym(driver, #name))) printf("failed 0 no %s\n", #name), exit(1);
    FUNCTIONS(FIND)
#define TRY(name, arguments) name = (int(*) arguments)dlsym(driver, #name);
    NEWER(TRY)
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    load();
}

/* As fast as it can, for so long. */
static void saturate(double length)
{
    for (double end = ms() + length; ms() < end;) launch(long_one, first);
    CHECK(cuStreamSynchronize(first));
}

/* As fast as it can, for so long, without waiting for the rest. */
static void rush(double length)
{
    for (double end = ms() + length; ms() < end;) launch(long_one, first);
}

/* The same in a context of its own, once the first one has launched something. */
static void rush_elsewhere(double length)
{
    handle other;
    launch(quick, first);
    CHECK(cuStreamSynchronize(first));
    CHECK(cuCtxCreate_v2(&other, 0, 0));
    load();
    rush(length);
}

/* By turns in three contexts of one device, for so long, without waiting for the rest. */
static void rush_in_three(double length)
{
    handle contexts[3] = {context}, kernels[3], streams[3];
    for (int i = 0; i < 3; i++) {
        if (i) {
            CHECK(cuCtxCreate_v2(&contexts[i], 0, 0));
            load();
        }
        kernels[i] = long_one, streams[i] = first;
    }
    int turn = 0;
    for (double end = ms() + length; ms() < end; turn = (turn + 1) % 3) {
        CHECK(cuCtxSetCurrent(contexts[turn]));
        launch(kernels[turn], streams[turn]);
    }
}

/* On two devices, a thread for each, for so long, without waiting for the rest. */
static double length_on_each;
static void *rush_on(void *device)
{
    handle own, module, kernel, stream;
    CHECK(cuDevicePrimaryCtxRetain(&own, (int)(intptr_t)device));
    CHECK(cuCtxSetCurrent(own));
    CHECK(cuModuleLoadData(&module, code));
    CHECK(cuModuleGetFunction(&kernel, module, "spin_us_1000"));
    CHECK(cuStreamCreate(&stream, 1));
    for (double end = ms() + length_on_each; ms() < end;) launch(kernel, stream);
    return NULL;
}

static void rush_on_two(double length)
{
    pthread_t threads[2];
    length_on_each = length;
    for (intptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, rush_on, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

/* Bursts of four launches, with as long a time between in which nothing is launched or waited for, for so long. */
static void bursts(double length)
{
    for (double end = ms() + length; ms() < end;) {
        for (int i = 0; i < 4; i++) launch(long_one, first);
        usleep(4000);
    }
}

/* One launch, one wait, for so long. */
static void synchronous(double length)
{
    for (double end = ms() + length; ms() < end;) {
        launch(quick, first);
        CHECK(cuStreamSynchronize(first));
    }
}

/* Queries until a stream has no work left. */
static void query(int (*ask)(handle), handle stream)
{
    int result;
    while ((result = ask(stream)) == 600) usleep(100);
    CHECK(result);
}

/* A wait of one kind behind each launch; "other" waits for a context that is not current. */
static handle other;
static void awaited(const char *how)
{
    int own = !strncmp(how, "own-", 4);
    for (int round = 0; round < 100; round++, launches += own) {
        if (!strcmp(how, "other")) CHECK(cuCtxSetCurrent(context));
        if (own) CHECK(cuLaunchKernel_ptsz(long_one, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL));
        else launch(long_one, first);
        if (!strcmp(how, "stream")) CHECK(cuStreamSynchronize(first));
        else if (!strcmp(how, "query")) query(cuStreamQuery, first);
        else if (!strcmp(how, "own-stream")) CHECK(cuStreamSynchronize_ptsz(0));
        else if (!strcmp(how, "own-query")) query(cuStreamQuery_ptsz, 0);
        else if (!strcmp(how, "context")) CHECK(cuCtxSynchronize());
        else {
            CHECK(cuCtxSetCurrent(other));
            CHECK(cuCtxSynchronize_v2(context));
        }
    }
}

static uint32_t *word;

/* Launches that wait for a value, which a launch after them brings. */
static void value(void)
{
    uint64_t at = (uint64_t)(uintptr_t)word;
    CHECK(cuStreamWaitValue32_v2(first, at, 1, 0));
    for (int i = 0; i < 12; i++) launch(long_one, first);
    launch(quick, second);
    CHECK(cuStreamWriteValue32_v2(second, at, 1, 0));
    CHECK(cuStreamSynchronize(first));
}

/* A kernel that spins until another process of the slice has launched as much: who is second lets both go. */
static void meet(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, 4096)) printf("failed 0 %s\n", path), _exit(1);
    uint32_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    uint64_t at = (uint64_t)(uintptr_t)shared;
    CHECK(cuMemHostRegister_v2(shared, 4096, 2));
    uint32_t mine = __atomic_fetch_add(&shared[2], 1, __ATOMIC_SEQ_CST) & 1;
    for (uint32_t round = 1; round <= 20; round++) {
        launch(long_one, first);
        CHECK(cuStreamWriteValue32_v2(first, at + 4 * mine, round, 0));
        CHECK(cuStreamWaitValue32_v2(first, at + 4 * !mine, round, 0));
        launch(long_one, first);
    }
    CHECK(cuStreamSynchronize(first));
}

/* The same in one process: two threads meet, each in a stream of its own. */
static void *one_rank(void *at)
{
    uint32_t mine = (uint32_t)(uintptr_t)at;
    uint64_t words = (uint64_t)(uintptr_t)word;
    CHECK(cuCtxSetCurrent(context));
    for (uint32_t round = 1; round <= 20; round++) {
        handle stream = mine ? second : first;
        launch(long_one, stream);
        CHECK(cuStreamWriteValue32_v2(stream, words + 4 * mine, round, 0));
        CHECK(cuStreamWaitValue32_v2(stream, words + 4 * !mine, round, 0));
        launch(long_one, stream);
    }
    CHECK(cuStreamSynchronize(mine ? second : first));
    return NULL;
}

static void streams(void)
{
    pthread_t ranks[2];
    for (uintptr_t i = 0; i < 2; i++) pthread_create(&ranks[i], NULL, one_rank, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(ranks[i], NULL);
}

static void record(handle stream, handle *graph)
{
    for (int i = 0; i < 3; i++) CHECK(cuLaunchKernel(long_one, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    if (graph) CHECK(cuStreamEndCapture(stream, graph));
}

/* A capture, with work beside it in another stream, and then the graph. */
static void capture(int mode)
{
    handle graph, ready;
    CHECK(cuStreamBeginCapture_v2(first, mode));
    launch(quick, second);
    record(first, &graph);
    CHECK(cuGraphInstantiateWithFlags(&ready, graph, 0));
    for (int i = 0; i < 5; i++, launches++) CHECK(cuGraphLaunch(ready, first));
    CHECK(cuStreamSynchronize(first));
}

/* Graphs of three kernels, two ahead, for so long. */
static void graphs(double length)
{
    handle graph, ready;
    CHECK(cuStreamBeginCapture_v2(first, 0));
    record(first, &graph);
    CHECK(cuGraphInstantiateWithFlags(&ready, graph, 0));
    for (double end = ms() + length; ms() < end; launches += 2) {
        CHECK(cuGraphLaunch(ready, first));
        CHECK(cuEventRecord(event, first));
        CHECK(cuGraphLaunch(ready, first));
        CHECK(cuEventSynchronize(event));
    }
    CHECK(cuStreamSynchronize(first));
}

/* A capture alone. */
static void record_only(void)
{
    handle graph;
    CHECK(cuStreamBeginCapture_v2(first, 0));
    record(first, &graph);
}

/* A capture that nobody ends. */
static void abandon(int mode)
{
    handle stream;
    CHECK(cuStreamCreate(&stream, 1));
    CHECK(cuStreamBeginCapture_v2(stream, mode));
    record(stream, NULL);
    CHECK(cuStreamDestroy_v2(stream));
    for (int i = 0; i < 20; i++) launch(quick, second);
    CHECK(cuStreamSynchronize(second));
}

/* Waits of all kinds for what was launched before the line came. */
static uint64_t memory;
static void waits(void)
{
    char byte;
    CHECK(cuEventSynchronize(event));
    CHECK(cuStreamSynchronize(first));
    CHECK(cuMemcpyDtoH_v2(&byte, memory, 1));
    CHECK(cuCtxSynchronize());
}

static void forks(void)
{
    launch(quick, first);
    pid_t child = fork();
    if (child == 0) {
        /* The driver is of no use here, and says so or not; coming back at all is what counts. */
        cuLaunchKernel(quick, 1, 1, 1, 1, 1, 1, 0, first, NULL, NULL);
        cuInit(0);
        _exit(42);
    }
    int how = 0;
    waitpid(child, &how, 0);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 42) printf("failed %d the child\n", how), _exit(1);
    for (int i = 0; i < 20; i++) launch(quick, first);
    CHECK(cuStreamSynchronize(first));
}

static void *one_thread(void *unused)
{
    handle stream;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, 1));
    for (int i = 0; i < 200; i++) launch(quick, stream);
    CHECK(cuStreamSynchronize(stream));
    return unused;
}

static void threads(void)
{
    pthread_t all[4];
    for (int i = 0; i < 4; i++) pthread_create(&all[i], NULL, one_thread, NULL);
    for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    const char *detail = count > 2 ? words[2] : "0";
    begin(count > 3 ? atoi(words[3]) : 0);
    CHECK(cuMemAlloc_v2(&memory, 4096));
    CHECK(cuEventCreate(&event, 2));
    word = aligned_alloc(4096, 4096);
    memset(word, 0, 4096);
    CHECK(cuMemHostRegister_v2(word, 4096, 2));
    if (!strcmp(what, "waits")) {
        for (int i = 0; i < 3; i++) launch(longest, first);
        CHECK(cuEventRecord(event, first));
    }
    /* Before: a context costs memory, for which a daemon that is stopped does not answer. */
    if (!strcmp(what, "awaited")) {
        CHECK(cuCtxCreate_v2(&other, 0, 0));
        CHECK(cuCtxSetCurrent(context));
    }
    printf("ready %d\n", getpid()), fflush(stdout);
    char line[64];
    if (!fgets(line, sizeof line, stdin)) return 1;
    double start = ms();
    if (!strcmp(what, "saturate")) saturate(atof(detail));
    else if (!strcmp(what, "rush")) rush(atof(detail));
    else if (!strcmp(what, "elsewhere")) rush_elsewhere(atof(detail));
    else if (!strcmp(what, "three")) rush_in_three(atof(detail));
    else if (!strcmp(what, "devices")) rush_on_two(atof(detail));
    else if (!strcmp(what, "bursts")) bursts(atof(detail));
    else if (!strcmp(what, "synchronous")) synchronous(atof(detail));
    else if (!strcmp(what, "awaited")) awaited(detail);
    else if (!strcmp(what, "value")) value();
    else if (!strcmp(what, "meet")) meet(detail);
    else if (!strcmp(what, "streams")) streams();
    else if (!strcmp(what, "graphs")) graphs(atof(detail));
    else if (!strcmp(what, "capture")) capture(atoi(detail));
    else if (!strcmp(what, "record")) record_only();
    else if (!strcmp(what, "abandon")) abandon(atoi(detail));
    else if (!strcmp(what, "waits")) waits();
    else if (!strcmp(what, "fork")) forks();
    else if (!strcmp(what, "threads")) threads();
    else synchronous(0.001);
    printf("done %ld %.3f\n", launches, ms() - start), fflush(stdout);
    /* Stays until it is told to go, so that its record can be read. */
    if (!fgets(line, sizeof line, stdin)) return 1;
    return 0;
}
