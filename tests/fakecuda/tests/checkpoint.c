/* Two programs for tests of checkpoints: a tenant, which holds memory, and a controller, which locks, checkpoints and
 * restores others. Each obeys the lines of its input with one line of output. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int R;
typedef unsigned long long P;
typedef void *H;
typedef struct { int type, handles, location_type, location; void *win; unsigned char flags[8]; } Prop;
typedef struct { char bytes[64]; } Ipc;
typedef struct { unsigned timeout, reserved; uint64_t more[7]; } LockArgs;
typedef struct { unsigned char old[16], new[16]; } Pair;
typedef struct { Pair *pairs; unsigned count, reserved; uint64_t more[6]; } RestoreArgs;
typedef struct { unsigned devices; size_t size; P handles, flags; } Multicast;

R cuInit(unsigned); R cuDeviceGetCount(int *); R cuDeviceGetUuid_v2(void *, int); R cuDeviceGetPCIBusId(char *, int, int);
R cuDevicePrimaryCtxRetain(H *, int); R cuCtxSetCurrent(H); R cuCtxSynchronize(void);
R cuMemAlloc_v2(P *, size_t); R cuMemAllocManaged(P *, size_t, unsigned); R cuMemAllocAsync(P *, size_t, H);
R cuMemcpyHtoD_v2(P, const void *, size_t); R cuMemcpyDtoH_v2(void *, P, size_t); R cuMemGetInfo_v2(size_t *, size_t *);
R cuMemHostAlloc(void **, size_t, unsigned); R cuStreamWaitValue32_v2(H, P, unsigned, unsigned);
R cuMemCreate(P *, size_t, const Prop *, P); R cuMemMap(P, size_t, size_t, P, P); R cuMemAddressReserve(P *, size_t, size_t, P, P);
R cuMemExportToShareableHandle(void *, P, int, P); R cuMemImportFromShareableHandle(P *, void *, int);
R cuIpcGetMemHandle(Ipc *, P); R cuIpcOpenMemHandle_v2(P *, Ipc, unsigned); R cuMulticastCreate(P *, const Multicast *);
R cuModuleLoadData(H *, const void *); R cuModuleGetFunction(H *, H, const char *); R cuModuleGetGlobal_v2(P *, size_t *, H, const char *);
R cuLaunchKernel(H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **, void **);
R cuStreamCreate(H *, unsigned); R cuEventCreate(H *, unsigned); R cuEventRecord(H, H); R cuEventElapsedTime(float *, H, H);
R cuEventSynchronize(H);

#define MIB ((size_t)1 << 20)
#define OK(call) do { R got_ = (call); if (got_) { printf("line %d: %s gave %d\n", __LINE__, #call, got_); fflush(stdout); exit(1); } } while (0)

static const char PTX[] =
    ".version 6.0\n.target sm_30\n.address_size 64\n.global .align 4 .b8 table[4096];\n"
    ".visible .entry spin_ns(.param .u64 spin_ns_param_0) { ret; }\n";

enum { MOST = 64 };
static struct { P at; size_t size; } held[MOST];
static int count;
static H function, stream, first, last;
static volatile unsigned *flag;

static void keep(P at, size_t size, unsigned seed) {
    static unsigned char part[MIB];
    for (size_t done = 0; done < size; done += MIB) {
        size_t length = size - done < MIB ? size - done : MIB;
        for (size_t i = 0; i < length; i++) part[i] = (unsigned char)((seed = seed * 1664525 + 1013904223) >> 24);
        OK(cuMemcpyHtoD_v2(at + done, part, length));
    }
    held[count].at = at; held[count].size = size; count++;
}

static uint64_t sum(void) {
    static unsigned char part[MIB];
    uint64_t hash = 14695981039346656037u;
    for (int k = 0; k < count; k++)
        for (size_t done = 0; done < held[k].size; done += MIB) {
            size_t length = held[k].size - done < MIB ? held[k].size - done : MIB;
            OK(cuMemcpyDtoH_v2(part, held[k].at + done, length));
            for (size_t i = 0; i < length; i++) hash = (hash ^ part[i]) * 1099511628211u;
        }
    return hash;
}

static P create(size_t size) {
    Prop prop = {1, 1, 1, 0, 0, {0}}; P memory, at;
    OK(cuMemCreate(&memory, size, &prop, 0)); OK(cuMemAddressReserve(&at, size, 0, 0, 0)); OK(cuMemMap(at, size, 0, memory, 0));
    held[count].at = at;
    return memory;
}

static void spin(P length) {
    void *params[] = {&length};
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, 0));
}

static long rss(void) {
    char line[256]; long kib = 0; FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) if (sscanf(line, "VmRSS: %ld", &kib) == 1) break;
    if (status) fclose(status);
    return kib / 1024;
}

static void share(const char *what, int pid, long number) {
    char path[64]; P at; Ipc ipc; int fd;
    if (!strcmp(what, "export-ipc")) {
        OK(cuIpcGetMemHandle(&ipc, held[0].at));
        FILE *file = fopen(getenv("IPC_FILE"), "w");
        if (!file || fwrite(&ipc, sizeof ipc, 1, file) != 1 || fclose(file)) exit(1);
        puts("done");
    } else if (!strcmp(what, "import-ipc")) {
        FILE *file = fopen(getenv("IPC_FILE"), "r");
        if (!file || fread(&ipc, sizeof ipc, 1, file) != 1) exit(1);
        OK(cuIpcOpenMemHandle_v2(&at, ipc, 1)); puts("done");
    } else if (!strcmp(what, "export-fd")) {
        P memory = create(4 * MIB); keep(held[count].at, 4 * MIB, 9);
        OK(cuMemExportToShareableHandle(&fd, memory, 1, 0)); printf("%d\n", fd);
    } else {
        snprintf(path, sizeof path, "/proc/%d/fd/%ld", pid, number);
        if ((fd = open(path, O_RDWR)) < 0) exit(1);
        OK(cuMemImportFromShareableHandle(&at, (void *)(intptr_t)fd, 1)); puts("done");
    }
}

static void allocate(const char *kind, size_t size, unsigned seed) {
    P at = 0; size_t length; H module;
    if (!strcmp(kind, "plain")) OK(cuMemAlloc_v2(&at, size));
    if (!strcmp(kind, "managed")) OK(cuMemAllocManaged(&at, size, 1));
    if (!strcmp(kind, "pool")) OK(cuMemAllocAsync(&at, size, 0));
    if (!strcmp(kind, "virtual")) { create(size); at = held[count].at; }
    if (!strcmp(kind, "global")) { OK(cuModuleLoadData(&module, PTX)); OK(cuModuleGetGlobal_v2(&at, &length, module, "table")); size = length; }
    if (!strcmp(kind, "empty")) { OK(cuMemAlloc_v2(&at, size)); puts("done"); return; }
    if (!strcmp(kind, "multicast")) { Multicast object = {1, 2 * MIB, 0, 0}; OK(cuMulticastCreate(&at, &object)); puts("done"); return; }
    keep(at, size, seed);
    puts("done");
}

static void identify(void) {
    unsigned char uuid[16]; char bus[32];
    OK(cuDeviceGetUuid_v2(uuid, 0)); OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
    for (int i = 0; i < 16; i++) printf("%02x", uuid[i]);
    printf(" %s\n", bus);
}

static int tenant(void) {
    H context, module; char line[256], word[32], kind[32]; long a, b; void *host; size_t f, t; float ms;
    OK(cuInit(0)); OK(cuDevicePrimaryCtxRetain(&context, 0)); OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, PTX)); OK(cuModuleGetFunction(&function, module, "spin_ns"));
    OK(cuStreamCreate(&stream, 1)); OK(cuEventCreate(&first, 0)); OK(cuEventCreate(&last, 0));
    OK(cuMemHostAlloc(&host, 4096, 0)); flag = host;
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        a = b = 0; kind[0] = 0;
        if (sscanf(line, "%31s", word) != 1) continue;
        if (!strcmp(word, "alloc") && sscanf(line, "%*s %31s %ld %ld", kind, &a, &b) == 3) allocate(kind, (size_t)a << 10, (unsigned)b);
        else if (!strcmp(word, "sum")) printf("%016llx\n", (unsigned long long)sum());
        else if (!strcmp(word, "spin") && sscanf(line, "%*s %ld", &a) == 1) { spin((P)a * 1000000); puts("done"); }
        else if (!strcmp(word, "timed")) { OK(cuEventRecord(first, stream)); spin(3000000); OK(cuEventRecord(last, stream)); puts("done"); }
        else if (!strcmp(word, "time")) { OK(cuEventSynchronize(last)); OK(cuEventElapsedTime(&ms, first, last)); printf("%.1f\n", ms); }
        else if (!strcmp(word, "wait")) { *flag = 0; OK(cuStreamWaitValue32_v2(stream, (P)(uintptr_t)flag, 1, 0)); puts("done"); }
        else if (!strcmp(word, "go")) { *flag = 1; puts("done"); }
        else if (!strcmp(word, "used")) { OK(cuMemGetInfo_v2(&f, &t)); printf("%zu\n", (t - f) / MIB); }
        else if (!strcmp(word, "rss")) printf("%ld\n", rss());
        else if (!strcmp(word, "who")) identify();
        else if (!strcmp(word, "share") && sscanf(line, "%*s %31s %ld %ld", kind, &a, &b) >= 1) share(kind, (int)a, b);
        else puts("what?");
        fflush(stdout);
    }
    return 0;
}

/* Restores with a map over the devices that this process sees: each gets the one `shift` further on. */
static R restore_mapped(R (*restore)(int, RestoreArgs *), int pid, int shift, int left_out) {
    Pair pairs[16] = {0}; RestoreArgs args = {.pairs = pairs}; int n;
    OK(cuDeviceGetCount(&n));
    for (int i = 0; i < n; i++) {
        OK(cuDeviceGetUuid_v2(pairs[i].old, i)); OK(cuDeviceGetUuid_v2(pairs[i].new, (i + shift) % n));
    }
    args.count = (unsigned)(n - left_out);
    return restore(pid, &args);
}

