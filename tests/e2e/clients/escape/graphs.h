/* Routes of graphs: memory nodes take memory when the graph runs, and keep it reserved afterwards. */

struct alloc_node { /* CUDA_MEM_ALLOC_NODE_PARAMS */
    struct pool_properties pool;
    void *access;
    size_t access_count, bytes;
    Address address;
};
struct any_node { /* CUgraphNodeParams */
    int kind, reserved[3];
    union { struct alloc_node alloc; Address free; uint64_t room[29]; } in;
    uint64_t reserved_too;
};
enum { ALLOC_NODE = 10 };

static struct alloc_node asked(size_t bytes) {
    struct alloc_node node = {.pool = {.type = 1, .location_type = 1, .location = device}, .bytes = bytes};
    return node;
}

typedef int (*Adder)(Handle graph, size_t bytes, Handle *node, Address *address);

static int by_alloc_node(Handle graph, size_t bytes, Handle *node, Address *address) {
    struct alloc_node parameters = asked(bytes);
    int answer = CUDA("cuGraphAddMemAllocNode", (Handle *, Handle, Handle *, size_t, void *), node, graph, NULL, 0,
                      &parameters);
    *address = parameters.address;
    return answer;
}
static int by_any_node(Handle graph, size_t bytes, Handle *node, Address *address) {
    struct any_node parameters = {.kind = ALLOC_NODE, .in.alloc = asked(bytes)};
    int answer = CUDA("cuGraphAddNode", (Handle *, Handle, Handle *, size_t, void *), node, graph, NULL, 0, &parameters);
    *address = parameters.in.alloc.address;
    return answer;
}
static int by_any_node_v2(Handle graph, size_t bytes, Handle *node, Address *address) {
    struct any_node parameters = {.kind = ALLOC_NODE, .in.alloc = asked(bytes)};
    int answer = CUDA("cuGraphAddNode_v2", (Handle *, Handle, Handle *, void *, size_t, void *), node, graph, NULL, NULL,
                      0, &parameters);
    *address = parameters.in.alloc.address;
    return answer;
}

static Handle new_graph(void) {
    Handle graph;
    MUST(CUDA("cuGraphCreate", (Handle *, unsigned), &graph, 0));
    return graph;
}
static int instantiate(Handle graph, uint64_t flags, Handle *out) {
    return CUDA("cuGraphInstantiateWithFlags", (Handle *, Handle, uint64_t), out, graph, flags);
}
static int launch(Handle executable) { return CUDA("cuGraphLaunch", (Handle, Handle), executable, 0); }

/* A graph with one piece of memory, run once. Whoever says no, at whatever step, it is out of memory. */
static Adder adder;
static int from_graph(size_t bytes, Handle *out) {
    Handle graph = new_graph(), node, executable;
    Address address;
    int answer = adder(graph, bytes, &node, &address);
    if (!answer) answer = instantiate(graph, 0, &executable);
    if (!answer) answer = launch(executable);
    if (!answer) MUST(synchronize());
    *out = address;
    return answer;
}

static void graph_alloc_nodes(void) { begin(); adder = by_alloc_node; fill(from_graph); fill(plain); full(); }
static void graph_nodes_of_any_kind(void) { begin(); adder = by_any_node; fill(from_graph); fill(plain); full(); }
static void graph_nodes_of_any_kind_v2(void) { begin(); adder = by_any_node_v2; fill(from_graph); fill(plain); full(); }

/* Launched again and again with what was there freed before: one piece of memory, however often. */
static void graph_launched_often(void) {
    Handle graph, node, executable;
    Address address;
    begin();
    graph = new_graph();
    MUST(by_alloc_node(graph, 64 * MIB, &node, &address));
    MUST(instantiate(graph, 1, &executable));
    for (int round = 0; round < 30; round++) MUST(launch(executable));
    MUST(synchronize());
    fill(plain);
    full();
}

