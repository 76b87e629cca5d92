/* A program that asks for memory by objects which decide where it lies, against what is current: streams of another
 * device, pools, graphs, handles, and threads without any context. It prints what the driver answers, and waits while
 * it holds all that it could get. */
#include "escape/driver.h"

#include "escape/plain.h"

struct pool_properties { int type, handle_types, location_type, location; uint64_t rest[9]; };
struct location { int type, number; };

static Handle contexts[2], streams[2], pool;
static int devices[2], on;

/* Both devices, a stream on each, and the first one current. */
static void begin_on_both(int count) {
    MUST(CUDA("cuInit", (unsigned), 0));
    for (int at = 0; at < count; at++) {
        MUST(CUDA("cuDeviceGet", (int *, int), &devices[at], at));
        MUST(CUDA("cuDevicePrimaryCtxRetain", (Handle *, int), &contexts[at], devices[at]));
        MUST(CUDA("cuCtxSetCurrent", (Handle), contexts[at]));
        MUST(CUDA("cuStreamCreate", (Handle *, unsigned), &streams[at], 1));
    }
    MUST(CUDA("cuCtxSetCurrent", (Handle), contexts[0]));
}
static void without_context(void) { MUST(CUDA("cuCtxSetCurrent", (Handle), 0)); }
static int async(size_t bytes, Handle *out) {
    return CUDA("cuMemAllocAsync", (Handle *, size_t, Handle), out, bytes, streams[on]);
}
static int from_pool(size_t bytes, Handle *out) {
    return CUDA("cuMemAllocFromPoolAsync", (Handle *, size_t, Handle, Handle), out, bytes, pool, streams[on]);
}
static int free_async(Handle at) { return CUDA("cuMemFreeAsync", (Handle, Handle), at, streams[on]); }
static int wait_for_stream(void) { return CUDA("cuStreamSynchronize", (Handle), streams[on]); }

static int new_pool(int type, int location_type, int location) {
    struct pool_properties properties = {.type = type, .location_type = location_type, .location = location};
    return CUDA("cuMemPoolCreate", (Handle *, void *), &pool, &properties);
}

static void stream_of_the_other_device(void) {
    begin_on_both(2);
    on = 1;
    fill(async);
    full();
}

static void pool_of_the_other_device(void) {
    begin_on_both(2);
    MUST(new_pool(1, 1, devices[1]));
    MUST(CUDA("cuDeviceSetMemPool", (int, Handle), devices[1], pool));
    on = 1;
    fill(async);
    full();
}

/* Every call with a stream, pool, graph or handle of its own, and no context: each answer is printed. */
static void no_context(void) {
    Handle piece, graph, node, ready, handle, again, plain_one;
    int descriptor;
    begin_on_both(1);
    MUST(new_pool(1, 1, devices[0]));
    struct pool_properties memory = {.type = 1, .handle_types = 1, .location_type = 1, .location = devices[0]};
    MUST(CUDA("cuMemCreate", (Handle *, size_t, void *, uint64_t), &handle, 64 * MIB, &memory, 0));
    MUST(CUDA("cuMemExportToShareableHandle", (void *, Handle, int, uint64_t), &descriptor, handle, 1, 0));
    struct { struct pool_properties of; void *access; size_t count, bytes; Handle at; uint64_t more[16]; }
        wanted = {.of = {.type = 1, .location_type = 1, .location = devices[0]}, .bytes = 64 * MIB};
    MUST(CUDA("cuGraphCreate", (Handle *, unsigned), &graph, 0));
    MUST(CUDA("cuGraphAddMemAllocNode", (Handle *, Handle, void *, size_t, void *), &node, graph, NULL, 0, &wanted));
    MUST(CUDA("cuGraphInstantiateWithFlags", (Handle *, Handle, uint64_t), &ready, graph, 1));
    MUST(plain(512 * MIB, &plain_one));
    without_context();
    int answers[] = {
        async(64 * MIB, &piece), free_async(piece),
        from_pool(64 * MIB, &piece), free_async(piece),
        CUDA("cuGraphUpload", (Handle, Handle), ready, streams[0]),
        CUDA("cuGraphLaunch", (Handle, Handle), ready, streams[0]),
        CUDA("cuMemImportFromShareableHandle", (Handle *, void *, int), &again, (void *)(intptr_t)descriptor, 1),
        CUDA("cuMemRelease", (Handle), again),
        free_async(plain_one),
        wait_for_stream(),
    };
    printf("answers");
    for (size_t at = 0; at < sizeof answers / sizeof *answers; at++) printf(" %d", answers[at]);
    printf("\n");
    MUST(CUDA("cuCtxSetCurrent", (Handle), contexts[0]));
    MUST(CUDA("cuGraphExecDestroy", (Handle), ready));
    MUST(CUDA("cuMemRelease", (Handle), handle));
    full();
    without_context();
    fill(async);
    full();
}

