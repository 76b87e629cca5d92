/* A program that uses a GPU as it is told, one line at a time, and says what the driver answered.
 *
 * The tests talk to it over standard input and output, so that a test reads as a conversation:
 *
 *     cuda                 ok
 *     context 0            ok
 *     alloc plain 2097152  ok 0
 *     info                 ok 15000000000 17044602880
 *     free 0               ok
 *
 * Every answer is one line: `ok` and numbers, or `err` and the driver's number for what went wrong.
 * It knows nothing of slices. The declarations are its own; it opens the driver as most programs do. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long Address;

/* Errors of this program, outside the range of the driver's. */
enum { NO_LIBRARY = 9001, NO_SYMBOL = 9002, NO_SUCH_THING = 9003, BAD_COMMAND = 9004, SYSTEM = 9005 };

static void *library(const char *name) { return dlopen(name, RTLD_NOW); }

static void *cuda_symbol(const char *name) {
    void *handle = library("libcuda.so.1");
    return handle ? dlsym(handle, name) : NULL;
}

static void *nvml_symbol(const char *name) {
    void *handle = library("libnvidia-ml.so.1");
    return handle ? dlsym(handle, name) : NULL;
}

/* Calls a driver function by name; a missing library or symbol is an answer, not a crash. */
#define CUDA(name, types, ...)                                              \
    ({                                                                      \
        int (*function) types = (int(*) types)cuda_symbol(name);            \
        function ? function(__VA_ARGS__) : NO_SYMBOL;                       \
    })
#define NVML(name, types, ...)                                              \
    ({                                                                      \
        int (*function) types = (int(*) types)nvml_symbol(name);            \
        function ? function(__VA_ARGS__) : NO_SYMBOL;                       \
    })

/* ---- what it holds ---- */

enum kind { PLAIN, MANAGED, PITCH, ASYNC, POOL, VIRTUAL, ARRAY, KINDS };
static const char *const KIND_NAMES[KINDS] = {"plain", "managed", "pitch", "async", "pool", "virtual", "array"};

struct piece {
    enum kind kind;
    Address handle;
    size_t bytes;
};

enum { PIECES = 1 << 17 };
static struct piece pieces[PIECES];
static int piece_count;
static void *contexts[64];
static int current_device;

struct allocation_properties { /* CUmemAllocationProp */
    int type, handle_types, location_type, location_id;
    void *win32;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
};

struct array_shape { /* CUDA_ARRAY_DESCRIPTOR */
    size_t width, height;
    int format;
    unsigned channels;
};

/* Physical memory of any device, whichever is current. */
static int create_on(int device, size_t bytes, Address *handle) {
    size_t block = 2 << 20, whole = (bytes + block - 1) / block * block;
    struct allocation_properties pinned = {.type = 1, .location_type = 1, .location_id = device};
    return CUDA("cuMemCreate", (Address *, size_t, void *, unsigned long long), handle, whole, &pinned, 0);
}

/* From the default pool of any device, in a stream of the current one. */
static int take_from_pool(int device, size_t bytes, Address *handle) {
    void *pool = NULL;
    int failed = CUDA("cuDeviceGetDefaultMemPool", (void **, int), &pool, device);
    return failed ? failed
                  : CUDA("cuMemAllocFromPoolAsync", (Address *, size_t, void *, void *), handle, bytes, pool, NULL);
}

static int allocate(enum kind kind, size_t bytes, Address *handle) {
    *handle = 0;
    switch (kind) {
    case PLAIN:
        return CUDA("cuMemAlloc_v2", (Address *, size_t), handle, bytes);
    case MANAGED:
        return CUDA("cuMemAllocManaged", (Address *, size_t, unsigned), handle, bytes, 1);
    case PITCH: {
        size_t pitch, row = 4096;
        return CUDA("cuMemAllocPitch_v2", (Address *, size_t *, size_t, size_t, unsigned), handle, &pitch, row,
                    (bytes + row - 1) / row, 4);
    }
    case ASYNC:
        return CUDA("cuMemAllocAsync", (Address *, size_t, void *), handle, bytes, NULL);
    case POOL:
        return take_from_pool(current_device, bytes, handle);
    case VIRTUAL:
        return create_on(current_device, bytes, handle);
    case ARRAY: {
        size_t side = 16384; /* bytes in a row of floats */
        struct array_shape shape = {side / 4, (bytes + side - 1) / side, 0x20, 1};
        return CUDA("cuArrayCreate_v2", (void **, void *), (void **)handle, &shape);
    }
    default:
        return NO_SUCH_THING;
    }
}

