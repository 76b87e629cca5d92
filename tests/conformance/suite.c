/* conformance: driver behaviour that Tranche relies on and must preserve.
 *
 * The same checks pass on a real GPU, on the simulated one, and inside a slice of either;
 * what is allowed to differ in a slice stands in differences.c and must really differ.
 * Lines are `ok NAME`, `not ok NAME - REASON`, `skip NAME - REASON`, and `# seen NAME: ...`. */
#include "suite.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HOLDS = 0, FAILS = 10, SKIPS = 11, SECONDS_A_CHECK = 20, TEXT = 400 };

static int ordinal, reason_pipe;
static long long slack = 2 * MIB;

static void say(char kind, const char *format, va_list args)
{
    char text[TEXT] = {kind};
    vsnprintf(text + 1, sizeof text - 1, format, args);
    if (write(reason_pipe, text, sizeof text) != sizeof text)
        _exit(FAILS);
}

void fails(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say('!', format, args);
    _exit(FAILS);
}

void seen(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say('#', format, args);
    va_end(args);
}

static void reason(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say('!', format, args);
    va_end(args);
}

void skips(const char *why)
{
    reason("%s", why);
    _exit(SKIPS);
}

CUdevice open_device(void)
{
    CUdevice device;
    WORKS(cuInit, 0);
    WORKS(cuDeviceGet, &device, ordinal);
    return device;
}

CUcontext open_context(void)
{
    CUcontext context;
    WORKS(cuDevicePrimaryCtxRetain, &context, open_device());
    WORKS(cuCtxSetCurrent, context);
    return context;
}

NvmlDevice open_witness(void)
{
    CUuuid uuid;
    CUdevice device = open_device();
    CUresult (*ask)(CUuuid *, CUdevice) = cu.cuDeviceGetUuid_v2 ? cu.cuDeviceGetUuid_v2 : cu.cuDeviceGetUuid;
    EXPECT(ask && ask(&uuid, device) == SUCCESS, "the device has no UUID");
    NvmlResult opened = nvml_open();
    if (opened == NVML_ABSENT)
        skips("no NVML here");
    EXPECT(opened == NVML_OK, "nvmlInit_v2 answered %d", opened);
    NvmlDevice witness = nvml_device(uuid.bytes);
    EXPECT(witness, "NVML knows no device with the driver's UUID");
    return witness;
}

CUfunction open_spin(void)
{
    CUmodule module;
    CUfunction kernel;
    WORKS(cuModuleLoadData, &module, SPIN_PTX);
    WORKS(cuModuleGetFunction, &kernel, module, "spin_ns");
    return kernel;
}

