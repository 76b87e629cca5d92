/* Copies and fills of every kind that a stream takes, their functions found in one of four ways:
 *     export (dlsym), export-ptsz, ask (cuGetProcAddress), ask-ptsz (for per-thread default streams).
 * Says "ready" when it has a context, waits for a line, does what its second word says, and says "done" with how many
 * transfers that were and how many ms they took. What arrives is compared with what was sent. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t handle;
typedef int (*function)();

/* Those without a stream whose ends both lie in the device: how each is asked for, and what it is exported as. */
enum { S_INSIDE, S_UNIFIED, S_PEER, S_INTO_ARRAY, S_OUT_OF_ARRAY, S_FLAT, S_UNALIGNED, S_SOLID, S_SOLID_PEER, S_D8, S_D16, S_D32, S_D2D8, S_D2D16, S_D2D32, STREAMLESS };
static const char *const streamless_names[STREAMLESS][2] = {
    {"cuMemcpyDtoD", "cuMemcpyDtoD_v2"},   {"cuMemcpy", "cuMemcpy"},
    {"cuMemcpyPeer", "cuMemcpyPeer"},      {"cuMemcpyDtoA", "cuMemcpyDtoA_v2"},
    {"cuMemcpyAtoD", "cuMemcpyAtoD_v2"},   {"cuMemcpy2D", "cuMemcpy2D_v2"},
    {"cuMemcpy2DUnaligned", "cuMemcpy2DUnaligned_v2"}, {"cuMemcpy3D", "cuMemcpy3D_v2"},
    {"cuMemcpy3DPeer", "cuMemcpy3DPeer"},  {"cuMemsetD8", "cuMemsetD8_v2"},
    {"cuMemsetD16", "cuMemsetD16_v2"},     {"cuMemsetD32", "cuMemsetD32_v2"},
    {"cuMemsetD2D8", "cuMemsetD2D8_v2"},   {"cuMemsetD2D16", "cuMemsetD2D16_v2"},
    {"cuMemsetD2D32", "cuMemsetD2D32_v2"},
};
static function streamless[STREAMLESS];

enum { UPLOAD, DOWNLOAD, INSIDE, UNIFIED, PEER, TO_ARRAY, FROM_ARRAY, FLAT, SOLID, SOLID_PEER, D8, D16, D32, D2D8, D2D16, D2D32, COUNT };
/* How each is asked for, and what it is exported as. */
static const char *const names[COUNT][2] = {
    {"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2"}, {"cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2"},
    {"cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2"}, {"cuMemcpyAsync", "cuMemcpyAsync"},
    {"cuMemcpyPeerAsync", "cuMemcpyPeerAsync"},    {"cuMemcpyHtoAAsync", "cuMemcpyHtoAAsync_v2"},
    {"cuMemcpyAtoHAsync", "cuMemcpyAtoHAsync_v2"}, {"cuMemcpy2DAsync", "cuMemcpy2DAsync_v2"},
    {"cuMemcpy3DAsync", "cuMemcpy3DAsync_v2"},     {"cuMemcpy3DPeerAsync", "cuMemcpy3DPeerAsync"},
    {"cuMemsetD8Async", "cuMemsetD8Async"},        {"cuMemsetD16Async", "cuMemsetD16Async"},
    {"cuMemsetD32Async", "cuMemsetD32Async"},      {"cuMemsetD2D8Async", "cuMemsetD2D8Async"},
    {"cuMemsetD2D16Async", "cuMemsetD2D16Async"},  {"cuMemsetD2D32Async", "cuMemsetD2D32Async"},
};
static function moves[COUNT];
static long moved;

#define OTHERS(X)                                                                                                       \
    X(cuInit, (unsigned))                                                                                               \
    X(cuDevicePrimaryCtxRetain, (handle *, int))                                                                        \
    X(cuCtxSetCurrent, (handle))                                                                                        \
    X(cuCtxSynchronize, (void))                                                                                         \
    X(cuStreamCreate, (handle *, unsigned))                                                                             \
    X(cuStreamSynchronize, (handle))                                                                                    \
    X(cuStreamBeginCapture_v2, (handle, int))                                                                           \
    X(cuStreamEndCapture, (handle, handle *))                                                                           \
    X(cuMemAlloc_v2, (handle *, size_t))                                                                                \
    X(cuArrayCreate_v2, (handle *, const void *))                                                                       \
    X(cuMemcpyDtoH_v2, (void *, handle, size_t))                                                                        \
    X(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *))
