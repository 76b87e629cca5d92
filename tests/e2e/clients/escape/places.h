/* Routes on which the device and the context are those of a stream, pool, graph or handle, not of the thread; locations and
 * pools of CUDA 13; and code that is in every context. Each is written from the driver's documentation. */

static int current(Handle which) { return CUDA("cuCtxSetCurrent", (Handle), which); }
static Handle stream_in_use;

static int async_in_stream(size_t bytes, Handle *out) {
    return CUDA("cuMemAllocAsync", (Handle *, size_t, Handle), out, bytes, stream_in_use);
}
static int from_pool_in_stream(size_t bytes, Handle *out) {
    return CUDA("cuMemAllocFromPoolAsync", (Handle *, size_t, Handle, Handle), out, bytes, pool, stream_in_use);
}

/* Two devices with a context each and a stream of the second; the context of the first is current. */
static Handle contexts[2];
static void begin_on_both(void) {
    begin_on(1);
    contexts[1] = context;
    stream_in_use = new_stream();
    begin_on(0);
    contexts[0] = context;
}
static void fill_both(void) {
    for (int at = 0; at < 2; at++) { MUST(current(contexts[at])); fill(plain); }
    full();
}

static void stream_of_another_device(void) { begin_on_both(); fill(async_in_stream); fill_both(); }

static void pool_of_another_device(void) {
    begin_on_both();
    device = 1;
    pool = new_pool();
    stream_in_use = 0; /* the stream of device 0 */
    fill(from_pool_in_stream);
    fill_both();
}

/* The current pool of a device serves that device's streams, whatever the thread has current. */
static void pool_made_current_of_another_device(void) {
    begin_on_both();
    device = 1;
    pool = new_pool();
    keep_everything(pool);
    MUST(CUDA("cuDeviceSetMemPool", (int, Handle), 1, pool));
    for (int round = 0; round < 3; round++) {
        count = 0;
        hold_all(async_in_stream, 32 * MIB);
        for (int at = 0; at < count; at++) MUST(free_in(held[at], stream_in_use));
        MUST(CUDA("cuStreamSynchronize", (Handle), stream_in_use));
    }
    fill_both();
}

static void handle_of_another_device(void) { begin_on_both(); device = 1; fill(create); fill_both(); }

static void graph_of_another_device(void) {
    Handle graph, node, executable;
    Address address;
    begin_on_both();
    device = 1;
    for (size_t bytes = 256 * MIB; bytes >= 2 * MIB;) {
        graph = new_graph();
        int answer = by_alloc_node(graph, bytes, &node, &address);
        if (!answer) answer = instantiate(graph, 0, &executable);
        if (!answer) answer = CUDA("cuGraphLaunch", (Handle, Handle), executable, stream_in_use);
        if (answer) bytes /= 2;
        if (answer && answer != OUT_OF_MEMORY) MUST(answer);
    }
    fill_both();
}

static void context_of_another_device_on_the_stack(void) {
    begin_on_both();
    for (int at = 1; at >= 0; at--) {
        MUST(CUDA("cuCtxPushCurrent_v2", (Handle), contexts[at]));
        fill(plain);
        MUST(CUDA("cuCtxPopCurrent_v2", (Handle *), &context));
    }
    fill_both();
}

/* ---- threads without a current context: the driver takes it from the object and answers 0 ---- */

static Handle executable_in_use;

static void *in_a_bare_thread(void *job) {
    Handle none = 1;
    MUST(CUDA("cuCtxGetCurrent", (Handle *), &none));
    if (none) MUST(1);
    ((void (*)(void))job)();
    return NULL;
}
static void without_a_context(void (*job)(void)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_a_bare_thread, (void *)job)) MUST(errno);
    pthread_join(thread, NULL);
}

static void one_async(void) { Handle piece; MUST(async_in_stream(2 * MIB, &piece)); MUST(free_in(piece, stream_in_use)); }
static void fill_async(void) { one_async(); fill(async_in_stream); }
static void async_without_a_context(void) { begin(); stream_in_use = new_stream(); without_a_context(fill_async); fill(plain); full(); }

static void fill_from_pool(void) { Handle piece; MUST(from_pool_in_stream(2 * MIB, &piece)); fill(from_pool_in_stream); }
static void pool_without_a_context(void) {
    begin();
    stream_in_use = new_stream();
    pool = new_pool();
    without_a_context(fill_from_pool);
    fill(plain);
    full();
}