void spin(CUfunction kernel, CUstream stream, uint64_t ns)
{
    void *params[] = {&ns};
    WORKS(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

size_t bytes_free(void)
{
    size_t left, total;
    WORKS(cuMemGetInfo_v2, &left, &total);
    return left;
}

void comes_back(size_t before)
{
    long long held = (long long)before - (long long)bytes_free();
    EXPECT(held <= slack && -held <= slack, "%lld bytes are still held", held);
}

static void rest_one_ms(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }

bool within_ms(int ms, bool (*condition)(void *), void *with)
{
    for (int i = 0; i < ms; i++, rest_one_ms())
        if (condition(with))
            return true;
    return condition(with);
}

/* The outcome of one check, with the reason it gave. */
static int outcome_of(const struct check *check, char *reason)
{
    int ends[2], status = 0;
    char text[TEXT];
    snprintf(reason, TEXT, "it gave no reason");
    if (pipe(ends) != 0)
        return FAILS;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        reason_pipe = ends[1];
        alarm(SECONDS_A_CHECK);
        EXPECT(driver_open() == 0, "libcuda.so.1 cannot be opened");
        check->run();
        _exit(HOLDS);
    }
    close(ends[1]);
    while (read(ends[0], text, sizeof text) == sizeof text) {
        if (text[0] == '#')
            printf("# seen %s: %s\n", check->name, text + 1);
        else
            memcpy(reason, text + 1, TEXT - 1);
    }
    close(ends[0]);
    waitpid(child, &status, 0);
    kill(-child, SIGKILL);
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    snprintf(reason, TEXT, "it ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return FAILS;
}

/* What NVML says is used on the slice's GPU, asked by a process that makes no context; -1 unknown. */
static int64_t used_in_slice(void)
{
    int ends[2];
    int64_t used = -1;
    if (pipe(ends) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        NvmlDevice witness = NULL;
        alarm(SECONDS_A_CHECK);
        if (nvml_open() == NVML_OK && nv.nvmlDeviceGetHandleByIndex_v2(0, &witness) == NVML_OK)
            used = (int64_t)nvml_used(witness);
        _exit(write(ends[1], &used, sizeof used) != sizeof used);
    }
    close(ends[1]);
    if (read(ends[0], &used, sizeof used) != sizeof used)
        used = -1;
    close(ends[0]);
    waitpid(child, NULL, 0);
    return used;
}

/* A dead process's memory is back in the slice a moment after its parent knows of its end: what
 * was used before the first check must be used again before the next. */
static bool settles(int64_t at_rest)
{
    for (int i = 0; i < 3000; i++, rest_one_ms())
        if (used_in_slice() <= at_rest)
            return true;
    return false;
}

static const char *difference_of(const char *name)
{
    for (const struct difference *d = DIFFERENCES; d->name; d++)
        if (!strcmp(d->name, name))
            return d->why;
    return NULL;
}

struct tally { int passed, failed, skipped; };

/* `at_rest`: what the slice uses between checks; null where there is no slice. */
static void run_check(const struct check *check, const int64_t *at_rest, struct tally *tally, FILE *json)
{
    char reason[TEXT];
    const char *verdict, *difference = at_rest ? difference_of(check->name) : NULL;
    int outcome = outcome_of(check, reason);
    if (at_rest && !settles(*at_rest)) {
        outcome = FAILS;
        snprintf(reason, sizeof reason, "three seconds after it ended the slice uses %lld bytes, not %lld",
                 (long long)used_in_slice(), (long long)*at_rest);
        difference = NULL;
    }
    if (difference && outcome == FAILS) {
        outcome = HOLDS;
        snprintf(reason, sizeof reason, "differs in a slice: %s", difference);
    } else if (difference && outcome == HOLDS) {
        outcome = FAILS;
        snprintf(reason, sizeof reason, "declared to differ in a slice (%s), and did not", difference);
    } else if (outcome == HOLDS) {
        reason[0] = '\0';
    }
    switch (outcome) {
    case HOLDS: verdict = "ok"; tally->passed++; break;
    case SKIPS: verdict = "skip"; tally->skipped++; break;
    default: verdict = "not ok"; tally->failed++;
    }
    printf("%s %s%s%s\n", verdict, check->name, *reason ? " - " : "", reason);
    for (char *c = reason; *c; c++)
        if (*c == '"' || *c == '\\' || *c < ' ')
            *c = '\'';
    fprintf(json, "%s\n  {\"name\": \"%s\", \"verdict\": \"%s\", \"reason\": \"%s\"}",
            tally->passed + tally->failed + tally->skipped > 1 ? "," : "", check->name, verdict, reason);
}

static int usage(FILE *out)
{
    fprintf(out, "usage: conformance [--in-slice] [--exact] [--device ORDINAL] [--only NAME] [--json FILE]\n");
    return out == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"in-slice", no_argument, NULL, 's'},   {"exact", no_argument, NULL, 'e'},
        {"device", required_argument, NULL, 'd'}, {"only", required_argument, NULL, 'o'},
        {"json", required_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0},
    };
    static const struct check *const GROUPS[] = {MEMORY_CHECKS, CONTEXT_CHECKS, POOL_CHECKS, VIRTUAL_CHECKS,
                                                 STREAM_CHECKS, SYMBOL_CHECKS,  NVML_CHECKS,  ABUSE_CHECKS,
                                                 VISIBLE_CHECKS};
    struct tally tally = {0};
    bool in_slice = false;
    const char *only = NULL, *path = "/dev/null";
    for (int option; (option = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1;) {
        switch (option) {
        case 's': in_slice = true; break;
        case 'e': slack = 0; break;
        case 'd': ordinal = atoi(optarg); break;
        case 'o': only = optarg; break;
        case 'j': path = optarg; break;
        case 'h': return usage(stdout);
        default: return usage(stderr);
        }
    }
    FILE *json = fopen(path, "w");
    if (!json) {
        fprintf(stderr, "conformance: cannot write %s: %s\n", path, strerror(errno));
        return 2;
    }
    int64_t at_rest = in_slice ? used_in_slice() : 0;
    fprintf(json, "[");
    for (size_t g = 0; g < sizeof GROUPS / sizeof *GROUPS; g++)
        for (const struct check *check = GROUPS[g]; check->name; check++)
            if (!only || !strcmp(only, check->name))
                run_check(check, in_slice ? &at_rest : NULL, &tally, json);
    fprintf(json, "\n]\n");
    fclose(json);
    printf("%d passed, %d failed, %d skipped\n", tally.passed, tally.failed, tally.skipped);
    return tally.failed || !tally.passed;
}
