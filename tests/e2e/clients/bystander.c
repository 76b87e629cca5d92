// A program that uses no GPU: it makes threads and a child, opens a library that is not there, and says so.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void *work(void *count) {
    ++*(int *)count;
    return NULL;
}

int main(int argc, char **argv) {
    int count = argc;
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, &count) || pthread_join(thread, NULL)) return 1;
    int status;
    pid_t child = fork();
    if (child == 0) _exit(7);
    if (child < 0 || waitpid(child, &status, 0) != child) return 2;
    void *nothing = dlopen("libnothing-of-the-kind.so.1", RTLD_NOW);
    printf("%s: %d, %d, %s\n", argv[0], count, WEXITSTATUS(status), nothing ? "opened" : "not there");
    return 0;
}