#define DECLARE(name, arguments) static int(*name) arguments;
OTHERS(DECLARE)

#define FAIL(...) (printf("failed " __VA_ARGS__), printf("\n"), fflush(stdout), _exit(1))
#define CHECK(call)                                                                                                     \
    do {                                                                                                                \
        int result_ = (call);                                                                                           \
        if (result_) FAIL("%d %s", result_, #call);                                                                      \
    } while (0)
#define MOVE(which, ...) do { CHECK(moves[which](__VA_ARGS__)); moved++; } while (0)

/* CUDA_MEMCPY2D, CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER. */
struct flat_side { size_t x, y; int type; void *host; uint64_t device; handle array; size_t pitch; };
struct flat { struct flat_side from, to; size_t width, height; };
struct solid_side { size_t x, y, z, level; int type; void *host; uint64_t device; handle array, context; size_t pitch, height; };
struct solid { struct solid_side from, to; size_t width, height, depth; };
enum { ON_DEVICE = 2, BY_ADDRESS = 4 };

enum { BYTES = 4096, ROW = 64 };
static handle context, stream, array, places[8];
static unsigned char sent[BYTES], arrived[BYTES];

static double ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static function found_by(const char *route, const char *const names[2], const char *ending)
{
    int per_thread = strstr(route, "-ptsz") != NULL, status;
    void *found = NULL;
    char name[80];
    snprintf(name, sizeof name, "%s%s", names[1], per_thread ? ending : "");
    if (!strncmp(route, "ask", 3)) CHECK(cuGetProcAddress_v2(names[0], &found, 12000, per_thread ? 2 : 0, &status));
    else found = dlsym(RTLD_DEFAULT, name);
    if (!found) FAIL("no %s", name);
    return (function)found;
}

static void find(const char *route)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver) FAIL("%s", dlerror());
#define FIND(name, arguments) if (!(name = (int(*) arguments)dlsym(driver, #name))) FAIL("no %s", #name);
    OTHERS(FIND)
    for (int at = 0; at < COUNT; at++) moves[at] = found_by(route, names[at], "_ptsz");
    for (int at = 0; at < STREAMLESS; at++) streamless[at] = found_by(route, streamless_names[at], "_ptds");
}

static void begin(void)
{
    /* A row of bytes. */
    struct { size_t width, height; int format; unsigned channels; } shape = {BYTES, 0, 1, 1};
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, 1));
    CHECK(cuArrayCreate_v2(&array, &shape));
    for (int at = 0; at < 8; at++) CHECK(cuMemAlloc_v2(&places[at], BYTES));
    for (int at = 0; at < BYTES; at++) sent[at] = (unsigned char)(at * 7 + at / 256);
}

static void compare(const char *what, const void *wanted)
{
    CHECK(cuStreamSynchronize(stream));
    if (memcmp(arrived, wanted, BYTES)) FAIL("%s brought other bytes", what);
    memset(arrived, 0, BYTES);
}

static void back(const char *what, handle from, const void *wanted)
{
    MOVE(DOWNLOAD, arrived, from, (size_t)BYTES, stream);
    compare(what, wanted);
}

static void copies(void)
{
    MOVE(UPLOAD, places[0], sent, (size_t)BYTES, stream);
    MOVE(INSIDE, places[1], places[0], (size_t)BYTES, stream);
    MOVE(UNIFIED, places[2], places[1], (size_t)BYTES, stream);
    MOVE(PEER, places[3], context, places[2], context, (size_t)BYTES, stream);
    back("a row of copies", places[3], sent);
    MOVE(TO_ARRAY, array, (size_t)0, sent, (size_t)BYTES, stream);
    MOVE(FROM_ARRAY, arrived, array, (size_t)0, (size_t)BYTES, stream);
    compare("an array", sent);
    struct flat flat = {{0, 0, ON_DEVICE, NULL, places[3], 0, ROW}, {0, 0, ON_DEVICE, NULL, places[4], 0, ROW}, ROW, BYTES / ROW};
    MOVE(FLAT, &flat, stream);
    struct solid solid = {{0, 0, 0, 0, ON_DEVICE, NULL, places[4], 0, 0, ROW, 8}, {0, 0, 0, 0, ON_DEVICE, NULL, places[5], 0, 0, ROW, 8}, ROW, 8, BYTES / ROW / 8};
    MOVE(SOLID, &solid, stream);
    solid.from.device = places[5], solid.to.device = places[6];
    solid.from.context = solid.to.context = context;
    MOVE(SOLID_PEER, &solid, stream);
    back("a row of shaped copies", places[6], sent);
}