static void free_all_held(void) { for (int at = 0; at < count; at++) MUST(free_in(held[at], stream_in_use)); }
static void freed_without_a_context(void) {
    begin();
    stream_in_use = new_stream();
    for (int round = 0; round < 3; round++) {
        count = 0;
        hold_all(round == 1 ? plain : async_in_stream, 64 * MIB);
        if (count < 4) MUST(count);
        without_a_context(free_all_held);
        MUST(synchronize());
    }
    fill(plain);
    full();
}

static void launch_graph(void) {
    MUST(CUDA("cuGraphUpload", (Handle, Handle), executable_in_use, stream_in_use));
    MUST(CUDA("cuGraphLaunch", (Handle, Handle), executable_in_use, stream_in_use));
}
static void launch_graphs_without_a_context(void) {
    Handle graph, node;
    Address address;
    for (int round = 0; round < 4; round++) {
        graph = new_graph();
        MUST(by_alloc_node(graph, 200 * MIB, &node, &address));
        MUST(instantiate(graph, 0, &executable_in_use));
        without_a_context(launch_graph);
    }
    MUST(CUDA("cuStreamSynchronize", (Handle), stream_in_use));
}
static void graph_without_a_context(void) {
    begin();
    stream_in_use = new_stream();
    launch_graphs_without_a_context();
    fill(plain);
    full();
}

/* On two devices, by a stream of the second, while other threads have the first current. */
static void async_without_a_context_on_two_devices(void) { begin_on_both(); without_a_context(fill_async); fill_both(); }
static void pool_without_a_context_on_two_devices(void) {
    begin_on_both();
    device = 1;
    pool = new_pool();
    without_a_context(fill_from_pool);
    fill_both();
}
static void freed_without_a_context_on_two_devices(void) {
    begin_on_both();
    for (int round = 0; round < 3; round++) {
        count = 0;
        MUST(current(contexts[round == 1]));
        hold_all(round == 1 ? plain : async_in_stream, 64 * MIB);
        if (count < 4) MUST(count);
        without_a_context(free_all_held);
        MUST(CUDA("cuStreamSynchronize", (Handle), stream_in_use));
    }
    fill_both();
}
static void graph_without_a_context_on_two_devices(void) {
    begin_on_both();
    device = 1;
    launch_graphs_without_a_context();
    fill_both();
}

static int descriptor_in_use;
static void import_held(void) {
    Handle again;
    MUST(CUDA("cuMemImportFromShareableHandle", (Handle *, void *, int), &again, (void *)(intptr_t)descriptor_in_use, 1));
    MUST(release(again));
    MUST(CUDA("cuMemImportFromShareableHandle", (Handle *, void *, int), &again, (void *)(intptr_t)descriptor_in_use, 1));
}
static void imported_without_a_context(void) {
    Handle piece;
    begin();
    MUST(create(200 * MIB, &piece));
    MUST(CUDA("cuMemExportToShareableHandle", (void *, Handle, int, uint64_t), &descriptor_in_use, piece, 1, 0));
    without_a_context(import_held);
    MUST(release(piece)); /* the imported handle holds it */
    fill(create);
    fill(plain);
    full();
}

/* ---- locations of CUDA 13 ---- */

struct place { int type, number; }; /* CUmemLocation */
enum { NOWHERE, ON_DEVICE, ON_HOST, LOCALITY_DOMAIN = 6, PINNED = 1, MANAGED = 2 };

static Handle pool_at(int type, int location_type, int location) {
    struct pool_properties properties = {.type = type, .location_type = location_type, .location = location};
    Handle made;
    MUST(CUDA("cuMemPoolCreate", (Handle *, void *), &made, &properties));
    return made;
}
static Handle default_pool_at(int type, int location_type, int location) {
    struct place place = {location_type, location};
    Handle found_pool;
    MUST(CUDA("cuMemGetDefaultMemPool", (Handle *, void *, int), &found_pool, &place, type));
    return found_pool;
}
static int from_pool_touched(size_t bytes, Handle *out) {
    int answer = from_pool(bytes, out);
    if (!answer) CUDA("cuMemsetD8Async", (Address, unsigned char, size_t, Handle), *out, 1, 4 * KIB, 0);
    return answer;
}
static void fill_pool(Handle which) { pool = which; fill(from_pool_touched); fill(plain); full(); }

