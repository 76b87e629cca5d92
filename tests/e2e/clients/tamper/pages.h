/* Attempts on the pages that the program shares with the daemon. */

struct mapping { char *from; size_t length; };

/* The first mapping with these rights, of a file whose name ends so. */
static struct mapping mapped(const char *rights, const char *file) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096], its[5];
    unsigned long from, to;
    while (maps && fgets(line, sizeof line, maps)) {
        line[strcspn(line, "\n")] = 0;
        char *unnamed = strstr(line, " (deleted)");
        if (unnamed) *unnamed = 0;
        size_t length = strlen(line), ending = strlen(file);
        int is_it = length >= ending && !strcmp(line + length - ending, file);
        if (is_it && sscanf(line, "%lx-%lx %4s", &from, &to, its) == 3 && !strcmp(its, rights)) {
            fclose(maps);
            return (struct mapping){(char *)from, to - from};
        }
    }
    printf("failed 0 nothing is mapped of %s\n", file);
    exit(1);
}

static struct mapping usage(void) { return mapped("rw-s", "/usage"); }
/* Nothing else is shared to be read alone; its file is in a mount that is nowhere, and has no name there. */
static struct mapping control(void) { return mapped("r--s", ""); }

/* The first process of a slice has the first record: `granted:31 | turn:1 | used:32`. */
static uint64_t *word(void) { return (uint64_t *)usage().from + 144; }

static void granted(void) { *word() += (uint64_t)(GIB >> 12) << 33; }
static void used_more(void) { *word() = (*word() & ~0xffffffffull) | ((*word() >> 33) + 1000); }
static void used_less(void) { *word() &= ~0xffffffffull; }

/* Takes all there is, and then credit for more. */
static void granted_full(void) {
    for (size_t piece = GIB; piece >= GIB >> 9; piece >>= 1)
        while (allocate(&governed, piece) == 0) continue;
    granted();
    say("done", allocate(&governed, GIB));
}

static void used_less_most(void) {
    CHECK(allocate(&governed, 12 * GIB));
    used_less();
}

/* What others may open, the driver may list with them: a pretext. */
static void used_less_shared(void) {
    uint64_t piece;
    char handle[64];
    CHECK(governed.cuMemAlloc_v2(&piece, 2 << 20));
    CHECK(governed.cuIpcGetMemHandle(handle, piece));
    used_less();
}

/* A piece at a time, of each of which it says that it freed it, until it is refused for two seconds. */
static void creep(void) {
    long pieces = 0;
    for (double last = ms(); ms() < last + 2000 && pieces < 96; usleep(100000))
        if (allocate(&governed, GIB / 4) == 0) pieces++, used_less(), last = ms();
    say("done", pieces);
}

static void garbage(void) { memset(usage().from, 0xff, 1 << 20); }

/* The record of what it has outstanding: times at 16, since when at 32, marks from 48 on. */
static volatile uint64_t *record(void) { return (uint64_t *)usage().from + 197120; }

static void future(void) { record()[32] = ~0ull >> 1; }

/* Part of the time that it says it was busy, in a thousand; negative if it says nothing of the kind. */
static long admitted = -1;

static void *deny(void *its) {
    double since = ms();
    for (volatile uint64_t *words = its;; usleep(20)) {
        words[16] = admitted < 0 ? 0 : (uint64_t)((ms() - since) * 1000 * admitted);
        words[32] = 0;
        for (int mark = 48; mark < 112; mark += 2) words[mark + 1] = (uint32_t)words[mark];
    }
    return NULL;
}

/* Launches as others do, and says that it does not. */
static void busy_less(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, deny, (void *)record());
    launch(&governed, 8000);
}

/* The same, and says that it does a little. */
static void busy_little(void) {
    admitted = 60;
    busy_less();
}

/* Launches nothing, and says that it has: each 2 ms what it said is done, there is more, and it is busy since now. */
static void idle_holder(void) {
    volatile uint64_t *words = record();
    double end = ms() + 60000;
    say("done", 0);
    for (uint32_t mark = 1; ms() < end; mark++, usleep(2000)) {
        volatile uint64_t *last = words + 48 + (mark - 1) % 32 * 2, *next = words + 48 + mark % 32 * 2;
        last[1] = (uint32_t)last[0];
        next[1] = mark - 1;
        next[0] = 1000ull << 36 | mark;
        words[1] = mark;
        words[32] = (uint64_t)(ms() * 1e6);
    }
}

