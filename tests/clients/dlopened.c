/* dlopened: finds the driver at run time, by each road a program may take.
 *
 * For every road it asks what the device holds and tries an allocation beyond it. The
 * roads must agree; one line of JSON says what each of them saw. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long CUdeviceptr;
typedef int (*GetProcAddress)(const char *, void **, int, uint64_t, int *);

struct road {
    const char *name;
    void *(*find)(const char *symbol, const char *base);
};

static void *driver;

static void *by_dlsym(const char *symbol, const char *base) { return (void)base, dlsym(driver, symbol); }

static void *by_fetched_dlsym(const char *symbol, const char *base)
{
    void *(*fetched)(void *, const char *);
    (void)base;
    *(void **)&fetched = dlsym(RTLD_DEFAULT, "dlsym");
    return fetched ? fetched(driver, symbol) : NULL;
}

/* Drivers have no symbol versions: dlvsym finds nothing there, and must find nothing here. */
static void *by_dlvsym_of_dlsym(const char *symbol, const char *base)
{
    static const char *const VERSIONS[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    void *(*versioned)(void *, const char *) = NULL;
    (void)base;
    for (int i = 0; i < 3 && !versioned; i++)
        *(void **)&versioned = dlvsym(RTLD_DEFAULT, "dlsym", VERSIONS[i]);
    return versioned ? versioned(driver, symbol) : NULL;
}

static void *through(GetProcAddress look_up, const char *base)
{
    void *address = NULL;
    int status = 0;
    return look_up && look_up(base, &address, 12000, 0, &status) == 0 ? address : NULL;
}

static void *by_proc_address(const char *symbol, const char *base)
{
    GetProcAddress look_up;
    (void)symbol;
    *(void **)&look_up = dlsym(driver, "cuGetProcAddress_v2");
    return through(look_up, base);
}

static void *by_nested_proc_address(const char *symbol, const char *base)
{
    GetProcAddress look_up, nested;
    (void)symbol;
    *(void **)&look_up = dlsym(driver, "cuGetProcAddress_v2");
    *(void **)&nested = through(look_up, "cuGetProcAddress");
    return through(nested, base);
}

static const struct road ROADS[] = {
    {"dlsym", by_dlsym},
    {"dlsym_fetched_by_dlsym", by_fetched_dlsym},
    {"dlsym_fetched_by_dlvsym", by_dlvsym_of_dlsym},
    {"cuGetProcAddress", by_proc_address},
    {"cuGetProcAddress_of_cuGetProcAddress", by_nested_proc_address},
};

static void must(bool well, const char *road, const char *what)
{
    if (well)
        return;
    fprintf(stderr, "dlopened: %s by %s failed\n", what, road);
    exit(1);
}

static size_t look(const struct road *road, bool first)
{
    int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*set)(void *);
    int (*info)(size_t *, size_t *), (*alloc)(CUdeviceptr *, size_t), (*release)(CUdeviceptr);
    int device;
    void *context;
    CUdeviceptr at;
    size_t available, total;
    *(void **)&init = road->find("cuInit", "cuInit");
    *(void **)&get = road->find("cuDeviceGet", "cuDeviceGet");
    *(void **)&retain = road->find("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain");
    *(void **)&set = road->find("cuCtxSetCurrent", "cuCtxSetCurrent");
    *(void **)&info = road->find("cuMemGetInfo_v2", "cuMemGetInfo");
    *(void **)&alloc = road->find("cuMemAlloc_v2", "cuMemAlloc");
    *(void **)&release = road->find("cuMemFree_v2", "cuMemFree");
    must(init && get && retain && set && info && alloc && release, road->name, "finding the functions");
    must(init(0) == 0 && get(&device, 0) == 0, road->name, "initialising");
    must(retain(&context, device) == 0 && set(context) == 0, road->name, "making a context");
    must(info(&available, &total) == 0, road->name, "cuMemGetInfo");
    must(alloc(&at, 64 << 20) == 0 && release(at) == 0, road->name, "allocating 64 MiB");
    int refused = alloc(&at, total);
    must(refused == 2, road->name, "refusing an allocation of everything");
    printf("%s{\"road\": \"%s\", \"total\": %zu, \"free\": %zu, \"beyond\": %d}", first ? "" : ", ", road->name, total,
           available, refused);
    return total;
}

int main(void)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "dlopened: %s\n", dlerror());
        return 1;
    }
    void *versioned = dlvsym(driver, "cuMemAlloc_v2", "CUDA_1.0");
    printf("{\"client\": \"dlopened\", \"dlvsym_of_a_driver_symbol\": %s, \"roads\": [",
           versioned ? "\"found\"" : "\"absent\"");
    size_t total = look(&ROADS[0], true);
    bool agree = true;
    for (size_t i = 1; i < sizeof ROADS / sizeof *ROADS; i++)
        agree &= look(&ROADS[i], false) == total;
    printf("], \"agree\": %s}\n", agree ? "true" : "false");
    return agree ? 0 : 1;
}
