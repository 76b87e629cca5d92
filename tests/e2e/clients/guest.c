/* A program that uses no GPU and looks closely at itself: what it prints must not depend on what is preloaded. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    int own = dirfd(directory), count = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != own) count++;
    closedir(directory);
    printf("descriptors %d\n", count);
}

static void status(void) {
    static const char *const fields[] = {"Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "Seccomp", "NoNewPrivs"};
    FILE *file = fopen("/proc/self/status", "re");
    char line[512];
    while (fgets(line, sizeof line, file))
        for (size_t at = 0; at < sizeof fields / sizeof *fields; at++)
            if (!strncmp(line, fields[at], strlen(fields[at])) && line[strlen(fields[at])] == ':') fputs(line, stdout);
    fclose(file);
}

static __thread int own_number;

static void *count_up(void *most) {
    for (int at = 0; at < *(int *)most; at++) {
        own_number++;
        if (!dlsym(RTLD_DEFAULT, "puts")) own_number = -1000000;
    }
    return (void *)(long)own_number;
}

static void threads(void) {
    pthread_t all[8];
    int most = 1000;
    long sum = 0;
    for (int at = 0; at < 8; at++) pthread_create(&all[at], NULL, count_up, &most);
    for (int at = 0; at < 8; at++) {
        void *got;
        pthread_join(all[at], &got);
        sum += (long)got;
    }
    printf("threads counted to %ld\n", sum);
}

static void lookups(void) {
    size_t (*length)(const char *) = (size_t(*)(const char *))dlsym(RTLD_NEXT, "strlen");
    printf("next strlen %zu\n", length ? length("seven..") : 0);
    printf("puts is puts %d\n", dlsym(RTLD_DEFAULT, "puts") == (void *)puts);
    dlerror();
    void *missing = dlsym(RTLD_DEFAULT, "no_such_function_anywhere");
    printf("missing %d %s\n", missing == NULL, dlerror() ? "with a message" : "without a message");
    printf("versioned %d\n", dlvsym(RTLD_DEFAULT, "realpath", "GLIBC_2.3") != NULL);
    printf("wrong version %d\n", dlvsym(RTLD_DEFAULT, "realpath", "GLIBC_0.1") == NULL);
    void *maths = dlopen("libm.so.6", RTLD_NOW);
    double (*root)(double) = maths ? (double (*)(double))dlsym(maths, "sqrt") : NULL;
    printf("root of 49 is %.0f\n", root ? root(49) : -1.0);
    void *self = dlopen(NULL, RTLD_NOW);
    printf("no driver here %d %d\n", dlsym(self, "cuNoSuchCall") == NULL, dlsym(self, "nvmlNoSuchCall") == NULL);
    errno = 77;
    dlsym(RTLD_DEFAULT, "strlen");
    printf("errno %d\n", errno);
}

static void relatives(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(42);
    int how;
    waitpid(child, &how, 0);
    printf("the child said %d\n", WEXITSTATUS(how));
}

int main(void) {
    descriptors();
    status();
    lookups();
    threads();
    relatives();
    for (int fd = 3; fd < 256; fd++) close(fd);
    descriptors();
    return 9;
}