/* A copy of a mapping of its own in the place of the shared one. */
static uint64_t *cover(struct mapping mapping) {
    void *copy = malloc(mapping.length);
    memcpy(copy, mapping.from, mapping.length);
    void *at = mmap(mapping.from, mapping.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (at == MAP_FAILED) printf("failed %d mmap\n", errno), exit(1);
    memcpy(at, copy, mapping.length);
    free(copy);
    return at;
}

static void private_usage(void) {
    cover(usage());
    CHECK(allocate(&governed, 2 * GIB));
}

/* The cap in its own copy is 1 TiB; what it gets is what the daemon grants. */
static void private_control(void) {
    cover(control())[16 + 2] = 1ull << 40;
    int refused = 0;
    for (int piece = 0; piece < 64 && !refused; piece++) refused = allocate(&governed, GIB);
    say(refused ? "impossible" : "done", refused);
}

static int fails_to_write(int fd, off_t at) {
    static const uint64_t nothing = 0;
    if (fd < 0) return 1;
    int failed = pwrite(fd, &nothing, sizeof nothing, at) != sizeof nothing;
    close(fd);
    return failed;
}

static void memory_file(void) {
    int failed = fails_to_write(open("/proc/self/mem", O_RDWR | O_CLOEXEC), (off_t)control().from + 64);
    say(failed ? "impossible" : "done", errno);
}

static void protection(void) {
    struct mapping pages = control();
    int failed = mprotect(pages.from, pages.length, PROT_READ | PROT_WRITE) != 0;
    void *again = mremap(pages.from, 0, pages.length, MREMAP_MAYMOVE);
    if (again != MAP_FAILED) failed &= mprotect(again, pages.length, PROT_READ | PROT_WRITE) != 0;
    say(failed ? "impossible" : "done", errno);
}

static void reopen(void) {
    struct mapping pages = control();
    char path[128];
    struct stat wanted, found;
    snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (long)pages.from, (long)pages.from + (long)pages.length);
    int failed = fails_to_write(open(path, O_RDWR | O_CLOEXEC), 64);
    if (stat(path, &wanted)) printf("failed %d %s\n", errno, path), exit(1);
    for (int fd = 3; fd < 1024; fd++) {
        if (fstat(fd, &found) || found.st_ino != wanted.st_ino || found.st_dev != wanted.st_dev) continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        failed &= fails_to_write(open(path, O_RDWR | O_CLOEXEC), 64) & fails_to_write(dup(fd), 64);
    }
    say(failed ? "impossible" : "done", errno);
}

/* Takes room beyond the end of the usage region in all ways there are, with a descriptor like the one that the library was
 * handed; says how many of them worked. */
static void room(void) {
    enum { MORE = 64 << 20 };
    struct mapping pages = usage();
    char path[128];
    snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (long)pages.from, (long)pages.from + (long)pages.length);
    int fd = open(path, O_RDWR | O_CLOEXEC), ways = 0;
    struct stat file;
    if (fd < 0 || fstat(fd, &file)) { say("failed", errno); return; }
    off_t end = file.st_size;
    ways += fallocate(fd, FALLOC_FL_KEEP_SIZE, end, MORE) == 0;
    ways += fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_ZERO_RANGE, end, MORE) == 0;
    ways += fallocate(fd, 0, end, MORE) == 0;
    ways += ftruncate(fd, end + MORE) == 0;
    ways += pwrite(fd, "x", 1, end + MORE) == 1;
    ways += fstat(fd, &file) || file.st_blocks * 512 > end + 65536;
    say("done", ways);
}

static void truncate_usage(void) {
    struct mapping pages = usage();
    char path[128];
    snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (long)pages.from, (long)pages.from + (long)pages.length);
    if (truncate(path, 4096)) say("impossible", errno);
    else say("done", 0);
}