static int controller(void) {
    H lib = dlopen("libcuda.so.1", RTLD_NOW);
    R (*state)(int, int *) = (R(*)(int, int *))dlsym(lib, "cuCheckpointProcessGetState");
    R (*thread)(int, int *) = (R(*)(int, int *))dlsym(lib, "cuCheckpointProcessGetRestoreThreadId");
    R (*lock)(int, LockArgs *) = (R(*)(int, LockArgs *))dlsym(lib, "cuCheckpointProcessLock");
    R (*checkpoint)(int, void *) = (R(*)(int, void *))dlsym(lib, "cuCheckpointProcessCheckpoint");
    R (*restore)(int, RestoreArgs *) = (R(*)(int, RestoreArgs *))dlsym(lib, "cuCheckpointProcessRestore");
    R (*unlock)(int, void *) = (R(*)(int, void *))dlsym(lib, "cuCheckpointProcessUnlock");
    int all = state && thread && lock && checkpoint && restore && unlock;
    int none = !state && !thread && !lock && !checkpoint && !restore && !unlock;
    puts(all ? "all six" : none ? "none" : "some"); fflush(stdout);
    char line[256], word[32]; int pid, value; long a, b; uint64_t wrong[8] = {0, 1};
    while (fgets(line, sizeof line, stdin)) {
        a = b = 0; value = -1;
        if (sscanf(line, "%31s %d %ld %ld", word, &pid, &a, &b) < 1) continue;
        LockArgs args = {.timeout = (unsigned)a};
        if (!strcmp(word, "init")) printf("%d\n", cuInit(0));
        else if (!strcmp(word, "state")) { R got = state(pid, &value); printf("%d %d\n", got, value); }
        else if (!strcmp(word, "thread")) { R got = thread(pid, &value); printf("%d %d\n", got, value); }
        else if (!strcmp(word, "lock")) printf("%d\n", lock(pid, a ? &args : 0));
        else if (!strcmp(word, "checkpoint")) printf("%d\n", checkpoint(pid, a ? wrong : 0));
        else if (!strcmp(word, "restore")) printf("%d\n", restore(pid, 0));
        else if (!strcmp(word, "map")) printf("%d\n", restore_mapped(restore, pid, (int)a, (int)b));
        else if (!strcmp(word, "unlock")) printf("%d\n", unlock(pid, 0));
        else puts("what?");
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv) {
    return argc > 1 && !strcmp(argv[1], "control") ? controller() : tenant();
}
