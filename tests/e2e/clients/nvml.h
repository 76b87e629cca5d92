/* What NVML says to the tenant: one line of numbers for each question. Part of tenant.c. */


enum { INSUFFICIENT_SIZE = 7 };

struct nvml_memory { unsigned long long total, free, used; };
struct nvml_memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct nvml_process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
struct nvml_rates { unsigned gpu, memory; };

static int nvml_device(unsigned index, void **device) {
    return NVML("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **), index, device);
}

static void nvml_memory(FILE *out, unsigned index) {
    void *device;
    struct nvml_memory one;
    struct nvml_memory_v2 two = {.version = (unsigned)sizeof(two) | 2u << 24};
    int failed = nvml_device(index, &device);
    if (!failed) failed = NVML("nvmlDeviceGetMemoryInfo", (void *, void *), device, &one);
    if (!failed) failed = NVML("nvmlDeviceGetMemoryInfo_v2", (void *, void *), device, &two);
    if (failed) fprintf(out, "err %d\n", failed);
    else fprintf(out, "ok %llu %llu %llu %llu %llu %llu %llu\n", one.total, one.free, one.used, two.total,
                 two.reserved, two.free, two.used);
}

/* Pids and memory, by the three functions that list processes. */
static void nvml_processes(FILE *out, unsigned index) {
    void *device;
    unsigned count = 256;
    static struct nvml_process processes[256];
    int failed = nvml_device(index, &device);
    if (!failed)
        failed = NVML("nvmlDeviceGetComputeRunningProcesses_v3", (void *, unsigned *, void *), device, &count,
                      processes);
    if (failed) { fprintf(out, "err %d\n", failed); return; }
    fprintf(out, "ok");
    for (unsigned at = 0; at < count; at++) fprintf(out, " %u %llu", processes[at].pid, processes[at].used);
    fprintf(out, "\n");
}

struct nvml_detail { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; unsigned long long protected; };
struct nvml_details { unsigned version, mode, count; struct nvml_detail *rows; };

/* First asks how many there are, as programs do, then for them. */
static void nvml_details(FILE *out, unsigned index, unsigned mode, unsigned version) {
    void *device;
    struct nvml_detail rows[256];
    struct nvml_details list = {.version = version, .mode = mode};
    int failed = nvml_device(index, &device);
    if (!failed) failed = NVML("nvmlDeviceGetRunningProcessDetailList", (void *, void *), device, &list);
    if (failed == INSUFFICIENT_SIZE && list.count <= 256) {
        list.rows = rows;
        failed = NVML("nvmlDeviceGetRunningProcessDetailList", (void *, void *), device, &list);
    }
    if (failed) { fprintf(out, "err %d\n", failed); return; }
    fprintf(out, "ok");
    for (unsigned at = 0; at < list.count; at++) fprintf(out, " %u %llu", rows[at].pid, rows[at].used);
    fprintf(out, "\n");
}

struct nvml_sample { unsigned pid; unsigned long long time; unsigned percent[4]; };
struct nvml_long_sample { unsigned long long time; unsigned pid, percent[6]; };
struct nvml_long_samples { unsigned version, count; unsigned long long since; struct nvml_long_sample *rows; };

/* Pids and percent, by the two functions that say what each process does; how many they said there are first. */
static void nvml_samples(FILE *out, unsigned index) {
    void *device;
    struct nvml_sample rows[256];
    unsigned announced = 0, count = 256;
    int failed = nvml_device(index, &device);
    if (!failed)
        failed = NVML("nvmlDeviceGetProcessUtilization", (void *, void *, unsigned *, unsigned long long), device, NULL,
                      &announced, 0);
    if (failed == INSUFFICIENT_SIZE)
        failed = NVML("nvmlDeviceGetProcessUtilization", (void *, void *, unsigned *, unsigned long long), device, rows,
                      &count, 0);
    if (failed) { fprintf(out, "err %d\n", failed); return; }
    fprintf(out, "ok %u", announced);
    for (unsigned at = 0; at < count; at++) fprintf(out, " %u %u", rows[at].pid, rows[at].percent[0]);
    fprintf(out, "\n");
}

static void nvml_long_samples(FILE *out, unsigned index) {
    void *device;
    struct nvml_long_sample rows[256];
    struct nvml_long_samples list = {.version = 0x1000018};
    int failed = nvml_device(index, &device);
    if (!failed) failed = NVML("nvmlDeviceGetProcessesUtilizationInfo", (void *, void *), device, &list);
    unsigned announced = list.count;
    if (failed == INSUFFICIENT_SIZE) {
        list.count = 256;
        list.rows = rows;
        failed = NVML("nvmlDeviceGetProcessesUtilizationInfo", (void *, void *), device, &list);
    }
    if (failed) { fprintf(out, "err %d\n", failed); return; }
    fprintf(out, "ok %u", announced);
    for (unsigned at = 0; at < list.count; at++) fprintf(out, " %u %u", rows[at].pid, rows[at].percent[0]);
    fprintf(out, "\n");
}

struct nvml_accounting { unsigned gpu, memory; unsigned long long most, time, start; unsigned running, reserved[5]; };

/* Of each process with an account: its pid and the most it held. */
static void nvml_accounts(FILE *out, unsigned index) {
    void *device;
    unsigned count = 256, pids[256];
    int failed = nvml_device(index, &device);
    if (!failed) failed = NVML("nvmlDeviceGetAccountingPids", (void *, unsigned *, unsigned *), device, &count, pids);
    if (failed) { fprintf(out, "err %d\n", failed); return; }
    fprintf(out, "ok");
    for (unsigned at = 0; at < count; at++) {
        struct nvml_accounting account = {0};
        failed = NVML("nvmlDeviceGetAccountingStats", (void *, unsigned, void *), device, pids[at], &account);
        fprintf(out, " %u %llu", pids[at], failed ? 0 : account.most);
    }
    fprintf(out, "\n");
}

/* What NVML answers about one process: its account, and its name. */
static void nvml_about(FILE *out, unsigned index, unsigned pid) {
    void *device;
    char name[4096];
    struct nvml_accounting account;
    int failed = nvml_device(index, &device);
    if (failed) { fprintf(out, "err %d\n", failed); return; }
    fprintf(out, "ok %d", NVML("nvmlDeviceGetAccountingStats", (void *, unsigned, void *), device, pid, &account));
    fprintf(out, " %d\n", NVML("nvmlSystemGetProcessName", (unsigned, char *, unsigned), pid, name, sizeof name));
}

static void nvml_uuid(FILE *out, unsigned index) {
    void *device;
    char name[96];
    int failed = nvml_device(index, &device);
    if (!failed) failed = NVML("nvmlDeviceGetUUID", (void *, char *, unsigned), device, name, sizeof name);
    if (failed) fprintf(out, "err %d\n", failed);
    else fprintf(out, "ok %s\n", name);
}

/* Indices of the GPUs that share a switch or a socket or the system with this one, then of those at processor 0. */
static void nvml_near(FILE *out, unsigned index) {
    void *device, *near[64];
    int failed = nvml_device(index, &device);
    fprintf(out, failed ? "err %d\n" : "ok", failed);
    for (unsigned level = 10; !failed && level <= 60; level += 10) {
        unsigned count = level == 60 ? 0 : 64, at_all = 0;
        if (level < 60)
            failed = NVML("nvmlDeviceGetTopologyNearestGpus", (void *, unsigned, unsigned *, void **), device, level,
                          &count, near);
        else if (!(failed = NVML("nvmlSystemGetTopologyGpuSet", (unsigned, unsigned *, void **), 0, &at_all, NULL)))
            failed = (count = at_all) ? NVML("nvmlSystemGetTopologyGpuSet", (unsigned, unsigned *, void **), 0, &count, near) : 0;
        for (unsigned at = 0; !failed && at < count; at++) {
            unsigned found = 99;
            NVML("nvmlDeviceGetIndex", (void *, unsigned *), near[at], &found);
            fprintf(out, " %u", found);
        }
    }
    if (!failed) fprintf(out, "\n");
}

static void nvml_utilization(FILE *out, unsigned index) {
    void *device;
    struct nvml_rates rates;
    int failed = nvml_device(index, &device);
    if (!failed) failed = NVML("nvmlDeviceGetUtilizationRates", (void *, void *), device, &rates);
    if (failed) fprintf(out, "err %d\n", failed);
    else fprintf(out, "ok %u %u\n", rates.gpu, rates.memory);
}

/* Obeys a line about NVML; says whether it was one. */
static int obey_about_nvml(FILE *out, const char *line) {
    unsigned a = 0, b = 0, c = 0;
    if (sscanf(line, "nvmlmemory %u", &a) == 1) nvml_memory(out, a);
    else if (sscanf(line, "nvmlutilization %u", &a) == 1) nvml_utilization(out, a);
    else if (sscanf(line, "nvmlprocesses %u", &a) == 1) nvml_processes(out, a);
    else if (sscanf(line, "nvmldetails %u %u %x", &a, &b, &c) == 3) nvml_details(out, a, b, c);
    else if (sscanf(line, "nvmlsamples %u", &a) == 1) nvml_samples(out, a);
    else if (sscanf(line, "nvmllongsamples %u", &a) == 1) nvml_long_samples(out, a);
    else if (sscanf(line, "nvmlaccounts %u", &a) == 1) nvml_accounts(out, a);
    else if (sscanf(line, "nvmlabout %u %u", &a, &b) == 2) nvml_about(out, a, b);
    else if (sscanf(line, "nvmluuid %u", &a) == 1) nvml_uuid(out, a);
    else if (sscanf(line, "nvmlnear %u", &a) == 1) nvml_near(out, a);
    else return 0;
    return 1;
}
