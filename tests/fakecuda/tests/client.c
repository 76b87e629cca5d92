/* A driver-API program with declarations of its own, linked against libcuda.so.1. Every line of its output is a
 * sentence about something that held; the first thing that does not hold ends it with status 1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int R;
typedef unsigned long long P;
typedef void *H;
typedef struct { int type, handles, location_type, location; void *win; unsigned char flags[8]; } Prop;
typedef struct { int location_type, location, flags; } Access;
typedef struct { char bytes[64]; } Ipc;
typedef struct { int type, id; } Location;
typedef struct {
    size_t sx, sy; int st; const void *sh; P sd; H sa; size_t sp;
    size_t dx, dy; int dt; void *dh; P dd; H da; size_t dp;
    size_t width, height;
} Copy2D;
typedef struct { int alloc, handles, location_type, location; void *win; unsigned char rest[64]; } PoolProps;
typedef struct { PoolProps props; const void *access; size_t count, size; P address; } AllocNode;
typedef struct { P dst; size_t pitch; unsigned value, element; size_t width, height; } FillNode;
typedef struct { H f; unsigned g[3], b[3], shared; void **params, **extra; H kern, ctx; } KernelNode;

R cuInit(unsigned); R cuDriverGetVersion(int *); R cuDeviceGetCount(int *); R cuDeviceGet(int *, int);
R cuDeviceGetName(char *, int, int); R cuDeviceTotalMem_v2(size_t *, int); R cuDeviceGetAttribute(int *, int, int);
R cuCtxCreate_v2(H *, unsigned, int); R cuCtxDestroy_v2(H); R cuCtxGetCurrent(H *); R cuCtxSynchronize(void);
R cuCtxPopCurrent_v2(H *); R cuDevicePrimaryCtxRetain(H *, int); R cuDevicePrimaryCtxRelease_v2(int);
R cuCtxSetCurrent(H); R cuMemGetInfo_v2(size_t *, size_t *); R cuMemAlloc_v2(P *, size_t); R cuMemFree_v2(P);
R cuMemAlloc(unsigned *, unsigned); R cuMemFree(unsigned); R cuMemAllocManaged(P *, size_t, unsigned);
R cuMemAllocPitch_v2(P *, size_t *, size_t, size_t, unsigned); R cuMemcpyHtoD_v2(P, const void *, size_t);
R cuMemcpyDtoH_v2(void *, P, size_t); R cuMemcpyDtoD_v2(P, P, size_t); R cuMemcpy2D_v2(const Copy2D *);
R cuMemsetD8_v2(P, unsigned char, size_t); R cuMemsetD32_v2(P, unsigned, size_t);
R cuMemcpyHtoDAsync_v2(P, const void *, size_t, H); R cuMemcpyDtoHAsync_v2(void *, P, size_t, H);
R cuMemHostAlloc(void **, size_t, unsigned); R cuMemFreeHost(void *); R cuMemHostRegister_v2(void *, size_t, unsigned);
R cuMemHostUnregister(void *); R cuPointerGetAttribute(void *, int, P); R cuMemGetAddressRange_v2(P *, size_t *, P);
R cuModuleLoadData(H *, const void *); R cuModuleGetFunction(H *, H, const char *); R cuModuleUnload(H);
R cuModuleGetGlobal_v2(P *, size_t *, H, const char *);
R cuLaunchKernel(H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **);
R cuStreamCreate(H *, unsigned); R cuStreamSynchronize(H); R cuStreamQuery(H); R cuStreamDestroy_v2(H);
R cuEventCreate(H *, unsigned); R cuEventRecord(H, H); R cuEventSynchronize(H); R cuEventElapsedTime(float *, H, H);
R cuEventQuery(H); R cuStreamWaitEvent(H, H, unsigned); R cuLaunchHostFunc(H, void (*)(void *), void *);
R cuStreamWaitValue32_v2(H, P, unsigned, unsigned); R cuStreamWriteValue32_v2(H, P, unsigned, unsigned);
R cuMemAllocAsync(P *, size_t, H); R cuMemFreeAsync(P, H); R cuDeviceGetDefaultMemPool(H *, int);
R cuMemPoolSetAttribute(H, int, void *); R cuMemPoolGetAttribute(H, int, void *); R cuMemPoolTrimTo(H, size_t);
R cuMemCreate(P *, size_t, const Prop *, P); R cuMemRelease(P); R cuMemMap(P, size_t, size_t, P, P);
R cuMemUnmap(P, size_t); R cuMemSetAccess(P, size_t, const Access *, size_t); R cuMemAddressReserve(P *, size_t, size_t, P, P);
R cuMemAddressFree(P, size_t); R cuMemExportToShareableHandle(void *, P, int, P);
R cuMemImportFromShareableHandle(P *, void *, int); R cuIpcGetMemHandle(Ipc *, P); R cuIpcOpenMemHandle_v2(P *, Ipc, unsigned);
R cuIpcCloseMemHandle(P); R cuGraphCreate(H *, unsigned); R cuGraphAddMemAllocNode(H *, H, const H *, size_t, AllocNode *);
R cuGraphAddMemFreeNode(H *, H, const H *, size_t, P); R cuGraphInstantiateWithFlags(H *, H, P);
R cuGraphAddMemsetNode(H *, H, const H *, size_t, const FillNode *, H); R cuGraphLaunch(H, H); R cuGraphExecDestroy(H);
R cuGraphAddKernelNode_v2(H *, H, const H *, size_t, const KernelNode *); R cuGraphDestroy(H); R cuDeviceGraphMemTrim(int);
R cuGraphGetNodes(H, H *, size_t *); R cuGraphAddDependencies(H, const H *, const H *, size_t);
R cuGraphExecKernelNodeSetParams_v2(H, H, const KernelNode *); R cuGraphExecMemsetNodeSetParams(H, H, const FillNode *, H);
 R cuStreamBeginCapture_v2(H, int); R cuStreamEndCapture(H, H *);
R cuStreamIsCapturing(H, int *); R cuGetProcAddress_v2(const char *, void **, int, P, int *);
R cuGetProcAddress(const char *, void **, int, P); R cuGetErrorName(R, const char **); R cuGetExportTable(const void **, const void *);
R cuMemPrefetchAsync_v2(P, size_t, Location, unsigned, H); R cuMemAdvise(P, size_t, int, int);
R cuMemAllocFromPoolAsync(P *, size_t, H, H); R cuMemPoolCreate(H *, const PoolProps *); R cuMemPoolDestroy(H);
R cuCtxPushCurrent_v2(H); R cuDevicePrimaryCtxReset_v2(int); R cuDevicePrimaryCtxGetState(int, unsigned *, int *);
R cuLibraryLoadData(H *, const void *, int *, void **, unsigned, int *, void **, unsigned); R cuLibraryUnload(H);
R cuLibraryGetModule(H *, H); R cuModuleGetLoadingMode(int *);
R cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, H, int, size_t);

#define MIB ((size_t)1 << 20)
#define IS(call, want) do { R got_ = (call); if (got_ != (want)) { \
    fprintf(stderr, "line %d: %s gave %d, not %d\n", __LINE__, #call, got_, (int)(want)); exit(1); } } while (0)
#define OK(call) IS(call, 0)
#define HOLDS(what) do { if (!(what)) { fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #what); exit(1); } } while (0)
#define SAY(sentence) do { puts(sentence); fflush(stdout); } while (0)

static const char PTX[] =
    ".version 6.0\n.target sm_30\n.address_size 64\n.global .align 4 .b8 table[4096];\n"
    ".visible .entry spin_ns(.param .u64 spin_ns_param_0) { ret; }\n.visible .entry nothing() { ret; }\n";

static size_t held(void) {
    size_t f, t;
    OK(cuMemGetInfo_v2(&f, &t));
    return t - f;
}

static void memory(void) {
    size_t before = held();
    P a, b, c;
    OK(cuMemAlloc_v2(&a, 1000));
    HOLDS(held() == before + 2 * MIB && a % 512 == 0);
    OK(cuMemAlloc_v2(&b, 1000));
    HOLDS(held() == before + 2 * MIB && b != a && b / (2 * MIB) == a / (2 * MIB));
    OK(cuMemAlloc_v2(&c, 3 * MIB));
    HOLDS(held() == before + 6 * MIB && c % (2 * MIB) == 0);
    char text[1000], back[1000];
    for (int i = 0; i < 1000; i++) text[i] = (char)(i * 7);
    OK(cuMemcpyHtoD_v2(a, text, 1000));
    OK(cuMemcpyDtoD_v2(c + MIB, a, 1000));
    OK(cuMemcpyDtoH_v2(back, c + MIB, 1000));
    HOLDS(!memcmp(text, back, 1000));
    OK(cuMemsetD32_v2(c, 0x01020304, 100));
    OK(cuMemcpyDtoH_v2(back, c, 400));
    HOLDS(back[0] == 4 && back[399] == 1);
    IS(cuMemcpyHtoD_v2(a, text, MIB), 1);
    P base; size_t size;
    OK(cuMemGetAddressRange_v2(&base, &size, c + 5));
    HOLDS(base == c && size == 3 * MIB);
    IS(cuMemFree_v2(c + 512), 1);
    OK(cuMemFree_v2(a)); OK(cuMemFree_v2(b)); OK(cuMemFree_v2(c));
    IS(cuMemFree_v2(c), 1);
    IS(cuMemAlloc_v2(&a, 0), 1);
    HOLDS(held() == before);
    size_t f, t;
    OK(cuMemGetInfo_v2(&f, &t));
    IS(cuMemAlloc_v2(&a, f + 1), 2);
    OK(cuMemAlloc_v2(&a, f));
    IS(cuMemAlloc_v2(&b, 1), 2);
    OK(cuMemFree_v2(a));
    SAY("memory is counted in blocks, holds its bytes, and ends where it should");
    unsigned low;
    OK(cuMemAlloc(&low, 4096)); OK(cuMemsetD8_v2(low, 9, 4096)); OK(cuMemcpyDtoH_v2(back, low, 4)); HOLDS(back[3] == 9);
    OK(cuMemFree(low));
    OK(cuMemAllocManaged(&a, 5 * MIB, 1));
    HOLDS(held() == before + 6 * MIB);
    ((char *)(uintptr_t)a)[MIB] = 42;
    OK(cuMemcpyDtoH_v2(back, a + MIB, 1)); HOLDS(back[0] == 42);
    int managed = 0; unsigned char flag = 0;
    OK(cuPointerGetAttribute(&managed, 2, a)); HOLDS(managed == 2);
    OK(cuPointerGetAttribute(&flag, 8, a)); HOLDS(flag == 1);
    Location first = {1, 0};
    OK(cuMemPrefetchAsync_v2(a, 5 * MIB, first, 0, 0)); OK(cuMemAdvise(a, MIB, 1, -1)); IS(cuMemAdvise(a, 6 * MIB, 1, 0), 1);
    OK(cuMemFree_v2(a));
    size_t pitch;
    OK(cuMemAllocPitch_v2(&a, &pitch, 100, 10, 4));
    HOLDS(pitch == 512);
    Copy2D copy = {.st = 1, .sh = text, .sp = 100, .dt = 2, .dd = a, .dp = pitch, .width = 100, .height = 10};
    OK(cuMemcpy2D_v2(&copy));
    OK(cuMemcpyDtoH_v2(back, a + 3 * pitch, 100)); HOLDS(!memcmp(back, text + 300, 100));
    OK(cuMemFree_v2(a));
    void *pinned; static char own[8192];
    OK(cuMemHostAlloc(&pinned, 100, 0)); OK(cuMemHostRegister_v2(own, 8192, 0)); IS(cuMemHostRegister_v2(own, 10, 0), 712);
    OK(cuMemHostUnregister(own)); IS(cuMemHostUnregister(own), 713); OK(cuMemFreeHost(pinned));
    HOLDS(held() == before);
    SAY("managed, pitched, pinned and 32-bit memory come and go");
}

/* What a pool takes for so many bytes. */
static size_t stepped(size_t bytes) {
    size_t step = (getenv("STEP_MIB") ? atoi(getenv("STEP_MIB")) : 2) * MIB;
    return (bytes + step - 1) / step * step;
}