/* Copies over the bus, also by functions that take addresses of either side. */
static void over_bus(void)
{
    MOVE(UPLOAD, places[0], sent, (size_t)BYTES, stream);
    MOVE(UNIFIED, places[1], (handle)(uintptr_t)sent, (size_t)BYTES, stream);
    MOVE(TO_ARRAY, array, (size_t)0, sent, (size_t)BYTES, stream);
    MOVE(FROM_ARRAY, arrived, array, (size_t)0, (size_t)BYTES, stream);
    compare("an array", sent);
    MOVE(UNIFIED, (handle)(uintptr_t)arrived, places[1], (size_t)BYTES, stream);
    compare("a copy by addresses", sent);
    struct flat flat = {{0, 0, BY_ADDRESS, NULL, (uintptr_t)sent, 0, ROW}, {0, 0, BY_ADDRESS, NULL, places[2], 0, ROW}, ROW, BYTES / ROW};
    MOVE(FLAT, &flat, stream);
    back("a shaped copy by addresses", places[2], sent);
    back("an upload", places[0], sent);
}

/* Copies and fills inside the device. */
static void inside(void)
{
    for (int at = D8; at < D2D8; at++) MOVE(at, places[0], 7, (size_t)BYTES >> (at - D8), stream);
    for (int at = D2D8; at <= D2D32; at++) MOVE(at, places[7], (size_t)ROW, 7, (size_t)ROW >> (at - D2D8), (size_t)BYTES / ROW, stream);
    MOVE(D8, places[0], 7, (size_t)BYTES, stream);
    MOVE(INSIDE, places[1], places[0], (size_t)BYTES, stream);
    MOVE(UNIFIED, places[2], places[1], (size_t)BYTES, stream);
    MOVE(PEER, places[3], context, places[2], context, (size_t)BYTES, stream);
    struct flat flat = {{0, 0, BY_ADDRESS, NULL, places[3], 0, ROW}, {0, 0, BY_ADDRESS, NULL, places[4], 0, ROW}, ROW, BYTES / ROW};
    MOVE(FLAT, &flat, stream);
    struct solid solid = {{0, 0, 0, 0, ON_DEVICE, NULL, places[4], 0, 0, ROW, 8}, {0, 0, 0, 0, ON_DEVICE, NULL, places[5], 0, 0, ROW, 8}, ROW, 8, BYTES / ROW / 8};
    MOVE(SOLID, &solid, stream);
    CHECK(cuStreamSynchronize(stream));
}

static void fills(void)
{
    unsigned char wanted[BYTES];
    for (int at = D8; at <= D2D32; at++) {
        int unit = at == D8 || at == D2D8 ? 1 : at == D16 || at == D2D16 ? 2 : 4;
        uint32_t value = (0xa1b2c3d4u + (uint32_t)at) >> (32 - 8 * unit);
        for (int byte = 0; byte < BYTES; byte++) wanted[byte] = (unsigned char)(value >> byte % unit * 8);
        if (at < D2D8) MOVE(at, places[7], value, (size_t)BYTES / unit, stream);
        else MOVE(at, places[7], (size_t)ROW, value, (size_t)ROW / unit, (size_t)BYTES / ROW, stream);
        back(names[at][0], places[7], wanted);
    }
}

