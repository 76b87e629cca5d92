/* Section capture: what a thread may call while one of its streams is being captured.
 *
 * Each trial captures a fresh stream, makes one call, ends the capture, and says what
 * both answered. Every trial's own objects are made before the capture begins. */
#include "probe.h"

#include <string.h>

struct scene {
    CUstream captured, other;
    CUevent idle, fresh;
    CUfunction spin;
    CUdeviceptr spare, word;
};
static struct scene scene;

static CUresult event_query(void) { return cu.cuEventQuery(scene.idle); }
static CUresult event_record_other(void) { return cu.cuEventRecord(scene.fresh, scene.other); }
static CUresult event_record_captured(void) { return cu.cuEventRecord(scene.fresh, scene.captured); }

static CUresult event_record_captured_and_query(void)
{
    CUresult result = cu.cuEventRecord(scene.fresh, scene.captured);
    return result == SUCCESS ? cu.cuEventQuery(scene.fresh) : result;
}

static CUresult stream_query_captured(void) { return cu.cuStreamQuery(scene.captured); }
static CUresult stream_query_other(void) { return cu.cuStreamQuery(scene.other); }
static CUresult stream_sync_other(void) { return cu.cuStreamSynchronize(scene.other); }
static CUresult ctx_sync(void) { return cu.cuCtxSynchronize(); }

static CUresult is_capturing_other(void)
{
    int status;
    return cu.cuStreamIsCapturing(scene.other, &status);
}

static CUresult is_capturing_legacy(void)
{
    int status;
    return cu.cuStreamIsCapturing(NULL, &status);
}

static CUresult mem_alloc(void)
{
    CUdeviceptr at;
    CUresult result = cu.cuMemAlloc_v2(&at, 4096);
    if (result == SUCCESS)
        scene.spare = at; /* freed after the capture */
    return result;
}

static CUresult mem_free(void)
{
    CUresult result = cu.cuMemFree_v2(scene.word);
    if (result == SUCCESS)
        scene.word = 0;
    return result;
}

static CUresult mem_get_info(void)
{
    size_t left, total;
    return cu.cuMemGetInfo_v2(&left, &total);
}

static CUresult mem_alloc_async_captured(void)
{
    CUdeviceptr at;
    return cu.cuMemAllocAsync(&at, 4096, scene.captured); /* a graph node: nothing to free */
}

static CUresult mem_alloc_async_other(void)
{
    CUdeviceptr at;
    CUresult result = cu.cuMemAllocAsync(&at, 4096, scene.other);
    if (result == SUCCESS)
        cu.cuMemFreeAsync(at, scene.other);
    return result;
}

static CUresult host_alloc(void)
{
    void *at;
    CUresult result = cu.cuMemHostAlloc(&at, 4096, 0);
    if (result == SUCCESS)
        cu.cuMemFreeHost(at);
    return result;
}

static CUresult write_value_captured(void) { return cu.cuStreamWriteValue32_v2(scene.captured, scene.word, 1, 0); }
static CUresult write_value_other(void) { return cu.cuStreamWriteValue32_v2(scene.other, scene.word, 1, 0); }