static void pools(void) {
    size_t before = held();
    H pool; P a; P keep = ~0ull, reserved;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemAllocAsync(&a, 8 * MIB, 0));
    HOLDS(held() == before + stepped(8 * MIB));
    OK(cuMemFreeAsync(a, 0)); OK(cuStreamSynchronize(0));
    HOLDS(held() == before);
    OK(cuMemPoolSetAttribute(pool, 4, &keep));
    OK(cuMemAllocAsync(&a, 8 * MIB, 0)); OK(cuMemFreeAsync(a, 0)); OK(cuStreamSynchronize(0));
    OK(cuMemPoolGetAttribute(pool, 5, &reserved));
    HOLDS(reserved == stepped(8 * MIB) && held() == before + stepped(8 * MIB));
    size_t f, t;
    OK(cuMemGetInfo_v2(&f, &t));
    OK(cuMemAlloc_v2(&a, f + 8 * MIB)); OK(cuMemFree_v2(a));
    OK(cuMemPoolTrimTo(pool, 0));
    HOLDS(held() == before);
    SAY("a pool keeps what its threshold says and gives it up when memory is short");
}

static void virtual_memory(void) {
    size_t before = held();
    Prop prop = {.type = 1, .handles = 1, .location_type = 1, .location = 0};
    P handle, at; Access access = {1, 0, 3}; char back[4];
    IS(cuMemCreate(&handle, 1000, &prop, 0), 1);
    OK(cuMemCreate(&handle, 4 * MIB, &prop, 0));
    HOLDS(held() == before + 4 * MIB);
    OK(cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0));
    OK(cuMemMap(at + 2 * MIB, 4 * MIB, 0, handle, 0)); OK(cuMemSetAccess(at + 2 * MIB, 4 * MIB, &access, 1));
    OK(cuMemsetD8_v2(at + 3 * MIB, 7, 100)); OK(cuMemcpyDtoH_v2(back, at + 3 * MIB, 4)); HOLDS(back[2] == 7);
    int fd; P twin;
    OK(cuMemExportToShareableHandle(&fd, handle, 1, 0));
    OK(cuMemImportFromShareableHandle(&twin, (void *)(intptr_t)fd, 1));
    close(fd);
    OK(cuMemRelease(handle));
    HOLDS(held() == before + 4 * MIB);
    IS(cuMemAddressFree(at, 8 * MIB), 1);
    OK(cuMemUnmap(at + 2 * MIB, 4 * MIB));
    HOLDS(held() == before + 4 * MIB);
    OK(cuMemMap(at, 4 * MIB, 0, twin, 0)); OK(cuMemcpyDtoH_v2(back, at + MIB, 4)); HOLDS(back[1] == 7);
    OK(cuMemUnmap(at, 4 * MIB)); OK(cuMemRelease(twin)); OK(cuMemAddressFree(at, 8 * MIB));
    HOLDS(held() == before);
    SAY("virtual memory is paid for until its last handle and mapping go");
}

