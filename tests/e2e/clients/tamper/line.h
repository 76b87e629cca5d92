/* Attempts on the daemon's socket. */

static int connected_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && connect(fd, (void *)&address, sizeof address) == 0 ? fd : -1;
}

static int connected(void) { return connected_to(detail); }

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

/* The greeting of another process, by whose credentials it is sent; DETAIL is a socket and that process. */
static void credentials(void) {
    char path[128];
    int pid, on = 1;
    if (sscanf(detail, "%127s %d", path, &pid) != 2) printf("failed 0 %s\n", detail), exit(1);
    struct ucred forged = {.pid = pid, .uid = getuid(), .gid = getgid()};
    uint64_t frame[8] = {1, 4};
    struct iovec part = {frame, sizeof frame};
    char room[CMSG_SPACE(sizeof forged)] = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof forged), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS};
    memcpy(CMSG_DATA(header), &forged, sizeof forged);
    int fd = connected_to(path);
    setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    /* Who may not say that he is somebody else says what he may. */
    if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0 && write(fd, frame, sizeof frame) < 0) say("impossible", errno);
    else say(read(fd, frame, sizeof frame) != sizeof frame || frame[0] == 2 ? "impossible" : "done", (long)frame[0]);
}

/* Its line to the daemon, among its descriptors. */
static int own_line(void) {
    struct sockaddr_un address;
    for (int fd = 3; fd < 1024; fd++) {
        socklen_t length = sizeof address;
        if (getpeername(fd, (void *)&address, &length) == 0 && strstr(address.sun_path, "/attach.")) return fd;
    }
    printf("failed 0 it has no line\n");
    exit(1);
}

/* Gives its line and its pages to whoever listens at DETAIL. */
static void hand_on(void) {
    char path[128];
    struct mapping pages = usage();
    snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (long)pages.from, (long)pages.from + (long)pages.length);
    int rights[2] = {own_line(), open(path, O_RDWR | O_CLOEXEC)};
    struct iovec part = {"x", 1};
    char room[CMSG_SPACE(sizeof rights)] = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof rights), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(header), rights, sizeof rights);
    say(sendmsg(connected(), &message, MSG_NOSIGNAL) == 1 ? "done" : "failed", errno);
}

/* A crowd that fills the daemon's descriptors, each with as many lines as it gets. */
static void crowd(void) {
    long children = 0;
    for (int turn = 0; turn < 150; turn++) {
        pid_t child = fork();
        if (child == 0) {
            for (int line = 0; line < 8; line++) connected();
            pause();
        }
        children += child > 0;
    }
    usleep(1000000);
    say("done", children);
}

/* No descriptor is left to it. */
static void descriptors_used_up(void) {
    while (dup(0) >= 0) continue;
    say("done", allocate(&governed, GIB));
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