static int release(enum kind kind, Address handle) {
    int failed;
    switch (kind) {
    case ASYNC:
    case POOL:
        failed = CUDA("cuMemFreeAsync", (Address, void *), handle, NULL);
        return failed ? failed : CUDA("cuStreamSynchronize", (void *), NULL);
    case VIRTUAL:
        return CUDA("cuMemRelease", (Address), handle);
    case ARRAY:
        return CUDA("cuArrayDestroy", (void *), (void *)(uintptr_t)handle);
    default:
        return CUDA("cuMemFree_v2", (Address), handle);
    }
}

static int keep(enum kind kind, Address handle, size_t bytes) {
    if (piece_count == PIECES) return -1;
    pieces[piece_count] = (struct piece){kind, handle, bytes};
    return piece_count++;
}

/* ---- contents ---- */

enum { CONTENT_WORDS = 1 << 17 };

/* Writes words that follow from the seed over the whole of a piece. */
static int write_content(const struct piece *piece, uint64_t seed) {
    static uint64_t words[CONTENT_WORDS];
    int failed = 0;
    for (size_t done = 0; done < piece->bytes && !failed; done += sizeof words) {
        size_t rest = piece->bytes - done < sizeof words ? piece->bytes - done : sizeof words;
        for (size_t at = 0; at < rest / 8; at++) words[at] = seed = seed * 6364136223846793005u + 1442695040888963407u;
        failed = CUDA("cuMemcpyHtoD_v2", (Address, const void *, size_t), piece->handle + done, words, rest);
    }
    return failed;
}

/* A checksum of the whole of a piece. */
static int sum_content(const struct piece *piece, uint64_t *sum) {
    static uint64_t words[CONTENT_WORDS];
    int failed = 0;
    for (size_t done = 0; done < piece->bytes && !failed; done += sizeof words) {
        size_t rest = piece->bytes - done < sizeof words ? piece->bytes - done : sizeof words;
        failed = CUDA("cuMemcpyDtoH_v2", (void *, Address, size_t), words, piece->handle + done, rest);
        for (size_t at = 0; at < rest / 8; at++) *sum = (*sum ^ words[at]) * 0x100000001b3u;
    }
    return failed;
}

static int drop_all(void) {
    int worst = 0;
    for (int at = 0; at < piece_count; at++) {
        int failed = pieces[at].handle ? release(pieces[at].kind, pieces[at].handle) : 0;
        if (failed) worst = failed;
    }
    piece_count = 0;
    return worst;
}

/* ---- many threads that allocate and free at random ---- */

struct churn {
    void *context;
    size_t most;
    unsigned seed;
    long millis;
    long granted, refused;
    int wrong;
};

