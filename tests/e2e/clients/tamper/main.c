/* Tries to get more of a GPU than its slice, one way for each name: ATTACK [DETAIL]. It begins as an honest program
 * that holds 1 GiB, says "ready" and its pid, waits for a line, and then says "done", or "impossible" and why. It goes
 * when it is told another line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
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

#include "driver.h"
#include "pages.h"
#include "behind.h"
#include "line.h"

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
    {"protection", protection, 1}, {"reopen", reopen, 1}, {"truncate", truncate_usage, 1}, {"room", room, 1}, {"alias", alias},
    {"alias-launch", alias_launch, 1}, {"forge", forge, 1}, {"flood", flood, 1}, {"registrations", registrations, 1},
    {"granted-full", granted_full, 1}, {"used-less-most", used_less_most}, {"used-less-shared", used_less_shared}, {"creep", creep, 1},
    {"busy-less", busy_less, 1}, {"busy-little", busy_little, 1}, {"idle-holder", idle_holder, 1}, {"own-namespace", own_namespace}, {"by-path", by_path, 1},
    {"credentials", credentials, 1}, {"hand-on", hand_on, 1}, {"crowd", crowd, 1},
    {"descriptors-used-up", descriptors_used_up, 1}, {"descriptors", descriptors, 1}, {"stop", stop, 1}, {"wait", NULL, 1},
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
