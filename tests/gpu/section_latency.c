/* Sections latency and marks: what calls take, and what completion marks add to a launch. */
#define _GNU_SOURCE
#include "probe.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_SAMPLES = 2000 };
static double samples[MOST_SAMPLES];

static void row_spread(const char *name, size_t count, const char *note)
{
    struct spread s = spread_of(samples, count);
    row_number(name, s.median / 1000, "us", "p99 %.1f, worst %.1f, n %zu%s", s.p99 / 1000, s.most / 1000, count, note);
}

/* Runs `body` `n` times (a quarter of it when quick), each timed, and reports the spread. */
#define TIMED(name, n, note, body) \
    do { \
        size_t timed_n = plan.quick ? ((n) + 3) / 4 : (n); \
        for (size_t timed_i = 0; timed_i < timed_n; timed_i++) { \
            uint64_t timed_from = now_ns(); \
            body; \
            samples[timed_i] = (double)(now_ns() - timed_from); \
        } \
        row_spread(name, timed_n, note); \
    } while (0)

static void alloc_and_free(size_t bytes, const char *label)
{
    static double frees[MOST_SAMPLES];
    char name[40];
    size_t n = plan.quick ? 40 : 200;
    snprintf(name, sizeof name, "alloc_%s", label);
    if (memory_free() < 2 * bytes)
        return row_text(name, "not measured", "too little memory is free");
    for (size_t i = 0; i < n; i++) {
        CUdeviceptr at;
        uint64_t t0 = now_ns();
        MUST(cuMemAlloc_v2, &at, bytes);
        uint64_t t1 = now_ns();
        MUST(cuMemFree_v2, at);
        samples[i] = (double)(t1 - t0);
        frees[i] = (double)(now_ns() - t1);
    }
    row_spread(name, n, "");
    memcpy(samples, frees, sizeof frees);
    snprintf(name, sizeof name, "free_%s", label);
    row_spread(name, n, "");
}

static void contexts(CUdevice device)
{
    CUcontext made;
    size_t n = plan.quick ? 2 : 5;
    double destroys[8];
    for (size_t i = 0; i < n; i++) {
        uint64_t t0 = now_ns();
        MUST(cuCtxCreate_v2, &made, 0, device);
        uint64_t t1 = now_ns();
        MUST(cuCtxDestroy_v2, made);
        samples[i] = (double)(t1 - t0);
        destroys[i] = (double)(now_ns() - t1);
    }
    row_spread("ctx_create", n, "; a second context");
    memcpy(samples, destroys, sizeof destroys);
    row_spread("ctx_destroy", n, "");
}

void section_latency(void)
{
    struct bench b = bench_open();
    CUfunction spin = kernel_of(SPIN_PTX, "spin_ns");
    CUstream stream;
    CUevent event;
    CUdeviceptr at;
    size_t left, total;
    unsigned char host[4096] = {0};
    MUST(cuStreamCreate, &stream, STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &event, EVENT_NO_TIMING);
    launch_u64(spin, stream, 1);
    MUST(cuStreamSynchronize, stream);
    TIMED("launch", 1000, "; host side, then synchronised every 100", {
        launch_u64(spin, stream, 0);
        if (timed_i % 100 == 99) MUST(cuStreamSynchronize, stream);
    });
    MUST(cuStreamSynchronize, stream);
    TIMED("launch_and_sync", 1000, "", launch_u64(spin, stream, 0); MUST(cuStreamSynchronize, stream));
    TIMED("event_record", 1000, "", MUST(cuEventRecord, event, stream));
    TIMED("event_query", 1000, "", cu.cuEventQuery(event));
    TIMED("stream_query_idle", 1000, "", cu.cuStreamQuery(stream));
    TIMED("mem_get_info", 400, "", MUST(cuMemGetInfo_v2, &left, &total));
    alloc_and_free(4096, "4KiB");
    alloc_and_free(BLOCK, "2MiB");
    alloc_and_free(64u << 20, "64MiB");
    alloc_and_free(1u << 30, "1GiB");
    MUST(cuMemAlloc_v2, &at, sizeof host);
    TIMED("copy_4KiB_to_device", 400, "", MUST(cuMemcpyHtoD_v2, at, host, sizeof host));
    TIMED("copy_4KiB_to_host", 400, "", MUST(cuMemcpyDtoH_v2, host, at, sizeof host));
    if (cu.cuMemAllocAsync)
        TIMED("alloc_async_and_free_async_2MiB", 400, "", {
            MUST(cuMemAllocAsync, &at, BLOCK, stream);
            MUST(cuMemFreeAsync, at, stream);
        });
    MUST(cuStreamSynchronize, stream);
    CUstream other;
    TIMED("stream_create_and_destroy", 100, "", {
        MUST(cuStreamCreate, &other, STREAM_NON_BLOCKING);
        MUST(cuStreamDestroy_v2, other);
    });
    contexts(b.device);
}

/* What marks a completion, and how often. */
enum mark { NONE, EVENT, EVENT_AND_QUERY, WRITE32, WRITE64, WRITE_USAGE };
struct marking { const char *name; enum mark mark; unsigned every; };
static const struct marking MARKINGS[] = {
    {"bare_launch", NONE, 1},
    {"event_every_launch", EVENT, 1},        {"event_every_16", EVENT, 16},
    {"event_every_64", EVENT, 64},           {"event_every_launch_and_query", EVENT_AND_QUERY, 1},
    {"write32_every_launch", WRITE32, 1},    {"write32_every_16", WRITE32, 16},
    {"write32_every_64", WRITE32, 64},       {"write64_every_launch", WRITE64, 1},
    {"write64_every_16", WRITE64, 16},       {"write32_to_shared_page_every_launch", WRITE_USAGE, 1},
    {"write32_to_shared_page_every_16", WRITE_USAGE, 16},
};
enum { MARKING_COUNT = sizeof MARKINGS / sizeof *MARKINGS, ROUNDS = 7, EVENTS = 64 };

