/* Hostile connections: `siege ADDRESS KIND COUNT UID`.
 *
 * ADDRESS is the path of a Unix socket, or a port of 127.0.0.1. Runs as user and group UID, keeps COUNT connections of
 * its KIND until it is killed, and opens each anew that the other side closes:
 *   storm   one connection at a time, closed at once and opened again, as fast as it goes
 *   silent  connections on which nothing is written
 *   half    connections on which the first half of a request is written
 *   slow    connections on which a request is written byte by byte
 * Says "begun N" once N connections are open, or have been tried. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <signal.h>
#include <grp.h>

static const char *address;

static int opened(void) {
    if (address[0] == '/') {
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        snprintf(to.sun_path, sizeof to.sun_path, "%s", address);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct timeval patience = {.tv_usec = 200000};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (connect(fd, (void *)&to, sizeof to) == 0) return fd;
        close(fd);
        return -1;
    }
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(address)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    struct timeval patience = {.tv_usec = 200000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (void *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

/* The beginnings of a request of HTTP/1, and of HTTP/2's preface. */
static const char *beginning(void) {
    return strstr(address, "metrics") || address[0] != '/' ? "GET /metrics HTTP/1.1\r\nHost: a\r\nX: " : "PRI * HTTP/2.0\r\n\r\n";
}

int main(int count, char **arguments) {
    if (count != 5) return 2;
    address = arguments[1];
    const char *kind = arguments[2];
    int wanted = atoi(arguments[3]), uid = atoi(arguments[4]);
    struct rlimit files = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &files);
    if (getuid() == 0 && (setgroups(0, NULL) || setgid(uid) || setuid(uid))) return 3;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(kind, "storm")) {
        printf("begun 0\n");
        fflush(stdout);
        for (;;) {
            int fd = opened();
            if (fd >= 0) close(fd);
        }
    }
    struct pollfd *held = calloc(wanted, sizeof *held);
    size_t *written = calloc(wanted, sizeof *written);
    for (int at = 0; at < wanted; at++) held[at] = (struct pollfd){.fd = -1, .events = POLLIN | POLLRDHUP};
    for (int round = 0;; round++) {
        int open = 0;
        for (int at = 0; at < wanted; at++) {
            if (held[at].fd < 0) {
                held[at].fd = opened();
                written[at] = 0;
                if (held[at].fd >= 0 && !strcmp(kind, "half")) {
                    const char *text = beginning();
                    if (write(held[at].fd, text, strlen(text) / 2) < 0) errno = 0;
                }
            } else if (!strcmp(kind, "slow")) {
                const char *text = beginning();
                char byte = written[at] < strlen(text) ? text[written[at]] : 'x';
                if (send(held[at].fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) written[at]++;
            }
            open += held[at].fd >= 0;
        }
        if (round == 0) {
            printf("begun %d\n", open);
            fflush(stdout);
        }
        poll(held, wanted, 50);
        for (int at = 0; at < wanted; at++) {
            char waste[4096];
            if (held[at].fd < 0 || !held[at].revents) continue;
            ssize_t got = recv(held[at].fd, waste, sizeof waste, MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN)) close(held[at].fd), held[at].fd = -1;
        }
        usleep(10000);
    }
}