static int called;
static void call(void *data) { usleep(20000); called = *(int *)data; }

static void work(H function) {
    P length = 20000000; void *params[] = {&length}; H s, t, start, end; float ms; char *pinned; P a;
    OK(cuStreamCreate(&s, 1)); OK(cuStreamCreate(&t, 1)); OK(cuEventCreate(&start, 0)); OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(start, s));
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, s, params, 0));
    OK(cuEventRecord(end, s));
    IS(cuStreamQuery(s), 600); IS(cuEventQuery(end), 600);
    OK(cuStreamSynchronize(s)); OK(cuEventQuery(end)); OK(cuEventElapsedTime(&ms, start, end));
    HOLDS(ms >= 19.9f);
    IS(cuLaunchKernel(function, 0, 1, 1, 32, 1, 1, 0, s, params, 0), 1);
    IS(cuLaunchKernel(s, 1, 1, 1, 32, 1, 1, 0, s, params, 0), 400);
    SAY("a kernel takes the time its argument says, and events measure it");
    int five = 5; OK(cuMemAlloc_v2(&a, 4096)); OK(cuMemHostAlloc((void **)&pinned, 4096, 0));
    pinned[0] = 1; called = 0;
    OK(cuLaunchHostFunc(s, call, &five));
    OK(cuMemcpyHtoDAsync_v2(a, &called, 4, s));
    OK(cuEventRecord(end, s)); OK(cuStreamWaitEvent(t, end, 0)); OK(cuMemcpyDtoHAsync_v2(pinned, a, 4, t));
    HOLDS(called == 0);
    OK(cuStreamSynchronize(t)); HOLDS(called == 5 && pinned[0] == 5);
    OK(cuMemsetD32_v2(a, 0, 1)); OK(cuCtxSynchronize());
    OK(cuStreamWaitValue32_v2(s, a, 3, 1)); OK(cuEventRecord(end, s));
    usleep(5000); IS(cuEventQuery(end), 600);
    OK(cuStreamWriteValue32_v2(t, a, 3, 0)); OK(cuStreamSynchronize(s)); OK(cuEventSynchronize(end));
    OK(cuMemFree_v2(a)); OK(cuMemFreeHost(pinned)); OK(cuStreamDestroy_v2(s)); OK(cuStreamDestroy_v2(t));
    SAY("host functions, values and what waits for them keep their order");
}