static void graph_instantiated_often(void) {
    begin();
    for (int round = 0; round < 40; round++) {
        Handle graph = new_graph(), node, executable;
        Address address;
        if (by_alloc_node(graph, 32 * MIB, &node, &address)) break;
        for (int turn = 0; turn < 3; turn++) {
            if (instantiate(graph, 0, &executable)) continue;
            if (launch(executable) == 0) { MUST(synchronize()); MUST(release_plain(address)); }
            CUDA("cuGraphExecDestroy", (Handle), executable);
        }
        CUDA("cuGraphDestroy", (Handle), graph);
    }
    fill(plain);
    full();
}

/* What the graphs' pool reserves stays reserved when they are gone, until it is trimmed. */
static void graph_reserve_left_behind(void) {
    Handle pieces[40];
    int launched = 0;
    begin();
    adder = by_alloc_node;
    while (launched < 40 && from_graph(32 * MIB, &pieces[launched]) == 0) launched++;
    for (int at = 0; at < launched; at++) MUST(release_plain(pieces[at]));
    fill(plain);
    full();
    MUST(CUDA("cuDeviceGraphMemTrim", (int), device));
    fill(plain);
    full();
}

static int captured_and_launched(size_t bytes, Handle *out) {
    Handle stream, graph, executable;
    MUST(CUDA("cuStreamCreate", (Handle *, unsigned), &stream, 1));
    MUST(CUDA("cuStreamBeginCapture_v2", (Handle, int), stream, 1));
    int answer = CUDA("cuMemAllocAsync", (Handle *, size_t, Handle), out, bytes, stream);
    int ended = CUDA("cuStreamEndCapture", (Handle, Handle *), stream, &graph);
    if (!answer) answer = ended;
    if (!answer) answer = instantiate(graph, 0, &executable);
    if (!answer) answer = CUDA("cuGraphLaunch", (Handle, Handle), executable, stream);
    MUST(CUDA("cuStreamSynchronize", (Handle), stream));
    return answer;
}
static void captured_allocations(void) { begin(); fill(captured_and_launched); fill(plain); full(); }

/* A plain allocation while a stream is captured is refused, and the refused are charged for nothing. */
static void plain_memory_during_a_capture(void) {
    Handle stream, graph, piece;
    begin();
    for (int round = 0; round < 20; round++) {
        MUST(CUDA("cuStreamCreate", (Handle *, unsigned), &stream, 1));
        MUST(CUDA("cuStreamBeginCapture_v2", (Handle, int), stream, 0));
        if (plain(64 * MIB, &piece) == 0) MUST(1);
        CUDA("cuStreamEndCapture", (Handle, Handle *), stream, &graph);
        MUST(CUDA("cuStreamDestroy_v2", (Handle), stream));
    }
    fill(plain);
    full();
}

static void release_all(void) {
    while (count > 0) MUST(release_plain(held[--count]));
}

/* What a graph may hold is anybody's again when it is over, however the program learns of it. */
static void graph_waited_for_in_all_ways(void) {
    Handle graph, node, free_node, executable, stream, other, event;
    Address address;
    begin();
    launch_spin(0, 1000); /* its module is there before anything is compared */
    hold_all(plain, 64 * MIB);
    int all = count;
    release_all();
    stream = new_stream(), other = new_stream(), graph = new_graph();
    MUST(CUDA("cuEventCreate", (Handle *, unsigned), &event, 2));
    MUST(by_alloc_node(graph, 512 * MIB, &node, &address));
    MUST(CUDA("cuGraphAddMemFreeNode", (Handle *, Handle, Handle *, size_t, Address), &free_node, graph, &node, 1, address));
    MUST(instantiate(graph, 0, &executable));
    for (int way = 0; way < 6; way++) {
        launch_spin(stream, 20000000);
        MUST(CUDA("cuGraphLaunch", (Handle, Handle), executable, stream));
        hold_all(plain, 64 * MIB); /* what else is there */
        MUST(CUDA("cuEventRecord", (Handle, Handle), event, stream));
        MUST(CUDA("cuStreamWaitEvent", (Handle, Handle, unsigned), other, event, 0));
        wait_in_some_way(way, stream, event);
        if (way == 5) MUST(CUDA("cuStreamSynchronize", (Handle), other));
        hold_all(plain, 64 * MIB);
        if (count != all) MUST(count);
        release_all();
    }
    fill(plain);
    full();
}
