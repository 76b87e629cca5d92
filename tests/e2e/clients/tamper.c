/* Tries to get more of a GPU than its slice, one way for each name: ATTACK [DETAIL]. It begins as an honest program
 * that holds 1 GiB, says "ready" and its pid, waits for a line, and then says "done", or "impossible" and why. It goes
 * when it is told another line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t handle;

#define FUNCTIONS(X)                                                                                                    \
    X(cuInit, (unsigned))                                                                                               \
    X(cuDevicePrimaryCtxRetain, (handle *, int))                                                                        \
    X(cuCtxSetCurrent, (handle))                                                                                        \
    X(cuModuleLoadData, (handle *, const void *))                                                                       \
    X(cuModuleGetFunction, (handle *, handle, const char *))                                                            \
    X(cuStreamSynchronize, (handle))                                                                                    \
    X(cuMemAlloc_v2, (uint64_t *, size_t))                                                                              \
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

static int allocate(struct driver *driver, size_t bytes) {
    uint64_t address;
    return driver->cuMemAlloc_v2(&address, bytes);
}

/* ---- its own pages ---- */

struct mapping { char *from; size_t length; };

/* The first mapping with these rights, of a file whose name ends so. */
static struct mapping mapped(const char *rights, const char *file) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096], its[5];
    unsigned long from, to;
    while (maps && fgets(line, sizeof line, maps)) {
        line[strcspn(line, "\n")] = 0;
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
static void garbage(void) { memset(usage().from, 0xff, 1 << 20); }
static void future(void) { ((uint64_t *)usage().from)[197120 + 32] = ~0ull >> 1; }

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

static void truncate_usage(void) {
    struct mapping pages = usage();
    char path[128];
    snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (long)pages.from, (long)pages.from + (long)pages.length);
    if (truncate(path, 4096)) say("impossible", errno);
    else say("done", 0);
}

/* ---- behind the library's back ---- */

static struct driver bare(void) {
    struct driver driver;
    begin(&driver, dlopen(detail, RTLD_NOW | RTLD_LOCAL), 1);
    return driver;
}

static void alias(void) {
    struct driver driver = bare();
    CHECK(allocate(&driver, 2 * GIB));
}

static void alias_launch(void) {
    struct driver driver = bare();
    handle module, kernel;
    CHECK(driver.cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry spin_us_1000() { ret; }\n"));
    CHECK(driver.cuModuleGetFunction(&kernel, module, "spin_us_1000"));
    say("done", 0);
    for (double end = ms() + 8000; ms() < end;) {
        CHECK(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL));
        CHECK(driver.cuStreamSynchronize(0));
    }
}

/* ---- the daemon's socket ---- */

static int connected(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", detail);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && connect(fd, (void *)&address, sizeof address) == 0 ? fd : -1;
}

/* A frame that means nothing; the second word of a refusal says that it was malformed. */
static void forge(void) {
    uint64_t frame[8] = {7, 7, 7, 7, 7, 7, 7, 7};
    int fd = connected();
    int refused = write(fd, frame, sizeof frame) == sizeof frame && read(fd, frame, sizeof frame) == sizeof frame;
    say(refused && frame[0] == 2 ? "impossible" : "done", (long)frame[1]);
}

static void flood(void) {
    long held = 0;
    for (int turn = 0; turn < 900; turn++) held += connected() >= 0;
    say("done", held);
}

/* Registrations by children that never end by themselves. */
static void registrations(void) {
    long children = 0;
    for (int turn = 0; turn < 40; turn++) {
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", "tamper", "wait", (char *)NULL);
            _exit(127);
        }
        children += child > 0;
    }
    say("done", children);
}

static void descriptors(void) {
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 3; fd < 256; fd++) if (fd != nothing) dup2(nothing, fd);
    for (int fd = 3; fd < 256; fd++) close(fd);
    say("done", allocate(&governed, GIB));
}

/* Holds what it has and stands still, with its launches under way. */
static void stop(void) {
    say("done", 0);
    kill(getpid(), SIGSTOP);
}

static const struct { const char *name; void (*run)(void); int says; } attacks[] = {
    {"granted", granted}, {"used-more", used_more}, {"used-less", used_less}, {"garbage", garbage}, {"future", future},
    {"private-usage", private_usage}, {"private-control", private_control, 1}, {"memory-file", memory_file, 1},
    {"protection", protection, 1}, {"reopen", reopen, 1}, {"truncate", truncate_usage, 1}, {"alias", alias},
    {"alias-launch", alias_launch, 1}, {"forge", forge, 1}, {"flood", flood, 1}, {"registrations", registrations, 1},
    {"descriptors", descriptors, 1}, {"stop", stop, 1}, {"wait", NULL, 1},
};

int main(int count, char **words) {
    char line[64];
    const char *name = count > 1 ? words[1] : "";
    detail = count > 2 ? words[2] : "";
    signal(SIGPIPE, SIG_IGN);
    begin(&governed, dlopen("libcuda.so.1", RTLD_NOW), 0);
    if (!strcmp(name, "wait")) return pause();
    CHECK(allocate(&governed, GIB));
    say("ready", getpid());
    if (!fgets(line, sizeof line, stdin)) return 1;
    for (size_t at = 0; at < sizeof attacks / sizeof *attacks; at++) {
        if (strcmp(attacks[at].name, name)) continue;
        attacks[at].run();
        if (!attacks[at].says) say("done", 0);
    }
    if (!strcmp(name, "hold")) say("done", 0);
    return fgets(line, sizeof line, stdin) ? 0 : 1;
}
