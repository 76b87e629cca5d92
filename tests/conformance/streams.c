/* Streams, events, modules, captures and graphs. */
#include "suite.h"

#include <stddef.h>
#include <time.h>

enum { LONG_NS = 30000000 };

static CUstream open_stream(void)
{
    CUstream stream;
    WORKS(cuStreamCreate, &stream, STREAM_NON_BLOCKING);
    return stream;
}

static CUevent open_event(unsigned flags)
{
    CUevent event;
    WORKS(cuEventCreate, &event, flags);
    return event;
}

static void a_busy_stream_is_not_ready_until_it_is_done(void)
{
    open_context();
    CUfunction kernel = open_spin();
    CUstream stream = open_stream();
    CUevent event = open_event(EVENT_NO_TIMING);
    WORKS(cuStreamQuery, stream);
    spin(kernel, stream, LONG_NS);
    WORKS(cuEventRecord, event, stream);
    ANSWERS(NOT_READY, cuStreamQuery, stream);
    ANSWERS(NOT_READY, cuEventQuery, event);
    WORKS(cuEventSynchronize, event);
    WORKS(cuEventQuery, event);
    WORKS(cuStreamQuery, stream);
}

static void an_unrecorded_event_is_complete(void)
{
    open_context();
    WORKS(cuEventQuery, open_event(EVENT_NO_TIMING));
}

static void elapsed_time_is_what_the_kernel_took(void)
{
    float ms = 0;
    open_context();
    CUfunction kernel = open_spin();
    CUstream stream = open_stream();
    CUevent from = open_event(EVENT_PLAIN), to = open_event(EVENT_PLAIN);
    spin(kernel, stream, 1);
    WORKS(cuEventRecord, from, stream);
    spin(kernel, stream, LONG_NS);
    WORKS(cuEventRecord, to, stream);
    WORKS(cuEventSynchronize, to);
    WORKS(cuEventElapsedTime, &ms, from, to);
    EXPECT(ms >= 29 && ms < 2000, "a kernel of 30 ms took %.3f ms by events", (double)ms);
}

static void elapsed_time_needs_timing_events(void)
{
    float ms;
    open_context();
    CUstream stream = open_stream();
    CUevent from = open_event(EVENT_NO_TIMING), to = open_event(EVENT_NO_TIMING);
    WORKS(cuEventRecord, from, stream);
    WORKS(cuEventRecord, to, stream);
    WORKS(cuStreamSynchronize, stream);
    ANSWERS(INVALID_HANDLE, cuEventElapsedTime, &ms, from, to);
}

static void a_stream_waits_for_an_event_of_another(void)
{
    open_context();
    CUfunction kernel = open_spin();
    CUstream first = open_stream(), second = open_stream();
    CUevent event = open_event(EVENT_NO_TIMING);
    spin(kernel, first, LONG_NS);
    WORKS(cuEventRecord, event, first);
    WORKS(cuStreamWaitEvent, second, event, 0);
    spin(kernel, second, 1000);
    ANSWERS(NOT_READY, cuStreamQuery, second);
    WORKS(cuStreamSynchronize, second);
    WORKS(cuEventQuery, event);
}

static void a_context_synchronises_all_its_streams(void)
{
    open_context();
    CUfunction kernel = open_spin();
    CUstream first = open_stream(), second = open_stream();
    spin(kernel, first, LONG_NS);
    spin(kernel, second, LONG_NS);
    WORKS(cuCtxSynchronize);
    WORKS(cuStreamQuery, first);
    WORKS(cuStreamQuery, second);
}

static void what_is_not_ptx_is_refused(void)
{
    CUmodule module;
    open_context();
    CUresult result = cu.cuModuleLoadData(&module, "this is no program");
    EXPECT(result != SUCCESS, "nonsense was loaded as a module");
    seen("answer %d", result);
}

static void a_kernel_that_is_not_there_is_not_found(void)
{
    CUmodule module;
    CUfunction kernel;
    open_context();
    WORKS(cuModuleLoadData, &module, SPIN_PTX);
    ANSWERS(NOT_FOUND, cuModuleGetFunction, &kernel, module, "no_such_kernel");
    WORKS(cuModuleUnload, module);
}

