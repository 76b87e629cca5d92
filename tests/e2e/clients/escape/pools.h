/* Routes of stream-ordered memory: pools keep what was freed. */

static Handle pool;

static int async(size_t bytes, Handle *out) {
    return CUDA("cuMemAllocAsync", (Handle *, size_t, Handle), out, bytes, 0);
}
static int async_per_thread(size_t bytes, Handle *out) {
    return CUDA("cuMemAllocAsync_ptsz", (Handle *, size_t, Handle), out, bytes, 0);
}
static int from_pool(size_t bytes, Handle *out) {
    return CUDA("cuMemAllocFromPoolAsync", (Handle *, size_t, Handle, Handle), out, bytes, pool, 0);
}
static int from_pool_per_thread(size_t bytes, Handle *out) {
    return CUDA("cuMemAllocFromPoolAsync_ptsz", (Handle *, size_t, Handle, Handle), out, bytes, pool, 0);
}
static int free_async(Handle at) { return CUDA("cuMemFreeAsync", (Handle, Handle), at, 0); }

struct pool_properties { int type, handle_types, location_type, location; uint64_t rest[9]; };

static Handle new_pool(void) {
    struct pool_properties properties = {.type = 1, .location_type = 1, .location = device};
    Handle made;
    MUST(CUDA("cuMemPoolCreate", (Handle *, void *), &made, &properties));
    return made;
}
static void keep_everything(Handle of) {
    uint64_t threshold = UINT64_MAX;
    MUST(CUDA("cuMemPoolSetAttribute", (Handle, int, void *), of, 4, &threshold));
}
static Handle default_pool(void) {
    Handle default_one;
    MUST(CUDA("cuDeviceGetDefaultMemPool", (Handle *, int), &default_one, device));
    return default_one;
}

static void stream_ordered(void) { begin(); fill(async); full(); }
static void stream_ordered_per_thread(void) { begin(); fill(async_per_thread); full(); }
static void default_pool_by_name(void) { begin(); pool = default_pool(); fill(from_pool); full(); }
static void explicit_pool(void) { begin(); pool = new_pool(); fill(from_pool); full(); }
static void explicit_pool_per_thread(void) { begin(); pool = new_pool(); fill(from_pool_per_thread); full(); }
static void pool_of_small_pieces(void) { begin(); pool = new_pool(); hold_all(from_pool, 64 * KIB); full(); }

static void many_pools(void) {
    begin();
    for (int at = 0; at < 16; at++) { pool = new_pool(); fill_from(from_pool, 16 * MIB, 16 * MIB); }
    fill(from_pool);
    full();
}

/* What was freed stays reserved: no room for others while the pool keeps it, or room by taking it away. */
static void retained_reserve(Handle of) {
    pool = of;
    keep_everything(pool);
    for (int round = 0; round < 3; round++) {
        count = 0;
        hold_all(from_pool, 32 * MIB);
        for (int at = 0; at < count; at++) MUST(free_async(held[at]));
        MUST(synchronize());
    }
    fill(plain);
    full();
}
static void reserve_of_the_default_pool(void) { begin(); retained_reserve(default_pool()); }
static void reserve_of_an_explicit_pool(void) { begin(); retained_reserve(new_pool()); }

static void reserve_of_many_pools(void) {
    Handle piece;
    begin();
    for (int at = 0; at < 16; at++) {
        pool = new_pool();
        keep_everything(pool);
        if (from_pool(100 * MIB, &piece) == 0) MUST(free_async(piece));
        MUST(synchronize());
    }
    fill(plain);
    full();
}

static void pool_made_current(void) {
    begin();
    pool = new_pool();
    keep_everything(pool);
    MUST(CUDA("cuDeviceSetMemPool", (int, Handle), device, pool));
    count = 0;
    hold_all(async, 32 * MIB);
    for (int at = 0; at < count; at += 2) MUST(free_async(held[at]));
    fill(plain);
    fill(async);
    full();
}

static void pool_destroyed_with_its_memory(void) {
    begin();
    for (int round = 0; round < 5; round++) {
        pool = new_pool();
        fill_from(from_pool, 64 * MIB, 64 * MIB);
        MUST(CUDA("cuMemPoolDestroy", (Handle), pool));
    }
    fill(plain);
    full();
}