static long now_millis(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Small, middling and large sizes in equal parts; a few pieces held at a time. */
static size_t random_size(unsigned *seed, size_t most) {
    static const size_t upto[3] = {1 << 20, 64 << 20, 0};
    size_t limit = upto[rand_r(seed) % 3];
    limit = limit && limit < most ? limit : most;
    return 1 + (size_t)(((double)rand_r(seed) / RAND_MAX) * (double)(limit - 1));
}

static void *churn_thread(void *argument) {
    struct churn *churn = argument;
    enum { HELD = 16 };
    struct piece held[HELD] = {0};
    long end = now_millis() + churn->millis;
    churn->wrong = CUDA("cuCtxSetCurrent", (void *), churn->context);
    while (!churn->wrong && now_millis() < end) {
        struct piece *piece = &held[rand_r(&churn->seed) % HELD];
        if (piece->handle) {
            churn->wrong = release(piece->kind, piece->handle);
            piece->handle = 0;
            continue;
        }
        piece->kind = rand_r(&churn->seed) % 4 ? PLAIN : (enum kind)(rand_r(&churn->seed) % KINDS);
        int failed = allocate(piece->kind, random_size(&churn->seed, churn->most), &piece->handle);
        if (failed) piece->handle = 0;
        if (failed == 2) churn->refused++;
        else if (failed) churn->wrong = failed;
        else churn->granted++;
    }
    for (int at = 0; at < HELD; at++) {
        int failed = held[at].handle ? release(held[at].kind, held[at].handle) : 0;
        if (failed) churn->wrong = failed;
    }
    return NULL;
}

enum { THREADS = 32 };

static void run_churn(FILE *out, int threads, long millis, size_t most, unsigned seed) {
    pthread_t running[THREADS];
    struct churn churns[THREADS];
    void *context = contexts[current_device];
    if (threads < 1 || threads > THREADS) { fprintf(out, "err %d\n", BAD_COMMAND); return; }
    for (int at = 0; at < threads; at++) {
        churns[at] = (struct churn){context, most, seed * 1000 + (unsigned)at, millis, 0, 0, 0};
        pthread_create(&running[at], NULL, churn_thread, &churns[at]);
    }
    long granted = 0, refused = 0;
    int wrong = 0;
    for (int at = 0; at < threads; at++) {
        pthread_join(running[at], NULL);
        granted += churns[at].granted;
        refused += churns[at].refused;
        if (churns[at].wrong) wrong = churns[at].wrong;
    }
    if (wrong) fprintf(out, "err %d\n", wrong);
    else fprintf(out, "ok %ld %ld\n", granted, refused);
}

/* ---- filling up ---- */

/* Pieces of `block` bytes until refused, then halves of it down to `least`. */
static void fill(FILE *out, enum kind kind, size_t block, size_t least) {
    size_t total = 0;
    long count = 0;
    int failed = 0;
    while (block >= least) {
        Address handle;
        failed = allocate(kind, block, &handle);
        if (failed == 2) { block /= 2; continue; }
        if (failed || keep(kind, handle, block) < 0) break;
        total += block;
        count++;
    }
    if (failed != 2) fprintf(out, "err %d\n", failed ? failed : NO_SUCH_THING);
    else fprintf(out, "ok %zu %ld\n", total, count);
}

/* Pieces of random size from `least` to `most` until `refusals` were refused; frees every fourth on the way. */
static void sprinkle(FILE *out, size_t least, size_t most, long refusals, unsigned seed) {
    size_t total = 0;
    long count = 0;
    while (refusals > 0) {
        size_t bytes = least + (size_t)(((double)rand_r(&seed) / RAND_MAX) * (double)(most - least));
        Address handle;
        int failed = allocate(PLAIN, bytes, &handle);
        if (failed == 2) { refusals--; continue; }
        if (failed) { fprintf(out, "err %d\n", failed); return; }
        int at = keep(PLAIN, handle, bytes);
        if (at < 0) break;
        total += bytes;
        count++;
        if (count % 4 == 0) {
            struct piece *other = &pieces[rand_r(&seed) % (unsigned)piece_count];
            if (other->handle && release(other->kind, other->handle) == 0) {
                total -= other->bytes;
                other->handle = 0;
            }
        }
    }
    fprintf(out, "ok %zu %ld\n", total, count);
}

/* ---- memory that several processes hold ---- */

struct ipc { unsigned char bytes[64]; };

/* Says the handle by which others can open a piece. */
static void lend(FILE *out, struct piece *piece) {
    struct ipc handle;
    int failed = CUDA("cuIpcGetMemHandle", (struct ipc *, Address), &handle, piece->handle);
    if (failed) { fprintf(out, "err %d\n", failed); return; }
    fprintf(out, "ok ");
    for (int at = 0; at < 64; at++) fprintf(out, "%02x", handle.bytes[at]);
    fprintf(out, "\n");
}

/* Opens what another process lent, for as long as this one lives. */
static int open_lent(const char *digits) {
    struct ipc handle;
    Address piece;
    for (int at = 0; at < 64; at++)
        if (sscanf(digits + 2 * at, "%2hhx", &handle.bytes[at]) != 1) return BAD_COMMAND;
    return CUDA("cuIpcOpenMemHandle_v2", (Address *, struct ipc, unsigned), &piece, handle, 1);
}

#include "nvml.h"

/* ---- what the system says of this process ---- */

static long entries(const char *path) {
    DIR *directory = opendir(path);
    long count = 0;
    if (!directory) return -1;
    while (readdir(directory)) count++;
    closedir(directory);
    return count - 3; /* . and .. and, in fd, the directory itself; the caller compares like with like */
}

/* Opens many empty files, which take the lowest descriptors that are free. */
static void open_files(FILE *out, const char *directory) {
    char path[4200];
    for (int at = 0; at < 32; at++) {
        snprintf(path, sizeof path, "%s/file-%d", directory, at);
        if (open(path, O_RDWR | O_CREAT, 0600) < 0) { fprintf(out, "err %d\n", SYSTEM); return; }
    }
    fprintf(out, "ok\n");
}

/* Tries to make every shared read-only mapping writable, and to open what is mapped for writing: answers how
 * many there were, and how many let it. */
static void try_to_write_shared_pages(FILE *out) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096], path[128];
    long tried = 0, opened = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3 || strcmp(rights, "r--s")) continue;
        tried++;
        snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", from, to);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0) close(fd);
        if (fd >= 0 || mprotect((void *)from, to - from, PROT_READ | PROT_WRITE) == 0) opened++;
    }
    if (maps) fclose(maps);
    fprintf(out, "ok %ld %ld\n", tried, opened);
}

