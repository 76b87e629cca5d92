/* A program that reaches the driver by one route and says what it finds there: the device's memory, and whether
 * it is given more than a slice may have.
 *
 *     route ROUTE BEYOND [PATH]
 *
 * says `total BYTES beyond RESULT`, `error RESULT` if the driver does not begin, or `absent` if there is none.
 * With LINKED it is linked to the driver, with PLUGIN it is a library that such a program opens, with STATIC it
 * is a static program. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*Find)(const char *name);
typedef int (*Door)(const char *name, void **function, int version, unsigned long long flags, int *status);

static void *driver;
static void *(*look_up)(void *handle, const char *name) = dlsym;

static void *in_driver(const char *name) { return look_up(driver, name); }
static void *at_next(const char *name) { return dlsym(RTLD_NEXT, name); }

#define CALL(name, types, ...)                                              \
    ({                                                                      \
        int (*function) types = (int(*) types)find(name);                   \
        function ? function(__VA_ARGS__) : -1;                              \
    })

static int ask(Find find, size_t beyond) {
    int device = 0;
    size_t total = 0;
    unsigned long long address;
    void *context;
    if (!find || !find("cuInit")) return puts("absent");
    int failed = CALL("cuInit", (unsigned), 0);
    if (!failed) failed = CALL("cuDeviceGet", (int *, int), &device, 0);
    if (!failed) failed = CALL("cuDeviceTotalMem_v2", (size_t *, int), &total, device);
    if (!failed) failed = CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, device);
    if (!failed) failed = CALL("cuCtxSetCurrent", (void *), context);
    if (failed) return printf("error %d\n", failed);
    return printf("total %zu beyond %d\n", total, CALL("cuMemAlloc_v2", (unsigned long long *, size_t), &address, beyond));
}

/* The driver's own door knows names without their suffix. */
static Door door;
static void *behind_door(const char *name) {
    char base[64];
    void *function = NULL;
    int status, length = snprintf(base, sizeof base, "%s", name);
    if (length > 3 && !strcmp(base + length - 3, "_v2")) base[length - 3] = 0;
    return door && !door(base, &function, 12000, 0, &status) ? function : NULL;
}

#ifdef LINKED
int cuInit(unsigned), cuDeviceGet(int *, int), cuDeviceTotalMem_v2(size_t *, int);
int cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemAlloc_v2(unsigned long long *, size_t);

static void *by_linker(const char *name) {
    static const struct { const char *name; void *function; } linked[] = {
        {"cuInit", cuInit}, {"cuDeviceGet", cuDeviceGet}, {"cuDeviceTotalMem_v2", cuDeviceTotalMem_v2},
        {"cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain}, {"cuCtxSetCurrent", cuCtxSetCurrent},
        {"cuMemAlloc_v2", cuMemAlloc_v2},
    };
    for (size_t at = 0; at < sizeof linked / sizeof *linked; at++)
        if (!strcmp(linked[at].name, name)) return linked[at].function;
    return NULL;
}
#else
#define by_linker NULL
#endif

#ifndef STATIC
void *old_dlsym(void *handle, const char *name);
__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");

typedef int (*Plugin)(const char *route, size_t beyond);

static int in_plugin(void *plugin, const char *route, size_t beyond) {
    Plugin function = plugin ? (Plugin)dlsym(plugin, "plugin") : NULL;
    return function ? function(route, beyond) : puts(dlerror());
}
#endif

static int by(const char *route, size_t beyond, const char *path) {
    const int now = RTLD_NOW;
#define IS(name) (!strcmp(route, name))
    if (IS("linked")) return ask(by_linker, beyond);
    if (IS("next")) return ask(at_next, beyond);
    if (IS("path")) return driver = dlopen(path, now), ask(driver ? in_driver : NULL, beyond);
#ifndef STATIC
    if (IS("plugin-deepbind")) return in_plugin(dlopen(path, now | RTLD_DEEPBIND), "linked", beyond);
    if (IS("plugin-deepbind-dlopen")) return in_plugin(dlopen(path, now | RTLD_DEEPBIND), "dlsym", beyond);
    if (IS("plugin-dlmopen")) return in_plugin(dlmopen(LM_ID_NEWLM, path, now), "dlsym", beyond);
    if (IS("dlmopen")) return driver = dlmopen(LM_ID_NEWLM, path, now), ask(driver ? in_driver : NULL, beyond);
    if (IS("deepbind")) return driver = dlopen(path, now | RTLD_DEEPBIND), ask(driver ? in_driver : NULL, beyond);
#endif
    driver = dlopen("libcuda.so.1", now);
    if (!driver) return puts("absent");
    if (IS("dlsym")) return ask(in_driver, beyond);
    if (IS("door") || IS("door-behind-door")) {
        door = (Door)dlsym(driver, "cuGetProcAddress_v2");
        if (IS("door-behind-door")) door = (Door)behind_door("cuGetProcAddress");
        return ask(behind_door, beyond);
    }
#ifndef STATIC
    if (IS("dlsym-old")) return look_up = old_dlsym, ask(in_driver, beyond);
    if (IS("dlsym-by-dlsym"))
        return look_up = (void *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "dlsym"), ask(in_driver, beyond);
    if (IS("dlsym-by-dlvsym"))
        return look_up = (void *(*)(void *, const char *))dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5"), ask(in_driver, beyond);
#endif
    return puts("no such route");
}

#ifdef PLUGIN
int plugin(const char *route, size_t beyond) {
    int said = by(route, beyond, NULL);
    fflush(stdout); /* in a namespace of its own, nobody else will */
    return said;
}
#else
int main(int count, char **arguments) {
    if (count < 3) return 2;
    by(arguments[1], strtoull(arguments[2], NULL, 10), count > 3 ? arguments[3] : "libcuda.so.1");
    return 0;
}
#endif
