/* probe: what this GPU and its driver really do, in one table, in about two minutes.
 *
 * Law: it changes no setting, asks for plain allocations only, and every section runs in
 * a process of its own under an alarm, so that a section which crashes or hangs costs its
 * own rows and no others. The parent never touches the driver. */
#include "probe.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct plan plan;

static const struct section SECTIONS[] = {
    {"versions", "what is here", section_versions, 20},
    {"memory", "who counts which memory", section_memory, 20},
    {"granularity", "what one allocation moves", section_granularity, 30},
    {"packing", "where small allocations land", section_packing, 30},
    {"capacity", "how much can be handed out", section_capacity, 40},
    {"context", "what a context costs, and how late NVML knows", section_context, 40},
    {"code", "what modules, local memory and limits cost", section_code, 40},
    {"pids", "whom NVML names", section_pids, 20},
    {"addresses", "dlsym against cuGetProcAddress", section_addresses, 20},
    {"latency", "what calls take", section_latency, 60},
    {"marks", "what it costs to know that work is done", section_marks, 60},
    {"capture", "what is legal while a stream is captured", section_capture, 30},
    {"slices", "how contexts take turns", section_slices, 30},
    {"rates", "what NVML says of utilisation, and how late", section_rates, 30},
    {"pools", "stream-ordered and managed memory", section_pools, 30},
    {"virtual", "virtual memory and arrays", section_virtual, 30},
    {"abilities", "modes, MPS, checkpoint", section_abilities, 20},
    {"runtime", "what the CUDA runtime takes beside a bare context, and which process is charged", section_runtime, 30},
    {"checkpoint", "what a checkpoint of a process takes and gives back", section_checkpoint, 40},
    {"obstacles", "what happens where no checkpoint or restore is possible", section_obstacles, 60},
    {"growth", "by which step pools grow, and what they keep", section_growth, 20},
    {"libraries", "what a library takes in each context", section_libraries, 20},
    {"nulls", "what calls answer to null outputs and handles", section_nulls, 40},
    {"markers", "what marks cost in each context of a process", section_markers, 20},
    {"turns", "how contexts of one process take turns", section_turns, 20},
    {"sharing", "who gets the GPU's time", section_sharing, 60},
};
enum { SECTION_COUNT = sizeof SECTIONS / sizeof *SECTIONS, MAX_ROWS = 4096 };

static struct row rows[MAX_ROWS];

/* Reads rows until the section closes its pipe or its time is over; returns how many. */
static size_t collect(int pipe, struct row *into, size_t room, uint64_t until)
{
    size_t count = 0, filled = 0;
    while (count < room) {
        struct pollfd wait = {.fd = pipe, .events = POLLIN};
        int64_t left = (int64_t)(until - now_ns()) / 1000000;
        if (left <= 0 || poll(&wait, 1, (int)left) == 0)
            break;
        ssize_t got = read(pipe, (char *)&into[count] + filled, sizeof *into - filled);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        filled += (size_t)got;
        if (filled == sizeof *into) {
            print_row(&into[count++]);
            fflush(stdout);
            filled = 0;
        }
    }
    return count;
}

/* Ends the section's process group; "stuck" when even SIGKILL does not end it in ten seconds. */
static const char *conclude(pid_t child, bool in_time)
{
    static char text[40];
    int status = 0;
    if (!in_time)
        kill(-child, SIGKILL);
    for (int tries = 0; waitpid(child, &status, WNOHANG) == 0; tries++) {
        if (tries == 10000)
            return "stuck in the kernel";
        pause_ms(1);
    }
    kill(-child, SIGKILL); /* whatever it started */
    if (!in_time)
        return "timed out";
    if (WIFSIGNALED(status)) {
        snprintf(text, sizeof text, "crashed with signal %d", WTERMSIG(status));
        return text;
    }
    return WEXITSTATUS(status) == 0 ? "done" : "gave up";
}

static const char *run_section(const struct section *section, size_t *used, double *seconds)
{
    int ends[2];
    uint64_t from = now_ns(), until = from + (uint64_t)section->seconds * 1000000000u;
    printf("\n%s: %s\n", section->name, section->about);
    fflush(stdout);
    if (pipe(ends) != 0)
        return "no pipe";
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        close(ends[0]);
        report_pipe = ends[1];
        alarm(section->seconds + 5); /* should the parent be gone */
        section->run();
        _exit(0);
    }
    setpgid(child, child);
    close(ends[1]);
    *used += collect(ends[0], rows + *used, MAX_ROWS - *used, until);
    close(ends[0]);
    *seconds = (double)(now_ns() - from) / 1e9;
    const char *status = conclude(child, now_ns() < until);
    printf("  %s in %.1f s\n", status, *seconds);
    return status;
}