static void managed_pool_nowhere(void) { begin(); fill_pool(pool_at(MANAGED, NOWHERE, 0)); }
static void managed_pool_of_the_host(void) { begin(); fill_pool(pool_at(MANAGED, ON_HOST, 0)); }
static void managed_pool_of_a_device(void) { begin(); fill_pool(pool_at(MANAGED, ON_DEVICE, device)); }
static void default_managed_pool(void) { begin(); fill_pool(default_pool_at(MANAGED, NOWHERE, 0)); }
static void pool_of_a_locality_domain(void) { begin(); fill_pool(pool_at(PINNED, LOCALITY_DOMAIN, device)); }
static void default_pool_of_a_locality_domain(void) { begin(); fill_pool(default_pool_at(PINNED, LOCALITY_DOMAIN, device | 1 << 8)); }

static int create_in_domain(size_t bytes, Handle *out) {
    struct physical_properties properties = {.type = 1, .location_type = LOCALITY_DOMAIN, .location = device | 1 << 8};
    return CUDA("cuMemCreate", (Handle *, size_t, void *, Handle), out, bytes, &properties, 0);
}
static void memory_of_a_locality_domain(void) { begin(); fill(create_in_domain); fill(plain); full(); }

/* Memory of the host is none of the device: all of the slice is to be had beside it. */
static void pools_of_the_host(void) {
    Handle piece;
    begin();
    pool = default_pool_at(PINNED, ON_HOST, 0);
    for (int at = 0; at < 24; at++) MUST(from_pool(128 * MIB, &piece));
    pool = pool_at(PINNED, ON_HOST, 0);
    for (int at = 0; at < 24; at++) MUST(from_pool(128 * MIB, &piece));
    MUST(release_plain(piece));
    fill(plain);
    full();
}

static void managed_pool_set_current(void) {
    struct place nowhere = {NOWHERE, 0};
    begin();
    pool = pool_at(MANAGED, NOWHERE, 0);
    MUST(CUDA("cuMemSetMemPool", (void *, int, Handle), &nowhere, MANAGED, pool));
    MUST(CUDA("cuMemGetMemPool", (Handle *, void *, int), &pool, &nowhere, MANAGED));
    retained_reserve(pool);
}

static void managed_pool_on_two_devices(void) {
    begin_on_both();
    pool = pool_at(MANAGED, NOWHERE, 0);
    fill(from_pool_in_stream);
    stream_in_use = 0;
    fill(from_pool_in_stream);
    fill_both();
}

static void managed_graph_node(void) {
    begin();
    for (size_t bytes = 256 * MIB; bytes >= 2 * MIB;) {
        struct alloc_node wanted = asked(bytes);
        Handle graph = new_graph(), node, executable;
        wanted.pool.type = MANAGED;
        int answer = CUDA("cuGraphAddMemAllocNode", (Handle *, Handle, Handle *, size_t, void *), &node, graph, NULL, 0, &wanted);
        if (!answer) answer = instantiate(graph, 0, &executable);
        if (!answer) answer = launch(executable);
        if (!answer) answer = synchronize();
        if (answer) bytes /= 2;
        if (answer && answer != OUT_OF_MEMORY) MUST(answer);
    }
    fill(plain);
    full();
}

/* ---- pools that grow by more than they are asked for ---- */

/* Each pool has one small piece; what is refused is tried again, and leaves nothing behind. */
static void a_piece_of_each_pool(void) {
    Handle piece;
    begin();
    for (int at = 0; at < 40; at++) {
        pool = new_pool();
        keep_everything(pool);
        from_pool(2 * MIB, &piece);
    }
    fill(plain);
    full();
}
static void refused_again_and_again(void) {
    Handle piece;
    begin();
    pool = new_pool();
    keep_everything(pool);
    fill(plain);
    for (int at = 0; at < 100; at++) { from_pool(2 * MIB, &piece); async(4 * MIB, &piece); }
    fill(plain);
    full();
}

/* ---- look-ups of versions that no table knows ---- */

static void *newest(const char *name, uint64_t flags) {
    int status;
    found = 0;
    MUST(CUDA("cuGetProcAddress_v2", (const char *, Handle *, int, uint64_t, int *), name, &found, 99990, flags, &status));
    return (void *)found;
}
static void by_look_up_of_the_newest(void) {
    begin();
    if (!newest("cuMemAlloc", 0)) MUST(NO_SYMBOL);
    fill(through_found);
    if (!newest("cuMemAllocAsync", 2)) MUST(NO_SYMBOL);
    fill(async_through_found);
    full();
}
static void by_look_up_of_the_newest_per_thread(void) {
    begin();
    if (!newest("cuMemAllocAsync", 2)) MUST(NO_SYMBOL);
    fill(async_through_found);
    fill(plain);
    full();
}

