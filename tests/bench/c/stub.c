/* A driver of which every call returns at once: an allocation is a pointer bump, a free is nothing. What a
 * program measures on it is everything but the driver. It keeps no books and enforces nothing.
 *
 * CUDA_VISIBLE_DEVICES=GPU-... says whose UUID the one device has; STUB_MIB, how large it is. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

/* What is launched is done at once, so that a value behind it is written at once. */
result cuMemHostGetDevicePointer_v2(address *device, void *host, unsigned flags)
{
    (void)flags;
    *device = (address)(uintptr_t)host;
    return 0;
}
result cuStreamWriteValue32_v2(void *stream, address where, uint32_t value, unsigned flags)
{
    (void)stream, (void)flags;
    *(volatile uint32_t *)(uintptr_t)where = value;
    return 0;
}
result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void *stream, void **parameters, void **extra)
{
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
    (void)shared, (void)stream, (void)parameters, (void)extra;
    return 0;
}