static void graphs(H function, H context) {
    size_t before = held(), count = 0;
    H g, exec, alloc, fill, kernel, gone, s; P length = 1000; void *params[] = {&length}; int capturing;
    OK(cuGraphCreate(&g, 0));
    AllocNode an = {.props = {.alloc = 1, .location_type = 1}, .size = 6 * MIB};
    OK(cuGraphAddMemAllocNode(&alloc, g, 0, 0, &an));
    HOLDS(an.address != 0 && held() == before);
    FillNode fn = {.dst = an.address, .value = 0xab, .element = 1, .width = 1000, .height = 1};
    OK(cuGraphAddMemsetNode(&fill, g, &alloc, 1, &fn, context));
    KernelNode kn = {.f = function, .g = {1, 1, 1}, .b = {1, 1, 1}, .params = params};
    OK(cuGraphAddKernelNode_v2(&kernel, g, &fill, 1, &kn));
    OK(cuGraphInstantiateWithFlags(&exec, g, 0)); OK(cuGraphLaunch(exec, 0)); OK(cuStreamSynchronize(0));
    HOLDS(held() == before + 6 * MIB);
    unsigned char byte; OK(cuMemcpyDtoH_v2(&byte, an.address + 999, 1)); HOLDS(byte == 0xab);
    IS(cuGraphLaunch(exec, 0), 1);
    OK(cuMemFree_v2(an.address)); OK(cuDeviceGraphMemTrim(0)); HOLDS(held() == before);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphAddMemFreeNode(&gone, g, &kernel, 1, an.address));
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    OK(cuGraphLaunch(exec, 0)); OK(cuGraphLaunch(exec, 0)); OK(cuCtxSynchronize());
    OK(cuDeviceGraphMemTrim(0)); HOLDS(held() == before);
    OK(cuGraphExecDestroy(exec)); OK(cuGraphDestroy(g));
    SAY("a graph's memory is paid for when it runs");
    OK(cuStreamCreate(&s, 0)); OK(cuStreamBeginCapture_v2(s, 2));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, s, params, 0)); P a; OK(cuMemAllocAsync(&a, MIB, s)); OK(cuMemFreeAsync(a, s));
    OK(cuStreamIsCapturing(s, &capturing)); HOLDS(capturing == 1);
    OK(cuStreamEndCapture(s, &g)); OK(cuGraphGetNodes(g, 0, &count)); HOLDS(count == 3);
    OK(cuGraphInstantiateWithFlags(&exec, g, 0)); OK(cuGraphLaunch(exec, s)); OK(cuStreamSynchronize(s));
    OK(cuDeviceGraphMemTrim(0)); OK(cuGraphExecDestroy(exec)); OK(cuGraphDestroy(g)); HOLDS(held() == before);
    SAY("a captured stream becomes a graph");
}