/* Overwrites all of the usage region, which the program can write, with one byte. */
static void scribble(FILE *out, int byte) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096];
    long pages = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3) continue;
        if (strcmp(rights, "rw-s") || !strstr(line, "/usage")) continue;
        memset((void *)from, byte, to - from);
        pages += (long)(to - from) >> 12;
    }
    if (maps) fclose(maps);
    fprintf(out, "ok %ld\n", pages);
}

/* ---- relatives ---- */

enum { CHILDREN = 64 };
static FILE *to_child[CHILDREN], *from_child[CHILDREN];
static int child_count;
static char **own_arguments;

static void serve(FILE *in, FILE *out);

static int adopt(int fd) {
    to_child[child_count] = fdopen(dup(fd), "w");
    from_child[child_count] = fdopen(fd, "r");
    return child_count++;
}

/* A child that goes on in this image (`fork`) or begins anew in a fresh one (`spawn`). */
static void beget(FILE *out, int fresh) {
    int ends[2];
    if (child_count == CHILDREN || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        fprintf(out, "err %d\n", SYSTEM);
        return;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0 && fresh) {
        dup2(ends[1], 0);
        dup2(ends[1], 1);
        execv("/proc/self/exe", own_arguments);
        _exit(127);
    }
    if (child == 0) {
        close(ends[0]);
        child_count = 0;
        serve(fdopen(dup(ends[1]), "r"), fdopen(ends[1], "w"));
        _exit(0);
    }
    close(ends[1]);
    if (child < 0) { close(ends[0]); fprintf(out, "err %d\n", SYSTEM); return; }
    fprintf(out, "ok %d %d\n", adopt(ends[0]), child);
}

static void ask_child(FILE *out, int child, const char *line) {
    char answer[8192];
    if (child < 0 || child >= child_count) { fprintf(out, "err %d\n", NO_SUCH_THING); return; }
    fprintf(to_child[child], "%s\n", line);
    fflush(to_child[child]);
    if (fgets(answer, sizeof answer, from_child[child])) fputs(answer, out);
    else fprintf(out, "err %d\n", SYSTEM);
}

/* ---- the conversation ---- */

static void answer(FILE *out, int failed, const char *format, unsigned long long a, unsigned long long b) {
    if (failed) { fprintf(out, "err %d\n", failed); return; }
    fprintf(out, "ok");
    fprintf(out, format, a, b);
    fprintf(out, "\n");
}

static enum kind kind_named(const char *name) {
    int kind = 0;
    while (kind < KINDS && strcmp(name, KIND_NAMES[kind])) kind++;
    return (enum kind)kind;
}

static void with_device(FILE *out, const char *verb, int index) {
    int device = 0;
    int failed = CUDA("cuDeviceGet", (int *, int), &device, index);
    if (failed) { answer(out, failed, "", 0, 0); return; }
    if (!strcmp(verb, "total")) {
        size_t total = 0;
        failed = CUDA("cuDeviceTotalMem_v2", (size_t *, int), &total, device);
        answer(out, failed, " %llu", total, 0);
    } else if (!strcmp(verb, "uuid")) {
        unsigned char uuid[16];
        failed = CUDA("cuDeviceGetUuid", (void *, int), uuid, device);
        if (failed) { answer(out, failed, "", 0, 0); return; }
        fprintf(out, "ok ");
        for (int at = 0; at < 16; at++) fprintf(out, "%02x", uuid[at]);
        fprintf(out, "\n");
    } else { /* context */
        failed = CUDA("cuDevicePrimaryCtxRetain", (void **, int), &contexts[index & 63], device);
        if (!failed) failed = CUDA("cuCtxSetCurrent", (void *), contexts[index & 63]);
        if (!failed) current_device = index & 63;
        answer(out, failed, "", 0, 0);
    }
}