/* A form of a governed function that is newer than any: not found, or the one that is known. */
static void newer_look_up(void) {
    typedef int (*LookUp)(const char *, void **, int, uint64_t, int *);
    begin();
    LookUp look_up = (LookUp)symbol("cuGetProcAddress_v2");
    static const char *names[] = {"cuMemAlloc", "cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocManaged", "cuMemCreate"};
    static const int versions[] = {12020, 13050, 13060, 14000, 99000};
    for (size_t name = 0; name < sizeof names / sizeof *names; name++)
        for (size_t version = 0; version < sizeof versions / sizeof *versions; version++) {
            void *found = NULL;
            int status = -1;
            MUST(look_up(names[name], &found, versions[version], 0, &status));
            if (!found) continue;
            Handle piece;
            struct pool_properties memory = {.type = 1, .location_type = 1, .location = device};
            int answer = name == 4   ? ((int (*)(Handle *, size_t, void *, uint64_t))found)(&piece, 8 * GIB, &memory, 0)
                         : name == 3 ? ((int (*)(Handle *, size_t, unsigned))found)(&piece, 8 * GIB, 1)
                         : name == 2 ? ((int (*)(Handle *, size_t, Handle))found)(&piece, 8 * GIB, 0)
                                     : ((int (*)(Handle *, size_t))found)(&piece, 8 * GIB);
            if (answer != OUT_OF_MEMORY) printf("%s %d %d\n", names[name], versions[version], answer);
        }
    static const char *forms[] = {"cuMemAlloc_v3", "cuMemCreate_v2", "cuMemAllocAsync_v2_ptsz", "cuMemAlloc_v17"};
    for (size_t form = 0; form < sizeof forms / sizeof *forms; form++)
        if (symbol(forms[form]) || !dlerror()) printf("%s found\n", forms[form]);
    full();
}

/* Pools of all properties that the driver takes: what no device may come to hold is the host's. */
static void pools_of_all_properties(int type, int location_type) {
    begin_on_both(1);
    if (new_pool(type, location_type, 0)) { say("unsupported"); return; }
    fill(from_pool);
    full();
}
static void managed_anywhere(void) { pools_of_all_properties(2, 0); }
static void managed_on_the_device(void) { pools_of_all_properties(2, 1); }
static void managed_on_the_host(void) { pools_of_all_properties(2, 2); }
static void locality_domain(void) { pools_of_all_properties(1, 6); }

/* Half of it beside a stream of one device, and as much as there is beside one of the other. */
static void managed_on_both(void) {
    Handle piece;
    begin_on_both(2);
    if (new_pool(2, 0, 0)) { say("unsupported"); return; }
    on = 1;
    for (int at = 0; at < 24; at++) MUST(from_pool(64 * MIB, &piece));
    on = 0;
    fill(from_pool);
    full();
}

static void physical_in_a_locality_domain(void) {
    Handle handle;
    begin_on_both(1);
    struct pool_properties memory = {.type = 1, .location_type = 6, .location = 0};
    if (CUDA("cuMemCreate", (Handle *, size_t, void *, uint64_t), &handle, 64 * MIB, &memory, 0)) {
        say("unsupported");
        return;
    }
    for (int at = 0; at < 400; at++)
        if (CUDA("cuMemCreate", (Handle *, size_t, void *, uint64_t), &handle, 64 * MIB, &memory, 0)) break;
    full();
}

static void default_pool_of_the_host(void) {
    struct location host = {.type = 2};
    Handle piece;
    begin_on_both(1);
    int answer = CUDA("cuMemGetDefaultMemPool", (Handle *, void *, int), &pool, &host, 1);
    if (answer) { say("unsupported"); return; }
    for (int at = 0; at < 100; at++) MUST(from_pool(64 * MIB, &piece));
    full();
}

/* Small pieces until the slice is full: the pool grows by as much as the driver likes. */
static int wanted_pool_piece(size_t bytes, Handle *out) { return from_pool(bytes, out); }
static void pool_in_steps(void) {
    begin_on_both(1);
    MUST(new_pool(1, 1, devices[0]));
    fill_from(wanted_pool_piece, 3 * MIB, 3 * MIB);
    fill(plain);
    Handle piece;
    for (int at = 0; at < 50; at++) { from_pool(MIB, &piece); async(MIB, &piece); }
    full();
}

static const struct { const char *name; void (*go)(void); } WAYS[] = {
#define WAY(name) {#name, name}
    WAY(stream_of_the_other_device), WAY(pool_of_the_other_device), WAY(no_context), WAY(newer_look_up),
    WAY(managed_anywhere), WAY(managed_on_the_device), WAY(managed_on_the_host), WAY(managed_on_both), WAY(locality_domain),
    WAY(physical_in_a_locality_domain), WAY(default_pool_of_the_host), WAY(pool_in_steps),
};

int main(int count, char **words) {
    for (size_t at = 0; count > 1 && at < sizeof WAYS / sizeof *WAYS; at++)
        if (!strcmp(words[1], WAYS[at].name)) { WAYS[at].go(); return 0; }
    return 2;
}
