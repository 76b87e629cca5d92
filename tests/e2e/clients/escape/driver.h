/* The driver as this program knows it, how it fills up, and how it talks to the test.
 *
 * A route says `full` when it holds all it could get and waits for a line; when it has nothing more to try, it ends.
 * What the device holds is watched from outside all the while. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long Address;
typedef uint64_t Handle;

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

enum { OUT_OF_MEMORY = 2, NO_SYMBOL = 9002 };

static void *symbol(const char *name) {
    static void *driver;
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? dlsym(driver, name) : NULL;
}

/* Calls a driver function by name; one that is not there is an answer. */
#define CUDA(name, types, ...)                                                                  \
    ({                                                                                          \
        static int (*function) types;                                                           \
        if (!function) function = (int(*) types)symbol(name);                                   \
        function ? function(__VA_ARGS__) : NO_SYMBOL;                                           \
    })

/* What must work for a route to be one. */
#define MUST(call)                                                                              \
    do {                                                                                        \
        int answer_ = (call);                                                                   \
        if (answer_) { printf("broken %s: %d\n", #call, answer_); fflush(stdout); _exit(3); }   \
    } while (0)

/* ---- the conversation ---- */

static void say(const char *word) {
    printf("%s\n", word);
    fflush(stdout);
}

/* Holds what it holds until the test has looked. */
static void full(void) {
    char line[16];
    say("full");
    if (!fgets(line, sizeof line, stdin)) _exit(0);
}

/* ---- beginning ---- */

static Handle context;
static int device;

static void begin_on(int ordinal) {
    MUST(CUDA("cuInit", (unsigned), 0));
    MUST(CUDA("cuDeviceGet", (int *, int), &device, ordinal));
    MUST(CUDA("cuDevicePrimaryCtxRetain", (Handle *, int), &context, device));
    MUST(CUDA("cuCtxSetCurrent", (Handle), context));
}

static void begin(void) { begin_on(0); }

static int synchronize(void) { return CUDA("cuCtxSynchronize", (void)); }

/* ---- ways to get memory ---- */

typedef int (*Way)(size_t bytes, Handle *out);

static int plain(size_t bytes, Handle *out) { return CUDA("cuMemAlloc_v2", (Handle *, size_t), out, bytes); }
static int release_plain(Handle at) { return CUDA("cuMemFree_v2", (Handle), at); }

/* Pieces of `block` bytes until refused, then of half of it, down to `least`; says how much that was. */
static size_t fill_from(Way way, size_t block, size_t least) {
    size_t total = 0;
    Handle handle;
    int answer;
    while (block >= least) {
        if ((answer = way(block, &handle)) == 0) { total += block; continue; }
        if (answer != OUT_OF_MEMORY) MUST(answer);
        block /= 2;
    }
    return total;
}

static size_t fill(Way way) { return fill_from(way, 256 * MIB, 2 * MIB); }

/* A list of what is held, for those that give some of it back. */
enum { MOST = 1 << 18 };
static Handle held[MOST];
static int count;

static void hold_all(Way way, size_t bytes) {
    int answer = 0;
    while (count < MOST && (answer = way(bytes, &held[count])) == 0) count++;
    if (answer != OUT_OF_MEMORY) MUST(answer);
}

struct physical_properties { /* CUmemAllocationProp */
    int type, handle_types, location_type, location;
    void *windows;
    unsigned char rest[8];
};

static int create(size_t bytes, Handle *out) {
    struct physical_properties properties = {.type = 1, .handle_types = 1, .location_type = 1, .location = device};
    return CUDA("cuMemCreate", (Handle *, size_t, void *, Handle), out, bytes, &properties, 0);
}

static Address reserve(size_t bytes) {
    Address at = 0;
    MUST(CUDA("cuMemAddressReserve", (Address *, size_t, size_t, Address, Handle), &at, bytes, 0, 0, 0));
    return at;
}

static int map(Address at, size_t bytes, Handle handle) {
    return CUDA("cuMemMap", (Address, size_t, size_t, Handle, Handle), at, bytes, 0, handle, 0);
}

static int unmap(Address at, size_t bytes) { return CUDA("cuMemUnmap", (Address, size_t), at, bytes); }
static int release(Handle handle) { return CUDA("cuMemRelease", (Handle), handle); }

/* ---- relatives ---- */

/* A child that has not begun with the driver, at the other end of a line. */
struct child { pid_t pid; int line; };

static struct child beget(void (*life)(int line)) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) _exit(4);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) { close(ends[0]); life(ends[1]); _exit(0); }
    close(ends[1]);
    return (struct child){pid, ends[0]};
}

static void bury(struct child child) {
    int status = 0;
    close(child.line);
    waitpid(child.pid, &status, 0);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) && WEXITSTATUS(status) != 9)) MUST(status);
}

static void tell(int line, const void *what, size_t bytes) { if (write(line, what, bytes) != (ssize_t)bytes) _exit(5); }
static void hear(int line, void *what, size_t bytes) { if (recv(line, what, bytes, MSG_WAITALL) != (ssize_t)bytes) _exit(9); }

static void send_descriptor(int line, int fd) {
    char byte = 0, room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(line, &message, 0) != 1) _exit(6);
}

static int receive_descriptor(int line) {
    char byte, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd = -1;
    if (recvmsg(line, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}
