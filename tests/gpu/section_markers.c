/* Sections markers and turns: what marks cost in each context of a process, and how its contexts take turns. */
#include "probe.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CONTEXTS = 3, EVENTS = 64, ROUNDS = 5 };
enum kind { BARE, EVENT, WRITE, KINDS };

/* One context with what marks need. */
struct place {
    CUcontext context;
    CUstream stream;
    CUfunction spin;
    CUevent events[EVENTS];
    CUdeviceptr word;
};

/* A page of the host, registered once, in the first context, for all of them. */
static CUdeviceptr register_page(void)
{
    CUdeviceptr at = 0;
    void *host = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (host == MAP_FAILED || !cu.cuMemHostRegister_v2 ||
        cu.cuMemHostRegister_v2(host, 4096, HOST_PORTABLE | HOST_MAPPED) != SUCCESS ||
        cu.cuMemHostGetDevicePointer_v2(&at, host, 0) != SUCCESS)
        return 0;
    return at;
}

static void make_place(struct place *place, int i)
{
    char row[56];
    MUST(cuCtxSetCurrent, place->context);
    place->spin = kernel_of(SPIN_PTX, "spin_ns");
    MUST(cuMemAlloc_v2, &place->word, 4096);
    launch_u64(place->spin, NULL, 0);
    MUST(cuCtxSynchronize);
    size_t before = memory_free();
    uint64_t from = now_ns();
    MUST(cuStreamCreate, &place->stream, STREAM_NON_BLOCKING);
    for (int k = 0; k < EVENTS; k++)
        MUST(cuEventCreate, &place->events[k], EVENT_NO_TIMING);
    snprintf(row, sizeof row, "context_%d_stream_and_events", i);
    double took = (double)(now_ns() - from) / 1e3, mib = ((double)before - (double)memory_free()) / MIB;
    row_number(row, mib, "MiB", "a stream and %d events; took %.0f us", EVENTS, took);
}

/* Nanoseconds a launch with its mark, while submitting. */
static double submit(const struct place *place, enum kind kind, CUdeviceptr word, unsigned launches)
{
    uint64_t from = now_ns();
    for (unsigned i = 0; i < launches; i++) {
        launch_u64(place->spin, place->stream, 0);
        if (kind == EVENT)
            MUST(cuEventRecord, place->events[i % EVENTS], place->stream);
        if (kind == WRITE)
            MUST(cuStreamWriteValue32_v2, place->stream, word, i, 0);
    }
    double each = (double)(now_ns() - from) / launches;
    MUST(cuStreamSynchronize, place->stream);
    return each;
}

static double median(const struct place *place, enum kind kind, CUdeviceptr word)
{
    double rounds[ROUNDS];
    for (int r = 0; r < ROUNDS; r++)
        rounds[r] = submit(place, kind, word, plan.quick ? 128 : 1024);
    return spread_of(rounds, ROUNDS).median;
}

/* Whether a stream of this context may write there, and what that costs. */
static void foreign_word(const struct place *place, int i, const char *what, CUdeviceptr word, double bare)
{
    char row[56];
    snprintf(row, sizeof row, "context_%d_write_to_%s", i, what);
    CUresult result = word ? cu.cuStreamWriteValue32_v2(place->stream, word, 1, 0) : NOT_FOUND;
    if (result != SUCCESS || cu.cuStreamSynchronize(place->stream) != SUCCESS)
        return row_text(row, "refused", "%d %s", result, driver_error(result));
    row_number(row, median(place, WRITE, word) - bare, "ns", "added a launch");
}

static void measure_place(const struct place *places, int i, CUdeviceptr page)
{
    const struct place *place = &places[i];
    char row[56];
    MUST(cuCtxSetCurrent, place->context);
    median(place, BARE, 0); /* the first round of a context warms it up */
    double bare = median(place, BARE, 0);
    snprintf(row, sizeof row, "context_%d_bare_launch", i);
    row_number(row, bare, "ns", i == 0 ? "the primary context" : "one made by cuCtxCreate");
    snprintf(row, sizeof row, "context_%d_event", i);
    row_number(row, median(place, EVENT, 0) - bare, "ns", "added a launch");
    if (!cu.cuStreamWriteValue32_v2)
        return row_absent("cuStreamWriteValue32_v2");
    foreign_word(place, i, "own_word", place->word, bare);
    foreign_word(place, i, "shared_page", page, bare);
    if (i > 0)
        foreign_word(place, i, "word_of_primary", places[0].word, bare);
}

/* Marks in all contexts by turns: what changing the current context adds. */
static void by_turns(const struct place *places)
{
    unsigned launches = plan.quick ? 128 : 1024;
    double rounds[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t from = now_ns();
        for (unsigned i = 0; i < launches; i++) {
            const struct place *place = &places[i % CONTEXTS];
            MUST(cuCtxSetCurrent, place->context);
            MUST(cuEventRecord, place->events[i % EVENTS], place->stream);
        }
        rounds[r] = (double)(now_ns() - from) / launches;
        for (int i = 0; i < CONTEXTS; i++)
            MUST(cuStreamSynchronize, places[i].stream);
    }
    struct spread each = spread_of(rounds, ROUNDS);
    row_number("set_current_and_event_by_turns", each.median, "ns", "%.0f to %.0f; over %d contexts", each.least,
               each.most, CONTEXTS);
}

void section_markers(void)
{
    static struct place places[CONTEXTS];
    struct bench b = bench_open();
    places[0].context = b.context;
    for (int i = 1; i < CONTEXTS; i++)
        MUST(cuCtxCreate_v2, &places[i].context, 0, b.device);
    MUST(cuCtxSetCurrent, b.context);
    CUdeviceptr page = register_page();
    row_text("page_of_the_first_context", page ? "registered" : "refused", " ");
    for (int i = 0; i < CONTEXTS; i++)
        make_place(&places[i], i);
    for (int i = 0; i < CONTEXTS; i++)
        measure_place(places, i, page);
    by_turns(places);
    /* An event belongs to its context: what a stream of another one answers. */
    CUresult result = cu.cuEventRecord(places[0].events[0], places[1].stream);
    row_text("event_of_another_context", driver_error(result), "%d from cuEventRecord", result);
}

/* Kernels of a second context of this process, enough to last for the watch, then the watch in the first one. */
void section_turns(void)
{
    CUcontext neighbour;
    double seconds = plan.quick ? 0.2 : 0.5;
    struct bench b = bench_open();
    MUST(cuCtxCreate_v2, &neighbour, 0, b.device);
    CUfunction spin = kernel_of(SPIN_PTX, "spin_ns");
    for (int i = 0; i < (int)(seconds * 1000); i++)
        launch_u64(spin, NULL, 1000000);
    MUST(cuCtxSetCurrent, b.context);
    watch_turns("same_process_", seconds);
    MUST(cuCtxSetCurrent, neighbour);
    uint64_t from = now_ns();
    MUST(cuCtxSynchronize);
    row_number("neighbour_ends_later", (double)(now_ns() - from) / 1e6, "ms",
               "%.0f ms of its kernels were queued before; 0: both ran at once", seconds * 1000);
}
