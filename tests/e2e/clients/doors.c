/* A program that finds the driver's functions by every door there is, and asks the same through each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef void *(*Door)(const char *name);
typedef int (*ProcAddress)(const char *name, void **function, int version, unsigned long long flags);
typedef int (*ProcAddress2)(const char *name, void **function, int version, unsigned long long flags, int *status);

static void *driver;

static void *by_handle(const char *name) { return dlsym(driver, name); }
static void *by_default(const char *name) { return dlsym(RTLD_DEFAULT, name); }
static void *by_own_handle(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name); }

/* Drivers give no versions to their names; but the way to `dlsym` itself may be asked for by version. */
static void *by_versioned_dlsym(const char *name) {
    void *(*find)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5");
    return find ? find(driver, name) : NULL;
}

static void *by_newer_versioned_dlsym(const char *name) {
    void *(*find)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    return find ? find(driver, name) : by_versioned_dlsym(name);
}

/* The driver's own door takes names without their suffix. */
static const char *base_name(const char *name) {
    static char base[128];
    snprintf(base, sizeof base, "%s", name);
    size_t length = strlen(base);
    if (length > 3 && !strcmp(base + length - 3, "_v2")) base[length - 3] = 0;
    return base;
}

static void *by_driver_door(const char *name) {
    ProcAddress door = (ProcAddress)dlsym(driver, "cuGetProcAddress");
    void *function = NULL;
    return door && !door(base_name(name), &function, 12000, 0) ? function : NULL;
}

static void *by_second_driver_door(const char *name) {
    ProcAddress2 door = (ProcAddress2)dlsym(driver, "cuGetProcAddress_v2");
    void *function = NULL;
    int status;
    return door && !door(base_name(name), &function, 12000, 0, &status) ? function : NULL;
}

/* As the CUDA runtime does it: the door is itself found through the door. */
static void *by_door_behind_the_door(const char *name) {
    ProcAddress2 door = (ProcAddress2)by_second_driver_door("cuGetProcAddress");
    void *function = NULL;
    int status;
    return door && !door(base_name(name), &function, 12000, 0, &status) ? function : NULL;
}

static const struct { const char *name; Door find; } doors[] = {
    {"dlsym", by_handle},
    {"dlsym-default", by_default},
    {"dlsym-noload", by_own_handle},
    {"dlvsym", by_versioned_dlsym},
    {"dlvsym-next", by_newer_versioned_dlsym},
    {"cuGetProcAddress", by_driver_door},
    {"cuGetProcAddress_v2", by_second_driver_door},
    {"cuGetProcAddress-by-itself", by_door_behind_the_door},
};

#define CALL(door, name, types, ...)                                        \
    ({                                                                      \
        int (*function) types = (int(*) types)(door)(name);                 \
        function ? function(__VA_ARGS__) : -1;                              \
    })

static int ask(const char *name, Door door) {
    int count = 0, device = 0;
    size_t whole = 0, unused = 0, less = 0, total = 0;
    unsigned long long address;
    void *context;
    int failed = CALL(door, "cuInit", (unsigned), 0);
    if (!failed) failed = CALL(door, "cuDeviceGetCount", (int *), &count);
    if (!failed) failed = CALL(door, "cuDeviceGet", (int *, int), &device, 0);
    if (!failed) failed = CALL(door, "cuDeviceTotalMem_v2", (size_t *, int), &whole, device);
    if (!failed) failed = CALL(door, "cuDevicePrimaryCtxRetain", (void **, int), &context, device);
    if (!failed) failed = CALL(door, "cuCtxSetCurrent", (void *), context);
    if (!failed) failed = CALL(door, "cuMemGetInfo_v2", (size_t *, size_t *), &unused, &total);
    if (!failed) failed = CALL(door, "cuMemAlloc_v2", (unsigned long long *, size_t), &address, 64 << 20);
    if (!failed) failed = CALL(door, "cuMemGetInfo_v2", (size_t *, size_t *), &less, &total);
    if (!failed) failed = CALL(door, "cuMemFree_v2", (unsigned long long), address);
    if (failed) {
        fprintf(stderr, "%s: %d\n", name, failed);
        return 1;
    }
    int refused = CALL(door, "cuMemAlloc_v2", (unsigned long long *, size_t), &address, total);
    printf("%s %d %zu %zu %zu %d\n", name, count, whole, total, unused - less, refused);
    return 0;
}

int main(void) {
    int failed = 0;
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver) return 2;
    for (size_t at = 0; at < sizeof doors / sizeof *doors; at++) failed |= ask(doors[at].name, doors[at].find);
    return failed;
}
