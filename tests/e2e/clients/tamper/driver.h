/* The driver by whichever library, as this program calls it. */
typedef uint64_t handle;

#define FUNCTIONS(X)                                                                                                    \
    X(cuInit, (unsigned))                                                                                               \
    X(cuDevicePrimaryCtxRetain, (handle *, int))                                                                        \
    X(cuCtxSetCurrent, (handle))                                                                                        \
    X(cuModuleLoadData, (handle *, const void *))                                                                       \
    X(cuModuleGetFunction, (handle *, handle, const char *))                                                            \
    X(cuStreamSynchronize, (handle))                                                                                    \
    X(cuMemAlloc_v2, (uint64_t *, size_t))                                                                              \
    X(cuIpcGetMemHandle, (void *, uint64_t))                                                                            \
    X(cuLaunchKernel, (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **))

/* A driver, by whichever library. */
struct driver {
#define MEMBER(name, arguments) int(*name) arguments;
    FUNCTIONS(MEMBER)
};

#define CHECK(call)                                                                                                     \
    do {                                                                                                                \
        int result_ = (call);                                                                                           \
        if (result_) printf("failed %d %s\n", result_, #call), fflush(stdout), _exit(1);                                 \
    } while (0)

static const size_t GIB = 1 << 30;
static struct driver governed;
static const char *detail;

static void say(const char *how, long what) { printf("%s %ld\n", how, what), fflush(stdout); }

static double ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/* A symbol in a library, found without asking the loader, whom others may have told what to answer. */
static void *symbol(struct link_map *library, const char *name) {
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    for (const ElfW(Dyn) *entry = library->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) symbols = (const void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB) strings = (const void *)entry->d_un.d_ptr;
    }
    /* The names usually lie right behind the symbols. */
    for (const ElfW(Sym) *at = symbols; at && (const char *)at < strings; at++)
        if (at->st_value && !strcmp(strings + at->st_name, name)) return (char *)library->l_addr + at->st_value;
    return NULL;
}

static void begin(struct driver *driver, void *library, int behind_the_loader) {
    if (!library) printf("failed 0 %s\n", dlerror()), exit(1);
#define FIND(name, arguments)                                                                                           \
    driver->name = (int(*) arguments)(behind_the_loader ? symbol(library, #name) : dlsym(library, #name));              \
    if (!driver->name) printf("failed 0 no %s\n", #name), exit(1);
    FUNCTIONS(FIND)
    handle context;
    CHECK(driver->cuInit(0));
    CHECK(driver->cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(driver->cuCtxSetCurrent(context));
}

static const char SPIN[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry spin_us_1000() { ret; }\n";

/* Kernels of 1 ms, one after the other, for so long. */
static void launch(struct driver *driver, double for_ms) {
    handle module, kernel;
    CHECK(driver->cuModuleLoadData(&module, SPIN));
    CHECK(driver->cuModuleGetFunction(&kernel, module, "spin_us_1000"));
    say("done", 0);
    for (double end = ms() + for_ms; ms() < end;) {
        CHECK(driver->cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL));
        CHECK(driver->cuStreamSynchronize(0));
    }
}

static int allocate(struct driver *driver, size_t bytes) {
    uint64_t address;
    return driver->cuMemAlloc_v2(&address, bytes);
}