/* What a pool had is there until the last of it is freed, and then all of it is to be had again. */
static void pool_destroyed_and_emptied(void) {
    begin();
    for (int round = 0; round < 5; round++) {
        pool = new_pool();
        count = 0;
        hold_all(from_pool, 64 * MIB);
        MUST(CUDA("cuMemPoolDestroy", (Handle), pool));
        if (CUDA("cuMemPoolDestroy", (Handle), pool) == 0) MUST(1);
        for (int at = 0; at < count; at++) MUST(at % 2 ? free_async(held[at]) : release_plain(held[at]));
    }
    fill(plain);
    full();
}

static void pool_trimmed(void) {
    begin();
    pool = new_pool();
    keep_everything(pool);
    for (int round = 0; round < 5; round++) {
        count = 0;
        hold_all(from_pool, 32 * MIB);
        for (int at = 0; at < count; at++) MUST(free_async(held[at]));
        MUST(synchronize());
        MUST(CUDA("cuMemPoolTrimTo", (Handle, size_t), pool, 16 * MIB));
        for (Handle piece; plain(100 * MIB, &piece) == 0;) held[count++ % 8] = piece;
        for (int at = 0; at < 8; at++) release_plain(held[at]);
    }
    fill(plain);
    full();
}

static void freed_and_taken_without_waiting(void) {
    Handle piece;
    begin();
    for (int round = 0; round < 200; round++) {
        MUST(async(200 * MIB, &piece));
        MUST(free_async(piece));
    }
    fill(plain);
    full();
}

static void plain_memory_freed_in_a_stream(void) {
    begin();
    for (int round = 0; round < 3; round++) {
        count = 0;
        hold_all(plain, 16 * MIB);
        for (int at = 0; at < count; at++) MUST(free_async(held[at]));
        for (int at = 0; at < count; at++) if (free_async(held[at]) == 0) MUST(1);
    }
    fill(plain);
    full();
}

/* A kernel that runs so long, in a stream of its own. */
static void launch_spin(Handle stream, uint64_t ns) {
    static const char text[] = ".version 6.0\n.target sm_60\n.address_size 64\n.visible .entry spin_ns(.param .u64 ns) { ret; }\n";
    static Handle spin;
    Handle module;
    void *arguments[] = {&ns};
    if (!spin) {
        MUST(CUDA("cuModuleLoadData", (Handle *, const void *), &module, text));
        MUST(CUDA("cuModuleGetFunction", (Handle *, Handle, const char *), &spin, module, "spin_ns"));
    }
    MUST(CUDA("cuLaunchKernel",
              (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **),
              spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}
static Handle new_stream(void) {
    Handle stream;
    MUST(CUDA("cuStreamCreate", (Handle *, unsigned), &stream, 1));
    return stream;
}
static int free_in(Handle at, Handle stream) { return CUDA("cuMemFreeAsync", (Handle, Handle), at, stream); }

static void wait_in_some_way(int way, Handle stream, Handle event) {
    if (way == 0) MUST(CUDA("cuEventSynchronize", (Handle), event));
    if (way == 1) while (CUDA("cuEventQuery", (Handle), event)) usleep(1000);
    if (way == 2) while (CUDA("cuStreamQuery", (Handle), stream)) usleep(1000);
    if (way == 3) MUST(CUDA("cuStreamSynchronize", (Handle), stream));
    if (way == 4) MUST(synchronize());
}

/* Behind a kernel memory is there until that has ended, however the program learns of it. */
static void plain_memory_freed_behind_a_kernel(void) {
    Handle stream, event;
    begin();
    stream = new_stream();
    MUST(CUDA("cuEventCreate", (Handle *, unsigned), &event, 2));
    for (int round = 0; round < 5; round++) {
        count = 0;
        hold_all(plain, 64 * MIB);
        int freed = count;
        launch_spin(stream, 60000000);
        for (int at = 0; at < freed; at++) MUST(free_in(held[at], stream));
        for (int at = 0; at < freed; at++) if (free_in(held[at], stream) == 0) MUST(1);
        hold_all(plain, 64 * MIB);
        MUST(CUDA("cuEventRecord", (Handle, Handle), event, stream));
        wait_in_some_way(round, stream, event);
        hold_all(plain, 64 * MIB);
        if (count != 2 * freed) MUST(count);
        for (int at = freed; at < count; at++) MUST(release_plain(held[at]));
    }
    fill(plain);
    full();
}

static void stream_ordered_memory_freed_plainly(void) {
    begin();
    keep_everything(default_pool());
    for (int round = 0; round < 3; round++) {
        count = 0;
        hold_all(async, 16 * MIB);
        for (int at = 0; at < count; at++) MUST(release_plain(held[at]));
    }
    fill(plain);
    full();
}