static void captured_launches_run_with_the_graph_only(void)
{
    CUgraph graph;
    CUexec exec;
    int status = -1;
    open_context();
    CUfunction kernel = open_spin();
    CUstream captured = open_stream(), runs = open_stream();
    spin(kernel, runs, 1);
    WORKS(cuStreamSynchronize, runs);
    WORKS(cuStreamBeginCapture_v2, captured, CAPTURE_THREAD);
    WORKS(cuStreamIsCapturing, captured, &status);
    EXPECT(status == 1, "a stream being captured says %d", status);
    spin(kernel, captured, LONG_NS);
    WORKS(cuStreamEndCapture, captured, &graph);
    WORKS(cuStreamQuery, captured);
    WORKS(cuGraphInstantiateWithFlags, &exec, graph, 0);
    WORKS(cuGraphLaunch, exec, runs);
    ANSWERS(NOT_READY, cuStreamQuery, runs);
    WORKS(cuStreamSynchronize, runs);
    WORKS(cuGraphExecDestroy, exec);
    WORKS(cuGraphDestroy, graph);
}

static void a_graph_of_a_kernel_node_runs_each_time(void)
{
    CUgraph graph;
    CUexec exec;
    CUnode node;
    uint64_t ns = LONG_NS;
    void *params[] = {&ns};
    struct timespec from, to;
    open_context();
    CUkernelNode kernel = {.function = open_spin(), .grid = {1, 1, 1}, .block = {1, 1, 1}, .params = params};
    CUstream stream = open_stream();
    WORKS(cuGraphCreate, &graph, 0);
    WORKS(cuGraphAddKernelNode_v2, &node, graph, NULL, 0, &kernel);
    WORKS(cuGraphInstantiateWithFlags, &exec, graph, 0);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < 3; i++)
        WORKS(cuGraphLaunch, exec, stream);
    WORKS(cuStreamSynchronize, stream);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
    EXPECT(ms >= 85, "three launches of 30 ms took %.1f ms", ms);
}

static void allocation_is_unsafe_in_a_global_capture_and_allowed_when_relaxed(void)
{
    CUgraph graph = NULL;
    CUdeviceptr at;
    open_context();
    CUstream stream = open_stream();
    WORKS(cuStreamBeginCapture_v2, stream, CAPTURE_GLOBAL);
    CUresult global = cu.cuMemAlloc_v2(&at, 4096);
    CUresult end = cu.cuStreamEndCapture(stream, &graph);
    seen("global: %d, end of capture %d", global, end);
    stream = open_stream();
    WORKS(cuStreamBeginCapture_v2, stream, CAPTURE_RELAXED);
    WORKS(cuMemAlloc_v2, &at, 4096);
    WORKS(cuStreamEndCapture, stream, &graph);
    WORKS(cuMemFree_v2, at);
}

static void captured_allocation_costs_nothing_before_the_launch(void)
{
    CUgraph graph;
    CUdeviceptr at;
    open_context();
    NEEDS(cuMemAllocAsync);
    CUstream stream = open_stream();
    size_t before = bytes_free();
    WORKS(cuStreamBeginCapture_v2, stream, CAPTURE_THREAD);
    WORKS(cuMemAllocAsync, &at, 64 * MIB, stream);
    WORKS(cuMemFreeAsync, at, stream);
    WORKS(cuStreamEndCapture, stream, &graph);
    EXPECT(before - bytes_free() < 64 * MIB, "a captured allocation took memory before any launch");
    WORKS(cuGraphDestroy, graph);
}

const struct check STREAM_CHECKS[] = {
    {"a_busy_stream_is_not_ready_until_it_is_done", a_busy_stream_is_not_ready_until_it_is_done},
    {"an_unrecorded_event_is_complete", an_unrecorded_event_is_complete},
    {"elapsed_time_is_what_the_kernel_took", elapsed_time_is_what_the_kernel_took},
    {"elapsed_time_needs_timing_events", elapsed_time_needs_timing_events},
    {"a_stream_waits_for_an_event_of_another", a_stream_waits_for_an_event_of_another},
    {"a_context_synchronises_all_its_streams", a_context_synchronises_all_its_streams},
    {"what_is_not_ptx_is_refused", what_is_not_ptx_is_refused},
    {"a_kernel_that_is_not_there_is_not_found", a_kernel_that_is_not_there_is_not_found},
    {"captured_launches_run_with_the_graph_only", captured_launches_run_with_the_graph_only},
    {"a_graph_of_a_kernel_node_runs_each_time", a_graph_of_a_kernel_node_runs_each_time},
    {"allocation_is_unsafe_in_a_global_capture_and_allowed_when_relaxed",
     allocation_is_unsafe_in_a_global_capture_and_allowed_when_relaxed},
    {"captured_allocation_costs_nothing_before_the_launch", captured_allocation_costs_nothing_before_the_launch},
    {NULL, NULL},
};