struct marks {
    CUfunction spin;
    CUstream stream;
    CUevent events[EVENTS];
    CUdeviceptr device_word, shared_word; /* shared_word 0: registering a shared page failed */
    volatile uint32_t *shared_host;
};

/* A page shared between processes, registered with the driver, as a usage page would be. */
static void open_shared_page(struct marks *m)
{
    int page = memfd_create("usage", MFD_CLOEXEC);
    if (page < 0 || ftruncate(page, 4096) != 0)
        return row_text("shared_page", "failed", "no memfd");
    void *host = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    CUresult result = cu.cuMemHostRegister_v2 ? cu.cuMemHostRegister_v2(host, 4096, HOST_MAPPED) : NOT_FOUND;
    if (result == SUCCESS)
        result = cu.cuMemHostGetDevicePointer_v2(&m->shared_word, host, 0);
    if (result != SUCCESS)
        m->shared_word = 0;
    m->shared_host = host;
    row_text("shared_page", result == SUCCESS ? "registered" : "refused", "memfd page through cuMemHostRegister: %d %s",
             result, result == SUCCESS ? "" : driver_error(result));
}

static bool possible(const struct marks *m, enum mark mark)
{
    switch (mark) {
    case WRITE32: return cu.cuStreamWriteValue32_v2 != NULL;
    case WRITE64: return cu.cuStreamWriteValue64_v2 != NULL;
    case WRITE_USAGE: return cu.cuStreamWriteValue32_v2 && m->shared_word;
    default: return true;
    }
}

static void put_mark(const struct marks *m, enum mark mark, unsigned i)
{
    switch (mark) {
    case NONE: break;
    case EVENT: MUST(cuEventRecord, m->events[i % EVENTS], m->stream); break;
    case EVENT_AND_QUERY:
        MUST(cuEventRecord, m->events[i % EVENTS], m->stream);
        cu.cuEventQuery(m->events[(i + 1) % EVENTS]);
        break;
    case WRITE32: MUST(cuStreamWriteValue32_v2, m->stream, m->device_word, i, 0); break;
    case WRITE64: MUST(cuStreamWriteValue64_v2, m->stream, m->device_word, i, 0); break;
    case WRITE_USAGE: MUST(cuStreamWriteValue32_v2, m->stream, m->shared_word, i, 0); break;
    }
}

/* Nanoseconds a launch: while submitting, and until all was done. */
static void one_round(const struct marks *m, const struct marking *how, unsigned launches, double *host, double *all)
{
    uint64_t from = now_ns();
    for (unsigned i = 1; i <= launches; i++) {
        launch_u64(m->spin, m->stream, 0);
        if (i % how->every == 0)
            put_mark(m, how->mark, i);
    }
    *host = (double)(now_ns() - from) / launches;
    MUST(cuStreamSynchronize, m->stream);
    *all = (double)(now_ns() - from) / launches;
}

/* How long after a kernel's mark the host sees it in the shared page. */
static void mark_delay(const struct marks *m)
{
    enum { TRIES = 50 };
    if (!possible(m, WRITE_USAGE))
        return;
    for (uint32_t i = 0; i < TRIES; i++) {
        uint64_t until = now_ns() + 1000000000u;
        launch_u64(m->spin, m->stream, 20000);
        MUST(cuStreamWriteValue32_v2, m->stream, m->shared_word, 0x10000 + i, 0);
        uint64_t from = now_ns();
        while (*m->shared_host != 0x10000 + i && now_ns() < until)
            ;
        samples[i] = (double)(now_ns() - from);
        MUST(cuStreamSynchronize, m->stream);
    }
    row_spread("shared_page_seen_after", TRIES, "; from the write's submission behind a 20 us kernel");
}

void section_marks(void)
{
    static double host[MARKING_COUNT][ROUNDS], all[MARKING_COUNT][ROUNDS];
    unsigned launches = plan.quick ? 256 : 4096, rounds = plan.quick ? 3 : ROUNDS;
    struct marks m = {0};
    bench_open();
    m.spin = kernel_of(SPIN_PTX, "spin_ns");
    MUST(cuStreamCreate, &m.stream, STREAM_NON_BLOCKING);
    for (int i = 0; i < EVENTS; i++)
        MUST(cuEventCreate, &m.events[i], EVENT_NO_TIMING);
    MUST(cuMemAlloc_v2, &m.device_word, 4096);
    open_shared_page(&m);
    for (unsigned r = 0; r < rounds; r++)
        for (int k = 0; k < MARKING_COUNT; k++)
            if (possible(&m, MARKINGS[k].mark))
                one_round(&m, &MARKINGS[k], launches, &host[k][r], &all[k][r]);
    double bare = spread_of(host[0], rounds).median, bare_all = spread_of(all[0], rounds).median;
    row_number("bare_launch", bare, "ns", "until done: %.0f ns each; %u launches x %u rounds", bare_all, launches, rounds);
    for (int k = 1; k < MARKING_COUNT; k++) {
        if (!possible(&m, MARKINGS[k].mark)) {
            row_text(MARKINGS[k].name, "absent", "the driver cannot do this here");
            continue;
        }
        struct spread h = spread_of(host[k], rounds), a = spread_of(all[k], rounds);
        row_number(MARKINGS[k].name, h.median - bare, "ns", "added a launch (%.0f to %.0f in all); until done %+.0f",
                   h.least, h.most, a.median - bare_all);
    }
    mark_delay(&m);
}