/* ---- code in every context ---- */

static int use_library(Handle library) {
    Handle module;
    return CUDA("cuLibraryGetModule", (Handle *, Handle), &module, library);
}
static void make_contexts(int most) {
    Handle another;
    for (int at = 0; at < most && new_context(&another) == 0; at++) {}
}

/* Loaded first: contexts that are made later have it, too. */
static void library_in_later_contexts(void) {
    Handle library, another;
    begin();
    MUST(library_of(100 * MIB, &library));
    for (int at = 0; at < 8 && new_context(&another) == 0; at++) use_library(library);
    MUST(current(context));
    fill(plain);
    full();
}
/* Contexts first: a library is loaded into all of them. */
static void libraries_in_every_context(void) {
    Handle all[4], library;
    int made = 0;
    begin();
    while (made < 2 && new_context(&all[made]) == 0) made++;
    for (int at = 0; at < 4 && library_of(100 * MIB, &library) == 0; at++) {
        for (int one = 0; one < made; one++) { MUST(current(all[one])); use_library(library); }
        MUST(current(context));
        use_library(library);
    }
    MUST(current(context));
    fill(plain);
    full();
}
static void eager(void) { setenv("CUDA_MODULE_LOADING", "EAGER", 1); }
static void lazy(void) { setenv("CUDA_MODULE_LOADING", "LAZY", 1); }
static void library_in_later_contexts_eagerly(void) { eager(); library_in_later_contexts(); }
static void libraries_in_every_context_eagerly(void) { eager(); libraries_in_every_context(); }
static void library_in_later_contexts_lazily(void) { lazy(); library_in_later_contexts(); }

static void libraries_on_two_devices(void) {
    Handle library;
    eager();
    begin_on_both();
    for (int at = 0; at < 4 && library_of(200 * MIB, &library) == 0; at++) {}
    fill_both();
}

/* A library that comes and goes takes nothing with it. */
/* Images of much code, of which a driver that loads lazily takes nothing until a function is asked for. */
struct elf_section { uint32_t name, type; uint64_t flags, address, offset, size; uint32_t link, info; uint64_t align, entry; };
static const void *code_of(size_t bytes) {
    static const char names[] = "\0.names\0.text.first";
    static unsigned char *file;
    if (file) return file;
    if (!(file = calloc(1, bytes))) MUST(errno);
    struct elf_section *sections = (void *)(file + bytes - 3 * sizeof *sections);
    memcpy(file, "\177ELF\2\1\1", 7);
    *(uint64_t *)(file + 0x28) = bytes - 3 * sizeof *sections; /* where the sections are */
    *(uint16_t *)(file + 0x3a) = sizeof *sections;
    *(uint16_t *)(file + 0x3c) = 3;
    *(uint16_t *)(file + 0x3e) = 1; /* which has their names */
    memcpy(file + 64, names, sizeof names);
    sections[1] = (struct elf_section){.name = 1, .type = 3, .offset = 64, .size = sizeof names};
    sections[2] = (struct elf_section){.name = 8, .type = 1, .flags = 6, .offset = 128, .size = bytes - 1024};
    return file;
}
static int launch_once(Handle kernel) {
    return CUDA("cuLaunchKernel",
                (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **),
                kernel, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL);
}
static void must_or_refused(int answer) { if (answer != OUT_OF_MEMORY) MUST(answer); }

