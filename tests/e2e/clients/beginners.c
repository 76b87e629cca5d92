/* Threads that all begin to use the driver at once, while another changes variables that are there: afterwards the
 * environment must be what the program has made it, and the driver must have found what it said before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BEGINNERS = 8, VARIABLES = 64, ROUNDS = 50 };
static int (*begin)(unsigned);
static atomic_int failures, done;

static void *beginner(void *unused) {
    for (int round = 0; round < ROUNDS; round++)
        if (begin(0)) failures++;
    done++;
    return unused;
}

static void change(int number, const char *text) {
    char name[32];
    snprintf(name, sizeof name, "CHANGED_%d", number);
    setenv(name, text, 1);
}

static void *changer(void *unused) {
    for (int at = 0; done < BEGINNERS || at < VARIABLES; at++) change(at % VARIABLES, "last");
    return unused;
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    *(void **)&begin = dlsym(driver, "cuInit");
    int (*count_of)(int *) = (int (*)(int *))dlsym(driver, "cuDeviceGetCount");
    int (*uuid_of)(unsigned char *, int) = (int (*)(unsigned char *, int))dlsym(driver, "cuDeviceGetUuid");
    for (int at = 0; at < VARIABLES; at++) change(at, "first");
    pthread_t threads[BEGINNERS + 1];
    pthread_create(&threads[BEGINNERS], NULL, changer, NULL);
    for (int at = 0; at < BEGINNERS; at++) pthread_create(&threads[at], NULL, beginner, NULL);
    for (int at = 0; at <= BEGINNERS; at++) pthread_join(threads[at], NULL);
    int count = 0, variables = 0;
    unsigned char uuid[16] = {0};
    if (failures || count_of(&count) || uuid_of(uuid, 0)) return 3;
    for (char **entry = environ; *entry; entry++) variables += !strncmp(*entry, "CHANGED_", 8) && strstr(*entry, "=last");
    printf("%d device ", count);
    for (int at = 0; at < 16; at++) printf("%02x", uuid[at]);
    printf(", visible %s, %d variables\n", getenv("CUDA_VISIBLE_DEVICES"), variables);
    return 0;
}
