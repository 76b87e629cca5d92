/* The one program that is measured: bare, in a slice, or under somebody else's library. It is linked against
 * libcuda.so.1 as ordinary programs are. `client serve` obeys lines on its standard input and answers each with
 * a line of numbers, or with `err CODE`; the other forms are children that it starts of itself. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t address;
int cuInit(unsigned);
int cuDeviceGet(int *, int);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(address *, size_t);
int cuMemFree_v2(address);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuStreamSynchronize(void *);
int cuMemcpyHtoDAsync_v2(address, const void *, size_t, void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

#define MOST_LIVE 100000
#define MOST_WORKERS 1024
#define MIB ((size_t)1 << 20)

static address live[MOST_LIVE];
static size_t lives;
static address filling[256];
static size_t fillings;

/* What the workers of one measurement share. */
struct room {
    atomic_int ready, go, stop;
    atomic_int failed;
    _Atomic uint64_t done[MOST_WORKERS];
};

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void nap_us(long us)
{
    struct timespec time = {0, us * 1000};
    nanosleep(&time, NULL);
}

static int begin(void)
{
    int error, device;
    void *context;
    if ((error = cuInit(0)) || (error = cuDeviceGet(&device, 0)) ||
        (error = cuDevicePrimaryCtxRetain(&context, device)))
        return error;
    return cuCtxSetCurrent(context);
}

static uint32_t random_next(void)
{
    static uint32_t state = 2463534242;
    state ^= state << 13;
    state ^= state >> 17;
    return state ^= state << 5;
}

static int hold(size_t count, size_t bytes)
{
    int error = 0;
    while (lives > count && !error)
        error = cuMemFree_v2(live[--lives]);
    while (lives < count && !error)
        if (!(error = cuMemAlloc_v2(&live[lives], bytes)))
            lives++;
    return error;
}

/* Time per step of the quickest of several batches: the one that other programs disturbed least. */
#define BATCHES 20
#define QUICKEST(ns, iterations, error, step)                                              \
    do {                                                                                   \
        uint64_t batch_ = (iterations) / BATCHES + 1;                                      \
        *(ns) = 1e18;                                                                      \
        for (int tries_ = 0; tries_ < BATCHES && !(error); tries_++) {                     \
            uint64_t begun_ = now_ns();                                                    \
            for (uint64_t i_ = 0; i_ < batch_ && !(error); i_++) {                         \
                step;                                                                      \
            }                                                                              \
            double each_ = (double)(now_ns() - begun_) / batch_;                           \
            if (each_ < *(ns))                                                             \
                *(ns) = each_;                                                             \
        }                                                                                  \
    } while (0)

/* Frees one of the live allocations, whichever, and makes another in its place. */
static int pairs(size_t bytes, size_t count, uint64_t iterations, double *ns)
{
    int error = hold(0, bytes);
    if (!error)
        error = hold(count, bytes);
    QUICKEST(ns, iterations, error, {
        size_t at = (uint64_t)random_next() * count >> 32;
        error = cuMemFree_v2(live[at]);
        if (!error)
            error = cuMemAlloc_v2(&live[at], bytes);
    });
    return error;
}

static int info(uint64_t iterations, double *ns)
{
    size_t free, total;
    int error = 0;
    QUICKEST(ns, iterations, error, error = cuMemGetInfo_v2(&free, &total));
    return error;
}

