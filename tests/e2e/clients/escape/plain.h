/* Routes of plain memory: every form, awkward sizes, and tricks with the order of things. */

static void plain_large(void) { begin(); fill(plain); full(); }
static void plain_of_1_0_mib(void) { begin(); hold_all(plain, MIB); full(); }
static void plain_of_1_1_mib(void) { begin(); hold_all(plain, MIB + MIB / 10); full(); }
static void plain_of_2_mib_and_a_byte(void) { begin(); hold_all(plain, 2 * MIB + 1); fill(plain); full(); }
static void plain_just_below_1_mib(void) { begin(); hold_all(plain, MIB - 1); full(); }
static void plain_of_4_kib(void) { begin(); hold_all(plain, 4 * KIB); full(); }

static void plain_of_all_sizes(void) {
    static const size_t sizes[] = {1, 512, 4 * KIB, 100 * KIB, MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB, 17 * MIB};
    unsigned seed = 7;
    int refusals = 0;
    begin();
    while (refusals < 30 && count < MOST)
        if (plain(sizes[rand_r(&seed) % 10], &held[count]) == 0) count++; else refusals++;
    fill(plain);
    full();
}

static void free_every_other(size_t bytes) {
    begin();
    hold_all(plain, bytes);
    for (int at = 0; at < count; at += 2) MUST(release_plain(held[at]));
    fill(plain);
    hold_all(plain, bytes);
    full();
}
static void every_other_of_1_1_mib(void) { free_every_other(MIB + MIB / 10); }
static void every_other_of_4_kib(void) { free_every_other(4 * KIB); }
static void every_other_of_700_kib(void) { free_every_other(700 * KIB); }

static int low(size_t bytes, Handle *out) {
    unsigned at = 0;
    int answer = CUDA("cuMemAlloc", (unsigned *, unsigned), &at, (unsigned)bytes);
    *out = at;
    return answer;
}
static void legacy_32_bit(void) { begin(); fill_from(low, 64 * MIB, 2 * MIB); fill(plain); full(); }

static int low_pitched(size_t bytes, Handle *out) {
    unsigned at = 0, pitch;
    int answer = CUDA("cuMemAllocPitch", (unsigned *, unsigned *, unsigned, unsigned, unsigned), &at, &pitch, 100,
                      (unsigned)(bytes / 512), 4);
    *out = at;
    return answer;
}
static void legacy_32_bit_pitched(void) { begin(); fill_from(low_pitched, 64 * MIB, 2 * MIB); fill(plain); full(); }

static int pitched(size_t bytes, Handle *out) {
    size_t pitch;
    return CUDA("cuMemAllocPitch_v2", (Handle *, size_t *, size_t, size_t, unsigned), out, &pitch, 4096, bytes / 4096, 4);
}
static void pitched_rows(void) { begin(); fill(pitched); full(); }

/* One byte in a row takes all of the row's pitch. */
static int thin(size_t bytes, Handle *out) {
    size_t pitch;
    return CUDA("cuMemAllocPitch_v2", (Handle *, size_t *, size_t, size_t, unsigned), out, &pitch, 1, bytes / 512, 4);
}
static void pitched_rows_of_a_byte(void) { begin(); fill(thin); full(); }

static int managed(size_t bytes, Handle *out) {
    return CUDA("cuMemAllocManaged", (Handle *, size_t, unsigned), out, bytes, 1);
}
static void managed_memory(void) { begin(); fill(managed); full(); }

static void absurd_sizes(void) {
    static const size_t sizes[] = {0, SIZE_MAX, SIZE_MAX - MIB, SIZE_MAX - 4095, (size_t)1 << 63, (size_t)1 << 44};
    Handle handle;
    begin();
    for (int at = 0; at < 6; at++)
        for (int round = 0; round < 50; round++)
            if (plain(sizes[at], &handle) == 0 || managed(sizes[at], &handle) == 0 || pitched(sizes[at], &handle) == 0)
                MUST(1);
    fill(plain);
    full();
}

static void double_free(void) {
    Handle piece;
    begin();
    for (int round = 0; round < 50; round++) {
        MUST(plain(64 * MIB, &piece));
        MUST(release_plain(piece));
        if (release_plain(piece) == 0) MUST(1);
    }
    fill(plain);
    full();
}