static void functions_loaded_lazily(void) {
    Handle entry;
    lazy();
    begin();
    for (count = 0; count < 12; count++)
        MUST(CUDA("cuModuleLoadData", (Handle *, const void *), &held[count], code_of(20 * MIB)));
    for (int at = 0; at < count; at++) {
        int answer = CUDA("cuModuleGetFunction", (Handle *, Handle, const char *), &entry, held[at], "first");
        if (!answer) answer = launch_once(entry);
        must_or_refused(answer);
    }
    fill(plain);
    full();
    for (int at = 0; at < count; at++) MUST(CUDA("cuModuleUnload", (Handle), held[at]));
    fill(plain);
    full();
}
static int lazy_library(Handle *out) {
    return CUDA("cuLibraryLoadData", (Handle *, const void *, void *, void *, unsigned, void *, void *, unsigned), out,
                code_of(40 * MIB), NULL, NULL, 0, NULL, NULL, 0);
}
/* In several contexts; by the kernel itself, as its context's function, by the module. */
static void kernels_loaded_lazily(void) {
    Handle all[2], kernel, entry, module;
    lazy();
    begin();
    for (int at = 0; at < 2; at++) MUST(new_context(&all[at]));
    for (count = 0; count < 20; count++) MUST(lazy_library(&held[count]));
    for (int at = 0; at < count; at++) {
        MUST(current(at % 2 ? all[at / 2 % 2] : context));
        int answer = CUDA("cuLibraryGetKernel", (Handle *, Handle, const char *), &kernel, held[at], "first");
        if (at % 3 == 0 && !answer) answer = launch_once(kernel);
        if (at % 3 == 1 && !answer && !(answer = CUDA("cuKernelGetFunction", (Handle *, Handle), &entry, kernel)))
            answer = launch_once(entry);
        if (at % 3 == 2 && !(answer = CUDA("cuLibraryGetModule", (Handle *, Handle), &module, held[at])))
            answer = CUDA("cuModuleGetFunction", (Handle *, Handle, const char *), &entry, module, "first");
        must_or_refused(answer);
    }
    MUST(current(context));
    fill(plain);
    full();
    for (int at = 0; at < count; at++) MUST(CUDA("cuLibraryUnload", (Handle), held[at]));
    fill(plain);
    full();
}

static void library_that_comes_and_goes(void) {
    Handle library;
    begin();
    make_contexts(1);
    for (int round = 0; round < 20; round++) {
        MUST(library_of(50 * MIB, &library));
        MUST(use_library(library));
        MUST(CUDA("cuLibraryUnload", (Handle), library));
    }
    MUST(current(context));
    fill(plain);
    full();
}

static void module_by_hexadecimal_size(void) {
    static const char *const sizes[] = {"0x8000000", "01000000000", "0b1000000000000000000000000000", "2][0x4000000"};
    char text[256];
    Handle module;
    begin();
    for (int at = 0; at < 4; at++) {
        snprintf(text, sizeof text, ".version 7.0\n.target sm_70\n.address_size 64\n.global .align 8 .b8 room[%s];\n", sizes[at]);
        int answer = CUDA("cuModuleLoadData", (Handle *, const void *), &module, text);
        if (answer && answer != OUT_OF_MEMORY) MUST(answer);
    }
    fill(plain);
    full();
}

/* ---- a primary context that is reset while others use it ---- */

static int over_now;
static int (*use)(void);

static int use_plain(void) {
    Handle piece;
    for (int at = 0; at < 8; at++) if (plain(20 * MIB, &piece)) break;
    return 0;
}
static int use_code(void) { Handle module; return module_of(8 * MIB, &module); }
static int use_limits(void) { return limit(HEAP, 64 * MIB); }
static int use_stream(void) {
    Handle piece;
    int answer = async(4 * MIB, &piece);
    return answer ? answer : free_async(piece);
}
static int use_all(void) { use_plain(); use_code(); use_limits(); return use_stream(); }

static void *use_while_reset(void *unused) {
    (void)unused;
    while (!__atomic_load_n(&over_now, __ATOMIC_ACQUIRE)) {
        Handle own;
        if (CUDA("cuDevicePrimaryCtxRetain", (Handle *, int), &own, device) || current(own)) continue;
        use();
    }
    return NULL;
}
static void reset_beside(int (*others)(void)) {
    pthread_t threads[4];
    begin();
    use = others;
    for (int at = 0; at < 4; at++) if (pthread_create(&threads[at], NULL, use_while_reset, NULL)) MUST(errno);
    for (int round = 0; round < 300; round++) {
        usleep(2000);
        MUST(CUDA("cuDevicePrimaryCtxReset_v2", (int), device));
    }
    __atomic_store_n(&over_now, 1, __ATOMIC_RELEASE);
    for (int at = 0; at < 4; at++) pthread_join(threads[at], NULL);
    MUST(CUDA("cuDevicePrimaryCtxReset_v2", (int), device));
    MUST(CUDA("cuDevicePrimaryCtxRetain", (Handle *, int), &context, device));
    MUST(current(context));
    MUST(CUDA("cuMemPoolTrimTo", (Handle, size_t), default_pool(), 0));
    fill(plain);
    full();
}
static void reset_while_others_allocate(void) { reset_beside(use_plain); }
static void reset_while_others_load_code(void) { reset_beside(use_code); }
static void reset_while_others_set_limits(void) { reset_beside(use_limits); }
static void reset_while_others_use_streams(void) { reset_beside(use_stream); }
static void reset_while_others_do_all(void) { reset_beside(use_all); }