static int launch(void)
{
    return cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Launches in batches of a hundred, each of them timed: the median of what one launch takes, and the mean of all. */
static int launches(uint64_t iterations, double *median, double *mean)
{
    enum { BATCH = 100 };
    uint64_t count = iterations / BATCH + 1;
    double *each = calloc(count, sizeof *each);
    int error = 0;
    *mean = 0;
    for (uint64_t at = 0; at < count && !error; at++) {
        uint64_t begun = now_ns();
        for (int i = 0; i < BATCH && !error; i++)
            error = launch();
        each[at] = (double)(now_ns() - begun) / BATCH;
        *mean += each[at] / count;
    }
    qsort(each, count, sizeof *each, by_size);
    *median = each[count / 2];
    free(each);
    return error;
}

/* Launches some, waits for them, and again: the mean of what one launch takes, and milliseconds of all of it. */
static int bursts(int count, int launches_each, double *ns, double *ms)
{
    uint64_t launching = 0, from = now_ns();
    int error = 0;
    for (int at = 0; at < count && !error; at++) {
        uint64_t begun = now_ns();
        for (int i = 0; i < launches_each && !error; i++)
            error = launch();
        launching += now_ns() - begun;
        if (!error)
            error = cuStreamSynchronize(NULL);
    }
    *ns = (double)launching / count / launches_each;
    *ms = (now_ns() - from) / 1e6;
    return error;
}

/* One look after each change of what this process uses: time per look, beyond what the changes take. */
static int look(uint64_t iterations, double *ns)
{
    size_t free, total;
    address made;
    int error = 0;
    double with, without;
    QUICKEST(&with, iterations, error, {
        if (!(error = cuMemAlloc_v2(&made, 2 * MIB)) && !(error = cuMemGetInfo_v2(&free, &total)) &&
            !(error = cuMemFree_v2(made)))
            error = cuMemGetInfo_v2(&free, &total);
    });
    QUICKEST(&without, iterations, error, {
        if (!(error = cuMemAlloc_v2(&made, 2 * MIB)))
            error = cuMemFree_v2(made);
    });
    *ns = (with - without) / 2;
    return error;
}

/* Takes all that the slice has but `leave`. */
static int fill(size_t leave)
{
    size_t free, total;
    int error = cuMemGetInfo_v2(&free, &total);
    if (error || free <= leave || fillings == 256)
        return error;
    error = cuMemAlloc_v2(&filling[fillings], (free - leave) / (2 * MIB) * (2 * MIB));
    if (!error)
        fillings++;
    return error;
}

static int drop(void)
{
    int error = hold(0, 0);
    while (fillings && !error)
        error = cuMemFree_v2(filling[--fillings]);
    return error;
}

/* Asks for more than there is; the median of one refusal. */
static int reject(size_t bytes, int iterations, double *us)
{
    double *each = calloc(iterations, sizeof *each);
    int error = 0;
    for (int i = 0; i < iterations && !error; i++) {
        address made;
        uint64_t begun = now_ns();
        int answer = cuMemAlloc_v2(&made, bytes);
        each[i] = (now_ns() - begun) / 1e3;
        if (answer != 2)
            error = answer ? answer : 9000;
    }
    qsort(each, iterations, sizeof *each, by_size);
    *us = each[iterations / 2];
    free(each);
    return error;
}

/* One question and its answer over a socket, to a process that does nothing else: what any daemon takes to be asked. */
static int echo(double *us)
{
    static int line[2] = {-1, -1};
    char sign = 0;
    if (line[0] < 0) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line))
            return 9005;
        if (fork() == 0) {
            close(line[0]);
            while (read(line[1], &sign, 1) == 1 && write(line[1], &sign, 1) == 1)
                ;
            _exit(0);
        }
        close(line[1]);
    }
    uint64_t begun = now_ns();
    int failed = write(line[0], &sign, 1) != 1 || read(line[0], &sign, 1) != 1;
    *us = (now_ns() - begun) / 1e3;
    return failed ? 9005 : 0;
}

/* ---- measurements of many processes ---- */