static void obey(FILE *out, char *line) {
    char word[64] = "", text[4096] = "";
    unsigned long long a = 0, b = 0, c = 0, d = 0;
    sscanf(line, "%63s", word);
    if (!strcmp(word, "cuda")) {
        answer(out, library("libcuda.so.1") ? CUDA("cuInit", (unsigned), 0) : NO_LIBRARY, "", 0, 0);
    } else if (!strcmp(word, "count")) {
        int count = 0;
        int failed = CUDA("cuDeviceGetCount", (int *), &count);
        answer(out, failed, " %llu", (unsigned long long)count, 0);
    } else if (sscanf(line, "total %llu", &a) == 1 || sscanf(line, "uuid %llu", &a) == 1 ||
               sscanf(line, "context %llu", &a) == 1) {
        with_device(out, word, (int)a);
    } else if (!strcmp(word, "managed")) {
        static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                    ".visible .global .attribute(.managed) .align 4 .u32 seen;\n";
        Address module = 0;
        answer(out, CUDA("cuModuleLoadData", (Address *, const void *), &module, image), "", 0, 0);
    } else if (!strcmp(word, "info")) {
        size_t unused = 0, total = 0;
        int failed = CUDA("cuMemGetInfo_v2", (size_t *, size_t *), &unused, &total);
        answer(out, failed, " %llu %llu", unused, total);
    } else if (sscanf(line, "alloc %63s %llu", text, &a) == 2) {
        Address handle;
        enum kind kind = kind_named(text);
        int failed = allocate(kind, a, &handle);
        int at = failed ? 0 : keep(kind, handle, a);
        answer(out, failed, " %llu", (unsigned long long)at, 0);
    } else if (sscanf(line, "physical %llu %llu", &a, &b) == 2) {
        Address handle = 0;
        int failed = create_on((int)a, b, &handle);
        int at = failed ? 0 : keep(VIRTUAL, handle, b);
        answer(out, failed, " %llu", (unsigned long long)at, 0);
    } else if (sscanf(line, "pooled %llu %llu", &a, &b) == 2) {
        Address handle = 0;
        int failed = take_from_pool((int)a, b, &handle);
        int at = failed ? 0 : keep(POOL, handle, b);
        answer(out, failed, " %llu", (unsigned long long)at, 0);
    } else if (sscanf(line, "peer %llu %llu", &a, &b) == 2) {
        int failed = CUDA("cuCtxSetCurrent", (void *), contexts[a & 63]);
        if (!failed) failed = CUDA("cuCtxEnablePeerAccess", (void *, unsigned), contexts[b & 63], 0);
        if (!failed) current_device = (int)(a & 63);
        answer(out, failed, "", 0, 0);
    } else if (sscanf(line, "bybus %63s", text) == 1) {
        int device = -1;
        int failed = CUDA("cuDeviceGetByPCIBusId", (int *, const char *), &device, text);
        answer(out, failed, " %llu", (unsigned long long)device, 0);
    } else if (sscanf(line, "number %llu", &a) == 1) {
        int device = -1;
        int failed = CUDA("cuDeviceGet", (int *, int), &device, (int)a);
        answer(out, failed, " %llu", (unsigned long long)device, 0);
    } else if (sscanf(line, "free %llu", &a) == 1) {
        struct piece *piece = a < (unsigned long long)piece_count ? &pieces[a] : NULL;
        int failed = piece && piece->handle ? release(piece->kind, piece->handle) : NO_SUCH_THING;
        if (!failed) piece->handle = 0;
        answer(out, failed, "", 0, 0);
    } else if (sscanf(line, "write %llu %llu", &a, &b) == 2 && a < (unsigned long long)piece_count) {
        answer(out, write_content(&pieces[a], b), "", 0, 0);
    } else if (sscanf(line, "sum %llu", &a) == 1 && a < (unsigned long long)piece_count) {
        uint64_t sum = 0;
        int failed = sum_content(&pieces[a], &sum);
        answer(out, failed, " %llu", (unsigned long long)sum, 0);
    } else if (sscanf(line, "lend %llu", &a) == 1 && a < (unsigned long long)piece_count) {
        lend(out, &pieces[a]);
    } else if (!strcmp(word, "open") && sscanf(line, "open %4095s", text) == 1) {
        answer(out, open_lent(text), "", 0, 0);
    } else if (sscanf(line, "fill %63s %llu %llu", text, &a, &b) == 3) {
        fill(out, kind_named(text), a, b);
    } else if (sscanf(line, "sprinkle %llu %llu %llu %llu", &a, &b, &c, &d) == 4) {
        sprinkle(out, a, b, (long)c, (unsigned)d);
    } else if (!strcmp(word, "drop")) {
        answer(out, drop_all(), "", 0, 0);
    } else if (sscanf(line, "churn %llu %llu %llu %llu", &a, &b, &c, &d) == 4) {
        run_churn(out, (int)a, (long)b, c, (unsigned)d);
    } else if (!strcmp(word, "nvml")) {
        answer(out, library("libnvidia-ml.so.1") ? NVML("nvmlInit_v2", (void)) : NO_LIBRARY, "", 0, 0);
    } else if (!strcmp(word, "nvmlcount")) {
        unsigned count = 0;
        int failed = NVML("nvmlDeviceGetCount_v2", (unsigned *), &count);
        answer(out, failed, " %llu", count, 0);
    } else if (obey_about_nvml(out, line)) {
        /* That was all. */
    } else if (!strcmp(word, "pid")) {
        answer(out, 0, " %llu %llu", (unsigned long long)getpid(), (unsigned long long)getppid());
    } else if (!strcmp(word, "fds")) {
        answer(out, 0, " %llu", (unsigned long long)entries("/proc/self/fd"), 0);
    } else if (!strcmp(word, "threads")) {
        answer(out, 0, " %llu", (unsigned long long)(entries("/proc/self/task") + 1), 0);
    } else if (!strcmp(word, "closefds")) {
        for (int fd = 3; fd < 1024; fd++) close(fd);
        answer(out, 0, "", 0, 0);
    } else if (sscanf(line, "openfiles %4000s", text) == 1) {
        open_files(out, text);
    } else if (!strcmp(word, "writeshared")) {
        try_to_write_shared_pages(out);
    } else if (sscanf(line, "scribble %llu", &a) == 1) {
        scribble(out, (int)a);
    } else if (sscanf(line, "unset %4095s", text) == 1) {
        answer(out, unsetenv(text) ? SYSTEM : 0, "", 0, 0);
    } else if (sscanf(line, "getenv %4095s", text) == 1) {
        const char *value = getenv(text);
        if (value) fprintf(out, "ok %s\n", value);
        else answer(out, NO_SUCH_THING, "", 0, 0);
    } else if (sscanf(line, "setenv %63s %4031[^\n]", word, text) >= 1) {
        answer(out, setenv(word, text, 1) ? SYSTEM : 0, "", 0, 0);
    } else if (!strcmp(word, "fork") || !strcmp(word, "spawn")) {
        beget(out, !strcmp(word, "spawn"));
    } else if (sscanf(line, "child %llu %4095[^\n]", &a, text) == 2) {
        ask_child(out, (int)a, text);
    } else if (!strcmp(word, "exec")) {
        fflush(NULL);
        execv("/proc/self/exe", own_arguments);
        answer(out, SYSTEM, "", 0, 0);
    } else if (sscanf(line, "exit %llu", &a) == 1) {
        fflush(NULL);
        _exit((int)a);
    } else {
        answer(out, BAD_COMMAND, "", 0, 0);
    }
}

static void serve(FILE *in, FILE *out) {
    char line[8192];
    while (fgets(line, sizeof line, in)) {
        obey(out, line);
        fflush(out);
    }
}

int main(int count, char **arguments) {
    (void)count;
    own_arguments = arguments;
    /* Unbuffered, so that `exec` leaves unread lines to the next image. */
    setvbuf(stdin, NULL, _IONBF, 0);
    serve(stdin, stdout);
    return 0;
}
