/* Routes of what the driver takes by itself: code and its variables, limits, contexts. */

/* A module with one variable of so many bytes, as text. */
static const char *text_of(size_t bytes) {
    static _Thread_local char text[256];
    snprintf(text, sizeof text, ".version 7.0\n.target sm_70\n.address_size 64\n.global .align 8 .b8 room[%zu];\n", bytes);
    return text;
}

static int module_of(size_t bytes, Handle *out) {
    return CUDA("cuModuleLoadData", (Handle *, const void *), out, text_of(bytes));
}
static int module_with_options(size_t bytes, Handle *out) {
    return CUDA("cuModuleLoadDataEx", (Handle *, const void *, unsigned, void *, void *), out, text_of(bytes), 0, NULL, NULL);
}
static int library_of(size_t bytes, Handle *out) {
    Handle module;
    int answer = CUDA("cuLibraryLoadData", (Handle *, const void *, void *, void *, unsigned, void *, void *, unsigned), out,
                      text_of(bytes), NULL, NULL, 0, NULL, NULL, 0);
    /* Where loading is lazy, it is there from its first use on. */
    return answer ? answer : CUDA("cuLibraryGetModule", (Handle *, Handle), &module, *out);
}
static const char *file_of(size_t bytes) {
    static char name[64];
    snprintf(name, sizeof name, "module-%d.ptx", getpid());
    FILE *file = fopen(name, "w");
    if (!file || fputs(text_of(bytes), file) < 0 || fclose(file)) MUST(errno);
    return name;
}
static int module_from_file(size_t bytes, Handle *out) {
    return CUDA("cuModuleLoad", (Handle *, const char *), out, file_of(bytes));
}
static int library_from_file(size_t bytes, Handle *out) {
    Handle module;
    int answer = CUDA("cuLibraryLoadFromFile", (Handle *, const char *, void *, void *, unsigned, void *, void *, unsigned), out,
                      file_of(bytes), NULL, NULL, 0, NULL, NULL, 0);
    return answer ? answer : CUDA("cuLibraryGetModule", (Handle *, Handle), &module, *out);
}

static void modules(void) { begin(); fill(module_of); fill(plain); full(); }
static void modules_with_options(void) { begin(); fill(module_with_options); fill(plain); full(); }
static void modules_from_files(void) { begin(); fill(module_from_file); fill(plain); full(); }
static void libraries(void) { begin(); fill(library_of); fill(plain); full(); }
static void libraries_from_files(void) { begin(); fill(library_from_file); fill(plain); full(); }
/* A driver that loads libraries into all contexts at once, whatever its default is. */
static int secondary(void) {
    Handle made;
    int answer = CUDA("cuCtxCreate_v2", (Handle *, unsigned, int), &made, 0, device);
    CUDA("cuCtxSetCurrent", (Handle), context);
    return answer;
}
static void libraries_in_several_contexts(void) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    begin();
    MUST(secondary());
    fill(library_of);
    fill(plain);
    full();
}
static void contexts_after_libraries(void) {
    Handle library;
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    begin();
    for (int at = 0; at < 3; at++) MUST(library_of(100 * MIB, &library));
    while (secondary() == 0);
    fill(plain);
    full();
}
static void many_small_modules(void) { begin(); hold_all(module_of, 8); fill(plain); full(); }

static void modules_into_a_full_slice(void) {
    begin();
    fill(plain);
    hold_all(module_of, 8);
    hold_all(library_of, 8);
    full();
}

static void modules_that_come_and_go(void) {
    Handle module;
    begin();
    for (int round = 0; round < 50; round++) {
        MUST(module_of(100 * MIB, &module));
        MUST(CUDA("cuModuleUnload", (Handle), module));
        CUDA("cuModuleUnload", (Handle), module);
    }
    fill(plain);
    full();
}

enum { STACK, PRINTF, HEAP };
static int limit(int which, size_t value) { return CUDA("cuCtxSetLimit", (int, size_t), which, value); }

/* The largest value that is allowed, then plain memory into the rest; or first the memory, then the limit. */
static void limit_and_memory(int which, size_t start, int memory_first) {
    begin();
    if (memory_first) fill(plain);
    for (size_t value = start; value > start / 64; value -= start / 64)
        if (limit(which, value) == 0) break;
    fill(plain);
    full();
}
static void limit_of_the_heap(void) { limit_and_memory(HEAP, 4 * GIB, 0); }
static void limit_of_printf(void) { limit_and_memory(PRINTF, 4 * GIB, 0); }
static void limit_of_the_stack(void) { limit_and_memory(STACK, 64 * KIB, 0); }
static void limit_of_the_heap_when_full(void) { limit_and_memory(HEAP, 4 * GIB, 1); }
static void limit_of_the_stack_when_full(void) { limit_and_memory(STACK, 64 * KIB, 1); }
static void limits_up_and_down(void) {
    begin();
    for (int round = 0; round < 50; round++) {
        MUST(limit(HEAP, 256 * MIB));
        MUST(limit(HEAP, 8 * MIB));
    }
    fill(plain);
    full();
}

