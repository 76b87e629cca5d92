/* Who is in no slice, or in another's neighbourhood, and tries what a process can do to others. It uses no GPU itself.
 *
 *     receive PATH           takes a line and pages that somebody passes there, and makes use of both
 *     reborn PID PROGRAM...  runs the program under that pid
 *     reach PID...           tries everything on these processes that another user must not
 *     open PATH...           tries to open these files for writing
 *     stay -                 is there and does nothing
 *     steal PID              asks for memory on that process's line */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *how, long what) { printf("%s %ld\n", how, what), fflush(stdout); }

/* Asks for a unit of credit; the first word of the answer, or 0 if there is none for a second. */
static long ask(int line) {
    uint64_t frame[8] = {2, 0, 1};
    if (write(line, frame, sizeof frame) != sizeof frame) return -errno;
    struct pollfd answer = {.fd = line, .events = POLLIN};
    if (poll(&answer, 1, 1000) == 0) return 0;
    return recv(line, frame, sizeof frame, MSG_WAITALL) == sizeof frame ? (long)frame[0] : -errno;
}

static void receive(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rights[2] = {-1, -1};
    if (bind(door, (void *)&address, sizeof address) || listen(door, 1)) say("failed", errno), exit(1);
    say("ready", getpid());
    char byte, room[CMSG_SPACE(sizeof rights)];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(accept(door, NULL, NULL), &message, 0) != 1) say("failed", errno), exit(1);
    memcpy(rights, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof rights);
    uint64_t *pages = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, rights[1], 0);
    if (pages == MAP_FAILED) say("failed", errno), exit(1);
    say("asked", ask(rights[0]));
    pages[144] &= ~0xffffffffull;
    say("done", 0);
}

/* The pid may be taken until whoever had it has been waited for. */
static int reborn(int pid, char **words) {
    struct clone_args how = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)&pid, .set_tid_size = 1};
    for (int turn = 0; turn < 5000; turn++, usleep(1000)) {
        long child = syscall(SYS_clone3, &how, sizeof how);
        if (child == 0) {
            execv(words[0], words);
            _exit(127);
        }
        int status = 1;
        if (child > 0) return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        if (errno != EEXIST) break;
    }
    say("failed", errno);
    return 1;
}

/* How many ways to reach another process there were, that should not be. */
static int reached(int pid) {
    static uint64_t word;
    char path[64];
    struct iovec here = {&word, sizeof word}, there = {(void *)4096, sizeof word};
    int count = 0;
    if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) == 0) count++, waitpid(pid, NULL, 0), ptrace(PTRACE_DETACH, pid, NULL, NULL);
    if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0) count++, ptrace(PTRACE_DETACH, pid, NULL, NULL);
    /* The address is nobody's; whether it may be tried is told first. */
    count += process_vm_writev(pid, &here, 1, &there, 1, 0) >= 0 || errno != EPERM;
    const char *names[] = {"mem", "fd/3", "fd/4", "fd/5", "map_files", "environ"};
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        snprintf(path, sizeof path, "/proc/%d/%s", pid, names[at]);
        count += open(path, (at ? O_RDONLY : O_RDWR) | O_CLOEXEC) >= 0;
    }
    int handle = syscall(SYS_pidfd_open, pid, 0);
    for (int fd = 0; fd < 32; fd++) count += syscall(SYS_pidfd_getfd, handle, fd, 0) >= 0;
    count += kill(pid, SIGSTOP) == 0 || kill(pid, SIGKILL) == 0;
    return count;
}

/* The end of a line that is another's, by the path that it leads to. */
static int line_of(int pid) {
    struct sockaddr_un address;
    int handle = syscall(SYS_pidfd_open, pid, 0);
    for (int fd = 3; fd < 256; fd++) {
        socklen_t length = sizeof address;
        int copy = syscall(SYS_pidfd_getfd, handle, fd, 0);
        if (copy >= 0 && getpeername(copy, (void *)&address, &length) == 0 && strstr(address.sun_path, "/attach.")) return copy;
        if (copy >= 0) close(copy);
    }
    return -1;
}

static void steal(int pid) {
    int line = line_of(pid);
    if (line < 0) say("impossible", errno);
    else say("ready", getpid()), say("asked", ask(line));
}

int main(int count, char **words) {
    const char *what = count > 2 ? words[1] : "";
    int found = 0;
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(what, "reborn") && count > 3) return reborn(atoi(words[2]), words + 3);
    if (!strcmp(what, "receive")) receive(words[2]);
    else if (!strcmp(what, "stay")) say("ready", getpid());
    else if (!strcmp(what, "steal")) steal(atoi(words[2]));
    for (int at = 2; at < count && !strcmp(what, "reach"); at++) found += reached(atoi(words[at]));
    for (int at = 2; at < count && !strcmp(what, "open"); at++) found += open(words[at], O_RDWR | O_CLOEXEC) >= 0;
    if (!strcmp(what, "reach") || !strcmp(what, "open")) say(found ? "done" : "impossible", found);
    char line[64];
    return fgets(line, sizeof line, stdin) ? 0 : 1;
}
