/* threads: allocates and frees at random from several threads, as allocators under load do.
 *
 * usage: threads [SECONDS [THREADS [SEED]]]   (defaults 2, 4, 1)
 * Pointers are handed between threads: most are freed by another thread than theirs. The
 * only refusal allowed is CUDA_ERROR_OUT_OF_MEMORY, and all memory must be back at the end.
 * One line of JSON; exit 1 if either does not hold. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef unsigned long long CUdeviceptr;
enum { SLOTS = 256, MOST_THREADS = 64, OUT_OF_MEMORY = 2 };

static int (*cuInit)(unsigned), (*cuDeviceGet)(int *, int), (*cuCtxCreate)(void **, unsigned, int);
static int (*cuCtxSetCurrent)(void *), (*cuMemGetInfo)(size_t *, size_t *);
static int (*cuMemAlloc)(CUdeviceptr *, size_t), (*cuMemFree)(CUdeviceptr);

static void *context;
static size_t free_at_start;
static _Atomic CUdeviceptr slots[SLOTS];
static _Atomic int stop;
static _Atomic uint64_t allocated, refused, errors, last_error;

static void find(void *driver, void *function, const char *name)
{
    *(void **)function = dlsym(driver, name);
    if (!*(void **)function) {
        fprintf(stderr, "threads: the driver has no %s\n", name);
        exit(1);
    }
}

static void must(int result, const char *call)
{
    if (result == 0)
        return;
    fprintf(stderr, "threads: %s answered %d\n", call, result);
    exit(1);
}

static void open_driver(void)
{
    int device;
    size_t total;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "threads: %s\n", dlerror());
        exit(1);
    }
    find(driver, &cuInit, "cuInit");
    find(driver, &cuDeviceGet, "cuDeviceGet");
    find(driver, &cuCtxCreate, "cuCtxCreate_v2");
    find(driver, &cuCtxSetCurrent, "cuCtxSetCurrent");
    find(driver, &cuMemGetInfo, "cuMemGetInfo_v2");
    find(driver, &cuMemAlloc, "cuMemAlloc_v2");
    find(driver, &cuMemFree, "cuMemFree_v2");
    must(cuInit(0), "cuInit");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuCtxCreate(&context, 0, device), "cuCtxCreate");
    must(cuMemGetInfo(&free_at_start, &total), "cuMemGetInfo");
}

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* From a few bytes to an eighth of what was free, small sizes as often as large ones. */
static size_t random_size(uint64_t *state)
{
    int top = 63 - __builtin_clzll(free_at_start / 8 | 1);
    uint64_t limit = 1ull << (5 + next(state) % (uint64_t)(top - 4));
    return (size_t)(1 + next(state) % limit);
}

static void note(int result)
{
    if (result == 0)
        return;
    atomic_fetch_add(result == OUT_OF_MEMORY ? &refused : &errors, 1);
    if (result != OUT_OF_MEMORY)
        atomic_store(&last_error, (uint64_t)result);
}

static void *run(void *seed)
{
    uint64_t state = (uint64_t)(uintptr_t)seed * 0x9e3779b97f4a7c15u + 1;
    cuCtxSetCurrent(context);
    while (!atomic_load(&stop)) {
        CUdeviceptr fresh = 0;
        if (next(&state) % 2) {
            int result = cuMemAlloc(&fresh, random_size(&state));
            note(result);
            if (result != 0)
                fresh = 0;
            else
                atomic_fetch_add(&allocated, 1);
        }
        CUdeviceptr old = atomic_exchange(&slots[next(&state) % SLOTS], fresh);
        if (old) {
            int result = cuMemFree(old);
            if (result != 0) {
                atomic_fetch_add(&errors, 1);
                atomic_store(&last_error, (uint64_t)result);
            }
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    int threads = argc > 2 ? atoi(argv[2]) : 4;
    uintptr_t seed = argc > 3 ? (uintptr_t)atol(argv[3]) : 1;
    pthread_t ids[MOST_THREADS];
    size_t back, total;
    if (threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "threads: between 1 and %d threads, not %d\n", MOST_THREADS, threads);
        return 2;
    }
    open_driver();
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, run, (void *)(seed * 1000 + (uintptr_t)i));
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
    atomic_store(&stop, 1);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i])
            must(cuMemFree(slots[i]), "cuMemFree at the end");
    must(cuMemGetInfo(&back, &total), "cuMemGetInfo");
    long long missing = (long long)free_at_start - (long long)back;
    printf("{\"client\": \"threads\", \"threads\": %d, \"allocated\": %llu, \"refused\": %llu, \"errors\": %llu, "
           "\"last_error\": %llu, \"missing\": %lld, \"total\": %zu}\n",
           threads, (unsigned long long)allocated, (unsigned long long)refused, (unsigned long long)errors,
           (unsigned long long)last_error, missing, total);
    return errors == 0 && missing == 0 && allocated > 0 ? 0 : 1;
}