static CUresult launch_on(CUstream stream)
{
    uint64_t ns = 0;
    void *params[] = {&ns};
    return cu.cuLaunchKernel(scene.spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static CUresult launch_captured(void) { return launch_on(scene.captured); }
static CUresult launch_other(void) { return launch_on(scene.other); }
static CUresult launch_legacy(void) { return launch_on(NULL); }

static CUresult module_load(void)
{
    CUmodule module;
    return cu.cuModuleLoadData(&module, SPIN_PTX);
}

/* What a shim would do: step out into relaxed mode for its own call. */
static CUresult relaxed(CUresult (*call)(void))
{
    int mode = CAPTURE_RELAXED;
    if (!cu.cuThreadExchangeStreamCaptureMode || cu.cuThreadExchangeStreamCaptureMode(&mode) != SUCCESS)
        return NOT_SUPPORTED;
    CUresult result = call();
    cu.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

static CUresult relaxed_mem_alloc(void) { return relaxed(mem_alloc); }
static CUresult relaxed_event_query(void) { return relaxed(event_query); }
static CUresult relaxed_stream_query_other(void) { return relaxed(stream_query_other); }

/* `needs` is the address of the function pointer the trial stands on. */
struct trial { const char *name; CUresult (*call)(void); const void *needs; };
static const struct trial TRIALS[] = {
    {"launch_captured", launch_captured, &cu.cuLaunchKernel},
    {"launch_other_stream", launch_other, &cu.cuLaunchKernel},
    {"launch_legacy_stream", launch_legacy, &cu.cuLaunchKernel},
    {"event_query_idle", event_query, &cu.cuEventQuery},
    {"event_query_relaxed", relaxed_event_query, &cu.cuEventQuery},
    {"event_record_other_stream", event_record_other, &cu.cuEventRecord},
    {"event_record_captured", event_record_captured, &cu.cuEventRecord},
    {"event_record_captured_then_query", event_record_captured_and_query, &cu.cuEventQuery},
    {"stream_query_captured", stream_query_captured, &cu.cuStreamQuery},
    {"stream_query_other", stream_query_other, &cu.cuStreamQuery},
    {"stream_query_other_relaxed", relaxed_stream_query_other, &cu.cuStreamQuery},
    {"stream_sync_other", stream_sync_other, &cu.cuStreamSynchronize},
    {"ctx_sync", ctx_sync, &cu.cuCtxSynchronize},
    {"is_capturing_other", is_capturing_other, &cu.cuStreamIsCapturing},
    {"is_capturing_legacy", is_capturing_legacy, &cu.cuStreamIsCapturing},
    {"mem_alloc", mem_alloc, &cu.cuMemAlloc_v2},
    {"mem_alloc_relaxed", relaxed_mem_alloc, &cu.cuMemAlloc_v2},
    {"mem_free", mem_free, &cu.cuMemFree_v2},
    {"mem_get_info", mem_get_info, &cu.cuMemGetInfo_v2},
    {"mem_alloc_async_captured", mem_alloc_async_captured, &cu.cuMemAllocAsync},
    {"mem_alloc_async_other", mem_alloc_async_other, &cu.cuMemAllocAsync},
    {"host_alloc", host_alloc, &cu.cuMemHostAlloc},
    {"write_value32_captured", write_value_captured, &cu.cuStreamWriteValue32_v2},
    {"write_value32_other", write_value_other, &cu.cuStreamWriteValue32_v2},
    {"module_load", module_load, &cu.cuModuleLoadData},
};

static void set_scene(void)
{
    MUST(cuStreamCreate, &scene.captured, STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &scene.other, STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &scene.idle, EVENT_NO_TIMING);
    MUST(cuEventCreate, &scene.fresh, EVENT_NO_TIMING);
    MUST(cuEventRecord, scene.idle, scene.other);
    MUST(cuMemAlloc_v2, &scene.word, 4096);
    MUST(cuCtxSynchronize);
}

static void strike_scene(void)
{
    cu.cuCtxSynchronize();
    if (scene.spare)
        cu.cuMemFree_v2(scene.spare);
    if (scene.word)
        cu.cuMemFree_v2(scene.word);
    scene.spare = scene.word = 0;
    cu.cuEventDestroy_v2(scene.idle);
    cu.cuEventDestroy_v2(scene.fresh);
    cu.cuStreamDestroy_v2(scene.other);
    cu.cuStreamDestroy_v2(scene.captured);
}

/* "0" legal and the graph is whole; "900" refused; "900/901" refused and the capture is lost. */
static void try_in_mode(const struct trial *trial, int mode, char *to, size_t room)
{
    CUgraph graph = NULL;
    set_scene();
    CUresult begun = cu.cuStreamBeginCapture_v2(scene.captured, mode);
    CUresult called = begun == SUCCESS ? trial->call() : begun;
    CUresult ended = begun == SUCCESS ? cu.cuStreamEndCapture(scene.captured, &graph) : begun;
    if (ended == SUCCESS)
        snprintf(to, room, "%d", called);
    else
        snprintf(to, room, "%d/%d", called, ended);
    if (graph)
        cu.cuGraphDestroy(graph);
    strike_scene();
}

void section_capture(void)
{
    bench_open();
    if (!cu.cuStreamBeginCapture_v2 || !cu.cuStreamEndCapture)
        return row_absent("cuStreamBeginCapture_v2");
    scene.spin = kernel_of(SPIN_PTX, "spin_ns");
    for (size_t i = 0; i < sizeof TRIALS / sizeof *TRIALS; i++) {
        char mode[3][16], text[64];
        if (!*(void *const *)TRIALS[i].needs) {
            row_absent(TRIALS[i].name);
            continue;
        }
        for (int m = CAPTURE_GLOBAL; m <= CAPTURE_RELAXED; m++)
            try_in_mode(&TRIALS[i], m, mode[m], sizeof mode[m]);
        snprintf(text, sizeof text, "%s %s %s", mode[0], mode[1], mode[2]);
        row_text(TRIALS[i].name, text, "global, thread-local, relaxed: call[/end of capture if it failed]");
    }
}
