/* A driver of a few functions, in nothing but C: what a static program opens has no thread-local variables there,
 * which the simulated driver could not do without. It has one device, the one that CUDA_VISIBLE_DEVICES names, of
 * 32510 MiB, and gives whatever fits. */
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101 };
static const size_t whole = 32510ull << 20;
static size_t given;
static void *current;

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }
int cuDeviceGetCount(int *count) { return *count = 1, OK; }
int cuDeviceGet(int *device, int ordinal) { return *device = 0, ordinal ? INVALID_DEVICE : OK; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = whole, device ? INVALID_DEVICE : OK; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &given, device ? INVALID_DEVICE : OK; }
int cuCtxSetCurrent(void *context) { return current = context, OK; }
int cuCtxGetCurrent(void **context) { return *context = current, OK; }
int cuCtxGetDevice(int *device) { return *device = 0, OK; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    return *flags = 0, *active = current != NULL, device ? INVALID_DEVICE : OK;
}

int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    if (!bytes) return INVALID_VALUE;
    if (bytes > whole - given) return OUT_OF_MEMORY;
    *address = (256ull << 30) + given;
    given += (bytes + (2 << 20) - 1) & -(2ull << 20);
    return OK;
}

int cuDeviceGetUuid(unsigned char uuid[16], int device) {
    const char *name = getenv("CUDA_VISIBLE_DEVICES");
    memset(uuid, 0, 16);
    for (int digit = 0; name && *name && digit < 32; name++) {
        static const char digits[] = "0123456789abcdef";
        const char *found = strncmp(name, "GPU-", 4) && *name != '-' ? strchr(digits, *name) : NULL;
        if (!strncmp(name, "GPU-", 4)) name += 3;
        if (found) uuid[digit / 2] |= (unsigned char)((found - digits) << (digit % 2 ? 0 : 4)), digit++;
    }
    return device ? INVALID_DEVICE : OK;
}