/* Copies and fills inside the device without a stream. */
static void without_stream(void)
{
#define DO(which, ...) do { CHECK(streamless[which](__VA_ARGS__)); moved++; } while (0)
    DO(S_D8, places[0], 7, (size_t)BYTES);
    DO(S_INSIDE, places[1], places[0], (size_t)BYTES);
    DO(S_UNIFIED, places[2], places[1], (size_t)BYTES);
    DO(S_PEER, places[3], context, places[2], context, (size_t)BYTES);
    DO(S_INTO_ARRAY, array, (size_t)0, places[3], (size_t)BYTES);
    DO(S_OUT_OF_ARRAY, places[4], array, (size_t)0, (size_t)BYTES);
    struct flat flat = {{0, 0, ON_DEVICE, NULL, places[4], 0, ROW}, {0, 0, ON_DEVICE, NULL, places[5], 0, ROW}, ROW, BYTES / ROW};
    DO(S_FLAT, &flat);
    flat.from.device = places[5], flat.to.device = places[4], flat.from.type = flat.to.type = BY_ADDRESS;
    DO(S_UNALIGNED, &flat);
    struct solid solid = {{0, 0, 0, 0, ON_DEVICE, NULL, places[4], 0, 0, ROW, 8}, {0, 0, 0, 0, ON_DEVICE, NULL, places[5], 0, 0, ROW, 8}, ROW, 8, BYTES / ROW / 8};
    DO(S_SOLID, &solid);
    solid.from.device = places[5], solid.to.device = places[6];
    solid.from.context = solid.to.context = context;
    DO(S_SOLID_PEER, &solid);
    memset(sent, 7, BYTES);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH_v2(arrived, places[6], (size_t)BYTES));
    compare("a row of copies without a stream", sent);
    DO(S_D16, places[7], 7, (size_t)BYTES / 2);
    DO(S_D32, places[7], 7, (size_t)BYTES / 4);
    DO(S_D2D8, places[7], (size_t)ROW, 7, (size_t)ROW, (size_t)BYTES / ROW);
    DO(S_D2D16, places[7], (size_t)ROW, 7, (size_t)ROW / 2, (size_t)BYTES / ROW);
    DO(S_D2D32, places[7], (size_t)ROW, 7, (size_t)ROW / 4, (size_t)BYTES / ROW);
    CHECK(cuCtxSynchronize());
}

/* In a capture, of which nothing comes. */
static void record(void)
{
    handle graph;
    CHECK(cuStreamBeginCapture_v2(stream, 0));
    CHECK(moves[D32](places[7], 5u, (size_t)BYTES / 4, stream));
    CHECK(moves[INSIDE](places[1], places[0], (size_t)BYTES, stream));
    CHECK(moves[DOWNLOAD](arrived, places[1], (size_t)BYTES, stream));
    CHECK(cuStreamEndCapture(stream, &graph));
}

/* Large ones inside the device, which take an H200 most of a millisecond each, as fast as it can, for so long. */
static void saturate(double length, int with_stream)
{
    const size_t bytes = (size_t)2 << 30;
    handle from, to;
    CHECK(cuMemAlloc_v2(&from, bytes));
    CHECK(cuMemAlloc_v2(&to, bytes));
    for (double end = ms() + length; ms() < end;) {
        if (with_stream) {
            MOVE(D8, from, 0, bytes, stream);
            MOVE(INSIDE, to, from, bytes, stream);
        } else {
            DO(S_D8, from, 0, bytes);
            DO(S_INSIDE, to, from, bytes);
        }
    }
    CHECK(cuStreamSynchronize(stream));
}

int main(int count, char **words)
{
    if (count < 3) return 2;
    const char *what = words[2];
    char line[64];
    find(words[1]);
    begin();
    printf("ready %d\n", getpid()), fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    double start = ms();
    if (!strcmp(what, "all")) copies(), fills();
    else if (!strcmp(what, "bus")) over_bus();
    else if (!strcmp(what, "inside")) inside();
    else if (!strcmp(what, "record")) record();
    else if (!strcmp(what, "streamless")) without_stream();
    else saturate(atof(what), count < 4);
    printf("done %ld %.3f\n", moved, ms() - start), fflush(stdout);
    /* Stays until it is told to go, so that its record can be read. */
    if (!fgets(line, sizeof line, stdin)) return 1;
    return 0;
}