static pid_t child(const char *form, int fd, int index, const char *what)
{
    pid_t pid = vfork();
    if (pid == 0) {
        char number[16], place[16];
        snprintf(number, sizeof number, "%d", fd);
        snprintf(place, sizeof place, "%d", index);
        execl("/proc/self/exe", "client", form, number, place, what, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static struct room *enter(int fd)
{
    void *mapped = mmap(NULL, sizeof(struct room), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static struct room *make_room(int *fd)
{
    *fd = syscall(SYS_memfd_create, "room", 0);
    return *fd < 0 || ftruncate(*fd, sizeof(struct room)) ? NULL : enter(*fd);
}

static int gathered(struct room *room, int count)
{
    uint64_t deadline = now_ns() + 60000000000u;
    while (atomic_load(&room->ready) < count) {
        if (atomic_load(&room->failed) || now_ns() > deadline)
            return 9001;
        nap_us(500);
    }
    return 0;
}

static int worker_rate(struct room *room, int index, size_t bytes)
{
    address made;
    int error = begin();
    if (!error && !(error = cuMemAlloc_v2(&made, bytes)))
        error = cuMemFree_v2(made);
    if (error) {
        atomic_store(&room->failed, error);
        return 1;
    }
    atomic_fetch_add(&room->ready, 1);
    while (!atomic_load(&room->go))
        nap_us(1000);
    uint64_t done = 0;
    while (!atomic_load_explicit(&room->stop, memory_order_relaxed) && !error) {
        if (!(error = cuMemAlloc_v2(&made, bytes)))
            error = cuMemFree_v2(made);
        done++;
    }
    atomic_store(&room->done[index], error ? 0 : done);
    return error != 0;
}

/* Pairs per second of `count` processes together. */
static int rate(int count, size_t bytes, long ms, double *per_second)
{
    int fd, error;
    char what[32];
    struct room *room = make_room(&fd);
    if (!room || count > MOST_WORKERS)
        return 9002;
    snprintf(what, sizeof what, "%zu", bytes);
    for (int i = 0; i < count; i++)
        child("rate", fd, i, what);
    error = gathered(room, count);
    uint64_t begun = now_ns();
    atomic_store(&room->go, 1);
    nap_us(0);
    usleep(ms * 1000);
    atomic_store(&room->stop, 1);
    uint64_t took = now_ns() - begun;
    while (wait(NULL) > 0 || errno == EINTR)
        ;
    uint64_t done = 0;
    for (int i = 0; i < count; i++)
        done += atomic_load(&room->done[i]);
    *per_second = done * 1e9 / took;
    munmap(room, sizeof *room);
    close(fd);
    return error;
}

static int worker_start(void)
{
    address made;
    int error = begin();
    if (!error && !(error = cuMemAlloc_v2(&made, 2 * MIB)))
        error = cuMemFree_v2(made);
    if (error)
        fprintf(stderr, "client: a started process got CUDA error %d\n", error);
    return error != 0;
}

/* Starts `count` processes as fast as all cores together can, each of which begins, allocates once and ends: wall
 * time of all of them, and processor time of each, in their own code and in the kernel. */
static int start(int count, double *ms, double *cpu_us)
{
    struct rusage before, after;
    int status, failed = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    getrusage(RUSAGE_CHILDREN, &before);
    uint64_t begun = now_ns();
    for (long core = 0; core < cores; core++)
        if (fork() == 0) {
            for (long i = core; i < count; i += cores)
                child("start", -1, i, "");
            for (pid_t pid; (pid = wait(&status)) > 0 || errno == EINTR;)
                failed |= pid > 0 && status != 0;
            _exit(failed);
        }
    for (pid_t pid; (pid = wait(&status)) > 0 || errno == EINTR;)
        failed |= pid > 0 && status != 0;
    *ms = (now_ns() - begun) / 1e6;
    getrusage(RUSAGE_CHILDREN, &after);
#define US(of) ((after.of.tv_sec - before.of.tv_sec) * 1e6 + (after.of.tv_usec - before.of.tv_usec))
    *cpu_us = (US(ru_utime) + US(ru_stime)) / count;
    return failed ? 9003 : 0;
}

static int worker_hold(struct room *room, size_t bytes)
{
    address made;
    int error = begin();
    if (!error)
        error = cuMemAlloc_v2(&made, bytes);
    if (error)
        atomic_store(&room->failed, error);
    atomic_fetch_add(&room->ready, 1);
    pause();
    return 0;
}

static pid_t crowd[MOST_WORKERS];
static int crowded;

/* Lets `count` processes live, each with an allocation. */
static int gather(int count, size_t bytes)
{
    int fd;
    char what[32];
    struct room *room = make_room(&fd);
    if (!room || crowded || count > MOST_WORKERS)
        return 9002;
    snprintf(what, sizeof what, "%zu", bytes);
    for (crowded = 0; crowded < count; crowded++)
        crowd[crowded] = child("hold", fd, crowded, what);
    int error = gathered(room, count);
    munmap(room, sizeof *room);
    close(fd);
    return error;
}

static int disperse(void)
{
    for (int i = 0; i < crowded; i++) {
        kill(crowd[i], SIGKILL);
        waitpid(crowd[i], NULL, 0);
    }
    crowded = 0;
    return 0;
}

/* Kills a process that holds most of the slice; how long after its end (when the kernel says that it has ended)
 * the memory could be had again, as this process finds out by asking for it. */
static int reclaim(size_t bytes, double *ms)
{
    int fd;
    char what[32];
    struct room *room = make_room(&fd);
    if (!room)
        return 9002;
    snprintf(what, sizeof what, "%zu", bytes);
    pid_t pid = child("hold", fd, 0, what);
    int error = gathered(room, 1);
    kill(pid, SIGKILL);
    siginfo_t ended;
    waitid(P_PID, pid, &ended, WEXITED | WNOWAIT);
    uint64_t begun = now_ns(), deadline = begun + 10000000000u;
    address made = 0;
    while (!error && (error = cuMemAlloc_v2(&made, bytes)) == 2 && now_ns() < deadline) {
        error = 0;
        nap_us(100);
    }
    *ms = (now_ns() - begun) / 1e6;
    waitpid(pid, NULL, 0);
    if (!error)
        error = cuMemFree_v2(made);
    munmap(room, sizeof *room);
    close(fd);
    return error;
}

/* Races for all there is, in smaller and smaller pieces, until nothing is left. */
static int worker_race(struct room *room, int index)
{
    address made;
    int error = begin();
    atomic_fetch_add(&room->ready, 1);
    while (!error && !atomic_load(&room->go))
        sched_yield();
    for (size_t bytes = 256 * MIB; !error && bytes >= 2 * MIB;)
        if ((error = cuMemAlloc_v2(&made, bytes)) == 2) {
            error = 0;
            bytes /= 2;
        } else if (!error) {
            atomic_fetch_add(&room->done[index], bytes);
        }
    if (error)
        atomic_store(&room->failed, error);
    atomic_fetch_add(&room->stop, 1);
    pause();
    return 0;
}

static pid_t racers[64];
static int racing;

static int race(int count, double *held)
{
    int fd;
    struct room *room = make_room(&fd);
    if (!room || count > 64)
        return 9002;
    for (racing = 0; racing < count; racing++)
        racers[racing] = child("race", fd, racing, "");
    int error = gathered(room, count);
    atomic_store(&room->go, 1);
    uint64_t deadline = now_ns() + 60000000000u;
    while (!error && atomic_load(&room->stop) < count && now_ns() < deadline)
        nap_us(500);
    *held = 0;
    for (int i = 0; i < count; i++)
        *held += atomic_load(&room->done[i]);
    if (!error)
        error = atomic_load(&room->failed);
    munmap(room, sizeof *room);
    close(fd);
    return error;
}

static int end_race(void)
{
    for (int i = 0; i < racing; i++) {
        kill(racers[i], SIGKILL);
        waitpid(racers[i], NULL, 0);
    }
    racing = 0;
    return 0;
}

/* Waits until the device is no longer as large as this, and says how long after `since` that was. */
static int settle(size_t bytes, uint64_t since, double *ms)
{
    uint64_t deadline = now_ns() + 10000000000u;
    size_t free, total = 0;
    int error = 0;
    while (!(error = cuMemGetInfo_v2(&free, &total)) && total == bytes && now_ns() < deadline)
        nap_us(100);
    *ms = (now_ns() - since) / 1e6;
    return error ? error : total == bytes ? 9004 : 0;
}

static int serve(void)
{
    char line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        char word[32] = "";
        unsigned long long a = 0, b = 0, c = 0;
        double x = 0, y = 0;
        int error;
        sscanf(line, "%31s %llu %llu %llu", word, &a, &b, &c);
        if (!strcmp(word, "begin"))
            error = begin();
        else if (!strcmp(word, "pairs"))
            error = pairs(a, b, c, &x);
        else if (!strcmp(word, "launches"))
            error = launches(a, &x, &y);
        else if (!strcmp(word, "bursts"))
            error = bursts(a, b, &x, &y);
        else if (!strcmp(word, "info"))
            error = info(a, &x);
        else if (!strcmp(word, "look"))
            error = look(a, &x);
        else if (!strcmp(word, "echo"))
            error = echo(&x);
        else if (!strcmp(word, "crowd"))
            error = gather(a, b);
        else if (!strcmp(word, "endcrowd"))
            error = disperse();
        else if (!strcmp(word, "fill"))
            error = fill(a);
        else if (!strcmp(word, "drop"))
            error = drop();
        else if (!strcmp(word, "reject"))
            error = reject(a, b, &x);
        else if (!strcmp(word, "take")) { /* one allocation, timed, and freed again */
            address made;
            uint64_t begun = now_ns();
            error = cuMemAlloc_v2(&made, a);
            x = (now_ns() - begun) / 1e3;
            if (!error)
                error = cuMemFree_v2(made);
        } else if (!strcmp(word, "rate"))
            error = rate(a, b, c, &x);
        else if (!strcmp(word, "start"))
            error = start(a, &x, &y);
        else if (!strcmp(word, "reclaim"))
            error = reclaim(a, &x);
        else if (!strcmp(word, "race"))
            error = race(a, &x);
        else if (!strcmp(word, "endrace"))
            error = end_race();
        else if (!strcmp(word, "settle"))
            error = settle(a, b, &x);
        else if (!strcmp(word, "total")) {
            size_t free, total = 0;
            error = cuMemGetInfo_v2(&free, &total);
            x = total;
        } else if (!strcmp(word, "clock"))
            error = 0, x = now_ns();
        else
            error = 9999;
        if (error)
            printf("err %d\n", error);
        else
            printf("%.3f %.3f\n", x, y);
    }
    return 0;
}

int main(int count, char **words)
{
    const char *form = count > 1 ? words[1] : "";
    if (!strcmp(form, "serve"))
        return serve();
    if (!strcmp(form, "pairs") && count == 5) { /* under callgrind: BYTES LIVE ITERATIONS */
        double ns;
        int error = begin();
        return error ? error : pairs(strtoull(words[2], 0, 10), strtoull(words[3], 0, 10), strtoull(words[4], 0, 10), &ns);
    }
    if (!strcmp(form, "launches") && count == 3) { /* under callgrind: ITERATIONS */
        int error = begin();
        for (uint64_t left = strtoull(words[2], 0, 10); left > 0 && !error; left--)
            error = launch();
        return error;
    }
    if (!strcmp(form, "transfers") && count == 3) { /* the same of copies over the bus */
        int error = begin();
        for (uint64_t left = strtoull(words[2], 0, 10); left > 0 && !error; left--)
            error = cuMemcpyHtoDAsync_v2(0, NULL, 0, NULL);
        return error;
    }
    if (count == 5) {
        int fd = atoi(words[2]), index = atoi(words[3]);
        struct room *room = fd >= 0 ? enter(fd) : NULL;
        size_t bytes = strtoull(words[4], 0, 10);
        if (!strcmp(form, "start"))
            return worker_start();
        if (!strcmp(form, "rate") && room)
            return worker_rate(room, index, bytes);
        if (!strcmp(form, "hold") && room)
            return worker_hold(room, bytes);
        if (!strcmp(form, "race") && room)
            return worker_race(room, index);
    }
    fprintf(stderr, "usage: client serve | pairs BYTES LIVE ITERATIONS | launches ITERATIONS | transfers ITERATIONS\n");
    return 2;
}