/* The device's UUID and whether it is simulated, asked in a process of its own. */
static bool look_at_device(void)
{
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    pid_t child = fork_tied();
    if (child == 0) {
        char version[96] = "";
        CUdevice device;
        alarm(30);
        if (driver_open() != 0 || cu.cuInit(0) != SUCCESS ||
            cu.cuDeviceGet(&device, plan.ordinal) != SUCCESS)
            _exit(1);
        (cu.cuDeviceGetUuid_v2 ? cu.cuDeviceGetUuid_v2 : cu.cuDeviceGetUuid)(&plan.uuid, device);
        if (nvml_open() == NVML_OK)
            nv.nvmlSystemGetNVMLVersion(version, sizeof version);
        plan.simulated = strstr(version, "-simulated") != NULL;
        _exit(write(ends[1], &plan, sizeof plan) != sizeof plan);
    }
    close(ends[1]);
    bool known = read(ends[0], &plan, sizeof plan) == sizeof plan;
    close(ends[0]);
    return reap(child, 35) && known;
}

static bool wanted(const char *only, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = only; at && (at = strstr(at, name)); at += length)
        if ((at == only || at[-1] == ',') && (at[length] == ',' || !at[length]))
            return true;
    return !only;
}

static int usage(FILE *out)
{
    fprintf(out, "usage: probe [--quick] [--device ORDINAL] [--only SECTION,...] [--within SECONDS] [--json FILE]\n"
                 "sections:");
    for (size_t i = 0; i < SECTION_COUNT; i++)
        fprintf(out, " %s", SECTIONS[i].name);
    fprintf(out, "\n");
    return out == stdout ? 0 : 2;
}

/* Sections that are not begun within `seconds` are left out, so that the whole ends in time. */
static int measure(FILE *json, const char *only, double seconds_left)
{
    uint64_t until = now_ns() + (uint64_t)(seconds_left * 1e9);
    size_t used = 0;
    int failures = 0;
    fprintf(json, "{\n  \"simulated\": %s,\n  \"sections\": [", plan.simulated ? "true" : "false");
    for (size_t i = 0, shown = 0; i < SECTION_COUNT; i++) {
        size_t first = used;
        double seconds = 0;
        if (!wanted(only, SECTIONS[i].name))
            continue;
        bool begun = now_ns() < until;
        const char *status = begun ? run_section(&SECTIONS[i], &used, &seconds) : "not begun";
        failures += begun && strcmp(status, "done") != 0;
        if (!begun)
            printf("\n%s: not begun, the time is over\n", SECTIONS[i].name);
        fprintf(json, "%s\n    {\"name\": \"%s\", \"status\": \"%s\", \"seconds\": %.2f, \"rows\": [",
                shown++ ? "," : "", SECTIONS[i].name, status, seconds);
        for (size_t r = first; r < used; r++)
            json_row(json, &rows[r], r == first);
        fprintf(json, "]}");
        fflush(json);
    }
    fprintf(json, "\n  ]\n}\n");
    return failures;
}

int main(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"quick", no_argument, NULL, 'q'},        {"device", required_argument, NULL, 'd'},
        {"only", required_argument, NULL, 'o'},   {"json", required_argument, NULL, 'j'},
        {"within", required_argument, NULL, 'w'}, {"help", no_argument, NULL, 'h'},
        {0},
    };
    const char *only = NULL, *path = "/dev/null";
    double within = 3600;
    for (int option; (option = getopt_long(argc, argv, "h", OPTIONS, NULL)) != -1;) {
        switch (option) {
        case 'q': plan.quick = true; break;
        case 'd': plan.ordinal = atoi(optarg); break;
        case 'o': only = optarg; break;
        case 'w': within = atof(optarg); break;
        case 'j': path = optarg; break;
        case 'h': return usage(stdout);
        default: return usage(stderr);
        }
    }
    if (!look_at_device()) {
        fprintf(stderr, "probe: no GPU at ordinal %d answers through libcuda.so.1\n", plan.ordinal);
        return 2;
    }
    FILE *json = fopen(path, "w");
    if (!json) {
        fprintf(stderr, "probe: cannot write %s: %s\n", path, strerror(errno));
        return 2;
    }
    if (plan.simulated)
        printf("SIMULATED GPU: these are the simulator's figures, not a GPU's.\n");
    int failures = measure(json, only, within);
    fclose(json);
    printf("\n%d section%s failed\n", failures, failures == 1 ? "" : "s");
    return failures ? 1 : 0;
}