static int new_context(Handle *out) { return CUDA("cuCtxCreate_v2", (Handle *, unsigned, int), out, 0, device); }

static void secondary_contexts(void) {
    Handle another;
    begin();
    for (int most = 0; most < 20 && new_context(&another) == 0; most++) {}
    fill(plain);
    full();
}
static void contexts_into_a_full_slice(void) {
    Handle another;
    begin();
    fill(plain);
    for (int most = 0; most < 5; most++) new_context(&another);
    fill(plain);
    full();
}
static void contexts_destroyed_with_their_memory(void) {
    Handle another;
    begin();
    for (int round = 0; round < 5; round++) {
        MUST(new_context(&another));
        fill(plain);
        MUST(CUDA("cuCtxDestroy_v2", (Handle), another));
    }
    MUST(CUDA("cuCtxSetCurrent", (Handle), context));
    fill(plain);
    full();
}
static void primary_context_reset(void) {
    begin();
    for (int round = 0; round < 5; round++) {
        fill(plain);
        MUST(CUDA("cuDevicePrimaryCtxReset_v2", (int), device));
        MUST(CUDA("cuDevicePrimaryCtxRetain", (Handle *, int), &context, device));
        MUST(CUDA("cuCtxSetCurrent", (Handle), context));
    }
    fill(plain);
    full();
}

static volatile int resetting;
static void *retain_and_release(void *argument) {
    size_t size = (size_t)argument * MIB;
    for (unsigned round = 0; resetting; round++) {
        Handle own, piece[4];
        if (CUDA("cuDevicePrimaryCtxRetain", (Handle *, int), &own, device)) continue;
        if (CUDA("cuCtxSetCurrent", (Handle), own) == 0) {
            int made = 0;
            while (made < 4 && plain(size, &piece[made]) == 0) made++;
            for (int at = round % 3; at < made; at++) release_plain(piece[at]);
        }
        if (round % 4) CUDA("cuDevicePrimaryCtxRelease_v2", (int), device);
    }
    return NULL;
}
/* The primary context ends and begins all the time, while other threads allocate in it. */
static void primary_context_reset_by_threads(void) {
    pthread_t threads[6];
    begin();
    resetting = 1;
    for (size_t at = 0; at < 6; at++)
        pthread_create(&threads[at], NULL, retain_and_release, (void *)(at * 12 + 2));
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    do {
        CUDA("cuDevicePrimaryCtxReset_v2", (int), device);
        usleep(200);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - began.tv_sec < 3);
    resetting = 0;
    for (int at = 0; at < 6; at++) pthread_join(threads[at], NULL);
    MUST(CUDA("cuDevicePrimaryCtxReset_v2", (int), device));
    begin();
    fill(plain);
    full();
}

struct resource { int type; unsigned char padding[92]; unsigned multiprocessors[12]; };

static int green_context(Handle *green) {
    struct resource all, part;
    unsigned groups = 1;
    Handle description;
    MUST(CUDA("cuDeviceGetDevResource", (int, void *, int), device, &all, 1));
    MUST(CUDA("cuDevSmResourceSplitByCount", (void *, unsigned *, void *, void *, unsigned, unsigned), &part, &groups, &all,
              NULL, 0, 8));
    MUST(CUDA("cuDevResourceGenerateDesc", (Handle *, void *, unsigned), &description, &part, 1));
    return CUDA("cuGreenCtxCreate", (Handle *, Handle, int, unsigned), green, description, device, 1);
}
/* Without a context of any other kind, whose cost would have been charged. */
static void green_contexts(void) {
    Handle green[4];
    MUST(CUDA("cuInit", (unsigned), 0));
    MUST(CUDA("cuDeviceGet", (int *, int), &device, 0));
    for (int at = 0; at < 4; at++) {
        int answer = green_context(&green[at]);
        if (answer == OUT_OF_MEMORY) continue;
        MUST(answer);
        MUST(CUDA("cuCtxFromGreenCtx", (Handle *, Handle), &context, green[at]));
    }
    MUST(CUDA("cuCtxSetCurrent", (Handle), context));
    fill(plain);
    full();
}

static void two_devices(void) {
    Handle piece;
    begin();
    fill_from(plain, 4 * GIB, 2 * MIB);
    begin_on(1);
    fill_from(plain, 4 * GIB, 2 * MIB);
    pool = new_pool();
    if (from_pool(2 * MIB, &piece) == 0 || create(2 * MIB, &piece) == 0) MUST(1);
    full();
}

/* Fills up as often as it is asked to. */
static void again_and_again(void) {
    begin();
    for (;;) { fill(plain); full(); }
}