static void changed_graphs(H function, H context) {
    H g, exec, fill, kernel; P length = 1000, a; void *params[] = {&length}; unsigned char bytes[2];
    OK(cuMemAlloc_v2(&a, 4096)); OK(cuMemsetD8_v2(a, 0, 4096)); OK(cuGraphCreate(&g, 0));
    FillNode fn = {.dst = a, .value = 1, .element = 1, .width = 1, .height = 1};
    KernelNode kn = {.f = function, .g = {1, 1, 1}, .b = {1, 1, 1}, .params = params};
    OK(cuGraphAddMemsetNode(&fill, g, 0, 0, &fn, context)); OK(cuGraphAddKernelNode_v2(&kernel, g, 0, 0, &kn));
    /* Since CUDA 12.3: from a kernel's programmatic port, and one of a kind that is none. */
    R (*add)(H, const H *, const H *, const unsigned char *, size_t) = dlsym(RTLD_DEFAULT, "cuGraphAddDependencies_v2");
    unsigned char edge[8] = {1, 0, 1}, odd[8] = {0, 0, 9};
    if (add) { IS(add(g, &kernel, &fill, odd, 1), 1); OK(add(g, &kernel, &fill, edge, 1)); }
    else OK(cuGraphAddDependencies(g, &kernel, &fill, 1));
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    fn.dst = a + 1; fn.value = 2; OK(cuGraphExecMemsetNodeSetParams(exec, fill, &fn, context));
    IS(cuGraphExecMemsetNodeSetParams(exec, kernel, &fn, context), 1); IS(cuGraphExecKernelNodeSetParams_v2(exec, fill, &kn), 1);
    OK(cuGraphExecKernelNodeSetParams_v2(exec, kernel, &kn));
    OK(cuGraphLaunch(exec, 0)); OK(cuMemcpyDtoH_v2(bytes, a, 2)); HOLDS(bytes[0] == 0 && bytes[1] == 2);
    OK(cuGraphExecDestroy(exec)); OK(cuGraphDestroy(g)); OK(cuMemFree_v2(a));
    SAY("an executable's nodes take other parameters of their kind");
}

/* A look-up answers the exported address, or another one that does the same. */
static int answers(void *p, const char *symbol) {
    int exported = p == dlsym(RTLD_DEFAULT, symbol);
    return p && (getenv("FOREIGN") ? !exported : exported);
}

