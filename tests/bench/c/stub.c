/* A driver of which every call returns at once: an allocation is a pointer bump, a free is nothing. What a
 * program measures on it is everything but the driver. It keeps no books and enforces nothing.
 *
 * CUDA_VISIBLE_DEVICES=GPU-... says whose UUID the one device has; STUB_MIB, how large it is. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int result;
typedef uint64_t address;

#define DEVICE_MIB 143000
#define BLOCK ((uint64_t)2 << 20)

static __thread __attribute__((tls_model("initial-exec"))) void *current;
static int context;
static address next = (address)1 << 44;

static size_t total(void)
{
    const char *mib = getenv("STUB_MIB");
    return (size_t)(mib ? strtoull(mib, NULL, 10) : DEVICE_MIB) << 20;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

result cuInit(unsigned flags) { (void)flags; return 0; }
result cuDriverGetVersion(int *version) { *version = 12040; return 0; }
result cuDeviceGetCount(int *count) { *count = 1; return 0; }
result cuDeviceGet(int *device, int ordinal) { *device = 0; return ordinal == 0 ? 0 : 101; }
result cuDeviceGetName(char *name, int length, int device)
{
    (void)device;
    strncpy(name, "stub", length);
    return 0;
}

result cuDeviceGetUuid(unsigned char uuid[16], int device)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    int nibbles = 0;
    (void)device;
    memset(uuid, 0, 16);
    for (text = text ? strchr(text, '-') : NULL; text && *text && nibbles < 32; text++)
        if (digit(*text) >= 0) {
            uuid[nibbles / 2] = uuid[nibbles / 2] << 4 | digit(*text);
            nibbles++;
        }
    return 0;
}

result cuDeviceGetUuid_v2(unsigned char uuid[16], int device) { return cuDeviceGetUuid(uuid, device); }
result cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = total(); return 0; }
result cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)attribute, (void)device;
    *value = 0;
    return 0;
}

result cuDevicePrimaryCtxRetain(void **made, int device) { (void)device; *made = &context; return 0; }
result cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
result cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0, *active = 1;
    return 0;
}
result cuCtxCreate_v2(void **made, unsigned flags, int device)
{
    (void)flags, (void)device;
    *made = current = &context;
    return 0;
}
result cuCtxSetCurrent(void *wanted) { current = wanted; return 0; }
result cuCtxGetCurrent(void **found) { *found = current; return 0; }
result cuCtxGetDevice(int *device) { *device = 0; return current ? 0 : 201; }

result cuMemAlloc_v2(address *made, size_t bytes)
{
    uint64_t taken = bytes < BLOCK ? (bytes + 511) / 512 * 512 : (bytes + BLOCK - 1) / BLOCK * BLOCK;
    if (bytes == 0)
        return 1;
    if (bytes >= BLOCK)
        next = (next + BLOCK - 1) / BLOCK * BLOCK;
    *made = next;
    next += taken;
    return 0;
}
result cuMemFree_v2(address freed) { (void)freed; return 0; }
result cuMemGetInfo_v2(size_t *free, size_t *all) { *free = *all = (size_t)DEVICE_MIB << 20; return 0; }

/* What is launched is done at once, unless STUB_KERNEL_NS says how long each kernel takes: then they queue up, and
 * what is to be written behind them is written when they are done. Who launches wakes nobody for that, which would take
 * longer than all that is measured: he writes himself what has become due, and a thread looks now and then. */
static uint64_t kernel_ns;
static _Atomic uint64_t done_at;

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void sleep_until(uint64_t moment)
{
    struct timespec time = {(time_t)(moment / 1000000000u), (long)(moment % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
}

enum { MOST_WRITES = 4096, LOOK_NS = 200000 };
static struct write {
    uint64_t due;
    volatile uint32_t *where;
    uint32_t value;
} writes[MOST_WRITES];
static _Atomic unsigned written, queued;
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;

static void write_due(uint64_t now)
{
    if (written == queued)
        return;
    pthread_mutex_lock(&queue);
    while (written != queued && writes[written % MOST_WRITES].due <= now) {
        struct write *next = &writes[written % MOST_WRITES];
        *next->where = next->value;
        written++;
    }
    pthread_mutex_unlock(&queue);
}

static void *write_in_time(void *unused)
{
    for (;;) {
        sleep_until(now_ns() + LOOK_NS);
        write_due(now_ns());
    }
    return unused;
}

__attribute__((constructor)) static void begin(void)
{
    pthread_t writer;
    const char *ns = getenv("STUB_KERNEL_NS");
    kernel_ns = ns ? strtoull(ns, NULL, 10) : 0;
    if (kernel_ns)
        pthread_create(&writer, NULL, write_in_time, NULL);
}

static int write_later(volatile uint32_t *where, uint32_t value)
{
    pthread_mutex_lock(&queue);
    int fits = queued - written < MOST_WRITES;
    if (fits) {
        writes[queued % MOST_WRITES] = (struct write){done_at, where, value};
        queued++;
    }
    pthread_mutex_unlock(&queue);
    return fits;
}

result cuMemHostGetDevicePointer_v2(address *device, void *host, unsigned flags)
{
    (void)flags;
    *device = (address)(uintptr_t)host;
    return 0;
}
result cuStreamWriteValue32_v2(void *stream, address where, uint32_t value, unsigned flags)
{
    volatile uint32_t *word = (volatile uint32_t *)(uintptr_t)where;
    (void)stream, (void)flags;
    if (kernel_ns && done_at > now_ns())
        return write_later(word, value) ? 0 : 2;
    *word = value;
    return 0;
}
result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *stream, void **parameters, void **extra)
{
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
    (void)shared, (void)stream, (void)parameters, (void)extra;
    if (kernel_ns) {
        uint64_t now = now_ns();
        write_due(now);
        done_at = (done_at > now ? done_at : now) + kernel_ns;
    }
    return 0;
}
result cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *stream)
{
    (void)to, (void)from, (void)bytes, (void)stream;
    return 0;
}
result cuStreamSynchronize(void *stream)
{
    (void)stream;
    if (kernel_ns) {
        sleep_until(done_at);
        write_due(done_at);
    }
    return 0;
}