static void free_of_what_was_never_ours(void) {
    Handle piece;
    begin();
    MUST(plain(64 * MIB, &piece));
    for (Handle offset = 512; offset < 64 * MIB; offset += 2 * MIB)
        if (release_plain(piece + offset) == 0) MUST(1);
    for (Handle at = 1; at < (Handle)1 << 60; at *= 2) release_plain(at);
    fill(plain);
    full();
}

static void every_order_of_frees(void) {
    begin();
    for (int round = 0; round < 4; round++) {
        unsigned seed = 11;
        count = 0;
        hold_all(plain, 3 * MIB);
        for (int at = count - 1; at > 0; at--) { /* forward, backward, then at random */
            int other = round == 0 ? at : round == 1 ? count - 1 - at : (int)(rand_r(&seed) % (unsigned)at);
            Handle swap = held[at];
            held[at] = held[other], held[other] = swap;
        }
        for (int at = 0; at < count; at++) MUST(release_plain(held[at]));
    }
    fill(plain);
    full();
}

static void *free_all(void *unused) {
    (void)unused;
    MUST(CUDA("cuCtxSetCurrent", (Handle), context));
    for (int at = 0; at < count; at++) MUST(release_plain(held[at]));
    return NULL;
}
static void freed_by_another_thread(void) {
    pthread_t other;
    begin();
    for (int round = 0; round < 4; round++) {
        count = 0;
        hold_all(plain, 5 * MIB);
        pthread_create(&other, NULL, free_all, NULL);
        pthread_join(other, NULL);
    }
    fill(plain);
    full();
}

static void *fill_in_thread(void *unused) {
    (void)unused;
    MUST(CUDA("cuCtxSetCurrent", (Handle), context));
    fill_from(plain, 8 * MIB, 2 * MIB);
    return NULL;
}
static void eight_threads_race(void) {
    pthread_t threads[8];
    begin();
    for (int at = 0; at < 8; at++) pthread_create(&threads[at], NULL, fill_in_thread, NULL);
    for (int at = 0; at < 8; at++) pthread_join(threads[at], NULL);
    full();
}

/* ---- doors other than the exported name ---- */

static Handle found; /* what a look-up gave */
static int through_found(size_t bytes, Handle *out) { return ((int (*)(Handle *, size_t))found)(out, bytes); }

static void by_look_up(void) {
    begin();
    MUST(CUDA("cuGetProcAddress", (const char *, Handle *, int, uint64_t), "cuMemAlloc", &found, 12000, 0));
    fill(through_found);
    full();
}

static int async_through_found(size_t bytes, Handle *out) {
    return ((int (*)(Handle *, size_t, Handle))found)(out, bytes, 0);
}
static void by_look_up_of_the_per_thread_form(void) {
    int status;
    begin();
    MUST(CUDA("cuGetProcAddress_v2", (const char *, Handle *, int, uint64_t, int *), "cuMemAllocAsync", &found, 12040, 2,
              &status));
    fill(async_through_found);
    full();
}

static int low_through_found(size_t bytes, Handle *out) {
    unsigned at = 0;
    int answer = ((int (*)(unsigned *, unsigned))found)(&at, (unsigned)bytes);
    *out = at;
    return answer;
}
static void by_look_up_of_the_oldest_form(void) {
    int status;
    begin();
    MUST(CUDA("cuGetProcAddress_v2", (const char *, Handle *, int, uint64_t, int *), "cuMemAlloc", &found, 2000, 0,
              &status));
    fill_from(low_through_found, 64 * MIB, 2 * MIB);
    fill(plain);
    full();
}

/* The look-up itself, looked up by itself. */
static void by_look_up_of_the_look_up(void) {
    Handle look_up;
    begin();
    MUST(CUDA("cuGetProcAddress_v2", (const char *, Handle *, int, uint64_t, int *), "cuGetProcAddress", &look_up, 12040, 0,
              NULL));
    MUST(((int (*)(const char *, Handle *, int, uint64_t, int *))look_up)("cuMemAlloc", &found, 12040, 0, NULL));
    fill(through_found);
    full();
}