static void lookups(void) {
    void *p = (void *)1; int status = -1; const char *name;
    OK(cuGetProcAddress_v2("cuMemAlloc", &p, 12040, 0, &status)); HOLDS(status == 0 && answers(p, "cuMemAlloc_v2"));
    OK(cuGetProcAddress_v2("cuLaunchKernel", &p, 12040, 2, &status)); HOLDS(answers(p, "cuLaunchKernel_ptsz"));
    OK(cuGetProcAddress_v2("cuMemAlloc_v2", &p, 12040, 0, &status)); HOLDS(status == 1 && !p);
    OK(cuGetProcAddress_v2("cuMemAlloc", &p, 1000, 0, &status)); HOLDS(status == 2 && !p);
    p = (void *)1; IS(cuGetProcAddress_v2("cuMemAlloc", &p, 12040, 8, &status), 1); HOLDS(p == (void *)1);
    IS(cuGetProcAddress("cuNoSuchThing", &p, 12040, 0), 500); HOLDS(p == (void *)1);
    OK(cuGetErrorName(2, &name)); HOLDS(!strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY")); IS(cuGetErrorName(12345, &name), 1);
    SAY("look-ups answer as the real driver's do");
}

/* What this driver has, and answers 1 to where it has not. */
static void *has(const char *name) { void *p; int status; OK(cuGetProcAddress_v2(name, &p, 99999, 0, &status)); return p; }

static void locations(int version) {
    R (*default_pool)(H *, Location *, int) = (R (*)(H *, Location *, int))has("cuMemGetDefaultMemPool");
    size_t before = held(), f, t; H pool, again; P a, handle;
    HOLDS(!default_pool == (version < 13000));
    PoolProps props = {.alloc = 2, .location_type = 0}; /* managed, without a place */
    IS(cuMemPoolCreate(&pool, &props), version < 13000);
    if (version >= 13000) {
        OK(cuMemAllocFromPoolAsync(&a, 40 * MIB, pool, 0)); HOLDS(held() == before + stepped(40 * MIB));
        *(char *)a = 7; char back; OK(cuMemcpyDtoH_v2(&back, a, 1)); HOLDS(back == 7);
        OK(cuMemFreeAsync(a, 0)); OK(cuMemPoolDestroy(pool)); HOLDS(held() == before);
        OK(default_pool(&pool, &(Location){2, 5}, 1)); OK(default_pool(&again, &(Location){2, 9}, 1)); HOLDS(pool == again);
        OK(cuMemAllocFromPoolAsync(&a, 40 * MIB, pool, 0)); HOLDS(held() == before); OK(cuMemFree_v2(a));
        OK(default_pool(&pool, &(Location){0, 0}, 2)); OK(cuMemAllocFromPoolAsync(&a, 2 * MIB, pool, 0));
        HOLDS(held() == before + stepped(2 * MIB)); OK(cuMemFree_v2(a)); OK(cuMemPoolTrimTo(pool, 0)); HOLDS(held() == before);
        OK(cuDeviceGetDefaultMemPool(&again, 0)); OK(default_pool(&pool, &(Location){1, 0}, 1)); HOLDS(pool == again);
        IS(default_pool(&pool, &(Location){0, 0}, 1), 1); IS(default_pool(&pool, &(Location){1, 77}, 1), 101);
    }
    Prop domain = {.type = 1, .location_type = 6, .location = 1 << 8};
    IS(cuMemCreate(&handle, 4 * MIB, &domain, 0), version < 13040);
    if (version >= 13040) { HOLDS(held() == before + 4 * MIB); OK(cuMemRelease(handle)); }
    Prop host = {.type = 1, .location_type = 3}; OK(cuMemCreate(&handle, 4 * MIB, &host, 0)); HOLDS(held() == before);
    OK(cuMemRelease(handle)); host.type = 2; IS(cuMemCreate(&handle, 4 * MIB, &host, 0), 1);
    OK(cuMemGetInfo_v2(&f, NULL)); OK(cuMemGetInfo_v2(NULL, &t)); HOLDS(held() == t - f);
    OK(cuMemFreeHost(NULL)); OK(cuMemFree_v2(0)); OK(cuMemFreeAsync(0, 0)); IS(cuMemHostUnregister(NULL), 1);
    SAY("memory is where its location says");
}

static void without_context(void) {
    H context, stream, other, pool; P a, b, c;
    OK(cuStreamCreate(&stream, 1)); OK(cuDeviceGetDefaultMemPool(&pool, 0)); size_t before = held();
    OK(cuCtxPopCurrent_v2(&context));
    OK(cuMemAllocAsync(&a, 2 * MIB, stream)); OK(cuMemAllocFromPoolAsync(&b, 2 * MIB, pool, stream)); IS(cuMemAllocAsync(&c, 2, 0), 201);
    OK(cuMemFreeAsync(a, stream)); OK(cuMemFreeAsync(b, stream)); OK(cuStreamSynchronize(stream));
    OK(cuCtxCreate_v2(&other, 0, 0)); OK(cuMemAllocAsync(&a, 2 * MIB, stream)); OK(cuCtxDestroy_v2(other)); /* another one is current */
    OK(cuMemFreeAsync(a, stream)); OK(cuStreamSynchronize(stream)); OK(cuCtxPushCurrent_v2(context)); OK(cuMemPoolTrimTo(pool, 0)); HOLDS(held() == before);
    OK(cuStreamDestroy_v2(stream));
    SAY("a stream knows its context and device where the thread has none");
}

static void libraries(void) {
    static const char code[] = ".version 6.0\n.target sm_60\n.address_size 64\n.global .align 4 .b8 buf[10485760];\n.visible .entry k() { ret; }\n";
    H library, other, module; int mode; size_t before = held(), loaded;
    OK(cuModuleGetLoadingMode(&mode)); int eager = mode == 1;
    OK(cuLibraryLoadData(&library, code, 0, 0, 0, 0, 0, 0)); HOLDS((held() > before) == eager);
    OK(cuLibraryGetModule(&module, library)); loaded = held() - before; HOLDS(loaded >= 10 * MIB);
    OK(cuCtxCreate_v2(&other, 0, 0)); size_t after = held(); /* the new one is current */
    OK(cuLibraryGetModule(&module, library)); HOLDS(held() - after == (eager ? 0 : loaded));
    OK(cuCtxDestroy_v2(other)); HOLDS(held() == before + loaded); OK(cuLibraryUnload(library)); HOLDS(held() == before);
    SAY("a library is loaded into every context that has it");
}

static void reset(H context) {
    unsigned flags; int active; P a, b; H again, pool; PoolProps props = {.alloc = 1, .location_type = 1};
    OK(cuDevicePrimaryCtxRetain(&again, 0)); HOLDS(again == context);
    OK(cuMemPoolCreate(&pool, &props)); OK(cuMemAlloc_v2(&a, 8 * MIB)); OK(cuMemAllocFromPoolAsync(&b, 2 * MIB, pool, 0));
    OK(cuDevicePrimaryCtxReset_v2(0)); OK(cuDevicePrimaryCtxGetState(0, &flags, &active)); HOLDS(!active);
    IS(cuMemAlloc_v2(&a, 10), 709); OK(cuDevicePrimaryCtxRetain(&again, 0)); OK(cuCtxSetCurrent(again));
    IS(cuMemFree_v2(a), 1); OK(cuMemFreeAsync(b, 0)); OK(cuMemPoolDestroy(pool));
    OK(cuDevicePrimaryCtxRelease_v2(0)); OK(cuDevicePrimaryCtxRelease_v2(0)); /* of three retains */
    SAY("a reset ends what is in the primary context, and no retain");
}

static void other_process(char *self) {
    P a; Ipc ipc; int pipe_[2]; char back[4], go;
    OK(cuMemAlloc_v2(&a, 3 * MIB)); OK(cuMemsetD8_v2(a, 1, 100)); OK(cuCtxSynchronize()); OK(cuIpcGetMemHandle(&ipc, a));
    HOLDS(!pipe(pipe_)); size_t before = held();
    pid_t child = fork();
    if (!child) {
        size_t f, t;
        if (cuInit(0) != 3 || cuMemGetInfo_v2(&f, &t) != 3) _exit(1);
        dup2(pipe_[0], 0);
        execl(self, self, "ipc", (char *)0);
        _exit(2);
    }
    HOLDS(write(pipe_[1], &ipc, sizeof ipc) == sizeof ipc);
    int status; waitpid(child, &status, 0); HOLDS(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(cuMemcpyDtoH_v2(back, a + 50, 1)); HOLDS(back[0] == 77);
    HOLDS(held() == before); OK(cuMemFree_v2(a)); (void)go;
    SAY("a forked child has no CUDA, and a new process can open our memory");
}

static int opener(void) {
    Ipc ipc; P a; H c; char back;
    HOLDS(read(0, &ipc, sizeof ipc) == sizeof ipc);
    OK(cuInit(0)); OK(cuDevicePrimaryCtxRetain(&c, 0)); OK(cuCtxSetCurrent(c));
    OK(cuIpcOpenMemHandle_v2(&a, ipc, 1)); OK(cuMemcpyDtoH_v2(&back, a + 99, 1)); HOLDS(back == 1);
    OK(cuMemsetD8_v2(a + 50, 77, 1)); OK(cuCtxSynchronize()); OK(cuIpcCloseMemHandle(a)); IS(cuIpcCloseMemHandle(a), 1);
    return 0;
}

/* Takes device 0 into use, then waits for a line that says that it is lost. */
static int lost(void) {
    H c, module, function; P a, length = 1000; void *params[] = {&length}; size_t f, t;
    OK(cuInit(0)); OK(cuDevicePrimaryCtxRetain(&c, 0)); OK(cuCtxSetCurrent(c)); OK(cuMemAlloc_v2(&a, 10));
    OK(cuModuleLoadData(&module, PTX)); OK(cuModuleGetFunction(&function, module, "spin_ns"));
    SAY("ready");
    HOLDS(getchar() != EOF);
    IS(cuMemAlloc_v2(&a, 10), 999); IS(cuMemGetInfo_v2(&f, &t), 999); IS(cuCtxSynchronize(), 999);
    IS(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, params, 0), 999);
    IS(cuCtxCreate_v2(&c, 0, 0), 46);
    SAY("everything says so");
    return 0;
}

/* For each name that is given: whether it is exported, what a look-up of the newest version answers, and the same address or another. */
static int names(int count, char **name) {
    int version; OK(cuDriverGetVersion(&version)); printf("version %d\n", version);
    for (int at = 0; at < count; at++) {
        void *found = 0, *exported = dlsym(RTLD_DEFAULT, name[at]); int status = 9;
        OK(cuGetProcAddress_v2(name[at], &found, 99999, 0, &status));
        printf("%s %s %d %s\n", name[at], exported ? "exported" : "absent", status, !found ? "nowhere" : found == exported ? "there" : "elsewhere");
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "names")) return names(argc - 2, argv + 2);
    if (argc > 1 && !strcmp(argv[1], "ipc")) return opener();
    if (argc > 1) return lost();
    int n, version; char name[64]; size_t total, f, t; H context, current, module, function, none; P a; size_t size;
    OK(cuDriverGetVersion(&version)); HOLDS(version == atoi(getenv("CUDA_WANTED") ? getenv("CUDA_WANTED") : "12040"));
    IS(cuDeviceGetCount(&n), 3);
    if (!getenv("SIMGPU_NODE")) { IS(cuInit(0), 100); SAY("without a node there is no device"); return 0; }
    IS(cuInit(1), 1);
    OK(cuInit(0)); OK(cuDeviceGetCount(&n)); OK(cuDeviceGetName(name, sizeof name, 0)); OK(cuDeviceTotalMem_v2(&total, 0));
    printf("%d devices, the first a %s with %zu MiB\n", n, name, total / MIB);
    IS(cuMemGetInfo_v2(&f, &t), 201);
    OK(cuDevicePrimaryCtxRetain(&context, 0)); OK(cuCtxSetCurrent(context)); OK(cuCtxGetCurrent(&current)); HOLDS(current == context);
    OK(cuMemGetInfo_v2(&f, &t)); HOLDS(t == total && f < total);
    OK(cuCtxCreate_v2(&none, 0, 0)); OK(cuCtxDestroy_v2(none)); OK(cuCtxGetCurrent(&current)); HOLDS(current == context);
    memory();
    OK(cuModuleLoadData(&module, PTX)); OK(cuModuleGetFunction(&function, module, "spin_ns"));
    IS(cuModuleGetFunction(&none, module, "absent"), 500); IS(cuModuleLoadData(&none, "not PTX"), 200);
    OK(cuModuleGetGlobal_v2(&a, &size, module, "table")); HOLDS(size == 4096);
    int blocks; OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 256, 0)); HOLDS(blocks > 0);
    char id[16] = {1}; const void *table; IS(cuGetExportTable(&table, id), 500);
    pools(); virtual_memory(); work(function); graphs(function, context); changed_graphs(function, context);
    lookups(); other_process(argv[0]);
    locations(version); without_context(); libraries();
    OK(cuModuleUnload(module)); reset(context); OK(cuDevicePrimaryCtxRelease_v2(0)); IS(cuDevicePrimaryCtxRelease_v2(0), 201);
    IS(cuMemAlloc_v2(&a, 10), 709);
    SAY("all is well");
    return 0;
}
