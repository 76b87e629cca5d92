/* What every section of the probe shares. */
#ifndef TRANCHE_PROBE_H
#define TRANCHE_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/driver.h"
#include "api/kernels.h"
#include "api/nvml.h"
#include "report.h"

#define MIB (1024.0 * 1024.0)
#define BLOCK (2ull << 20) /* the driver's block of device memory, as far as is known */

/* Set once by main: which device, whether to hurry, whether it is the simulated one. */
struct plan {
    int ordinal;
    bool quick, simulated;
    CUuuid uuid;
};
extern struct plan plan;

/* A section measures one thing; it runs in a process of its own. */
struct section {
    const char *name, *about;
    void (*run)(void);
    unsigned seconds; /* after that it is killed and reported */
};

void section_versions(void);
void section_memory(void);
void section_granularity(void);
void section_packing(void);
void section_capacity(void);
void section_context(void);
void section_code(void);
void section_pids(void);
void section_addresses(void);
void section_latency(void);
void section_marks(void);
void section_capture(void);
void section_sharing(void);
void section_slices(void);
void section_rates(void);
void section_pools(void);
void section_virtual(void);
void section_abilities(void);
void section_runtime(void);
void section_checkpoint(void);
void section_obstacles(void);
void section_growth(void);
void section_libraries(void);
void section_nulls(void);
void section_markers(void);
void section_turns(void);

/* Watches, with a kernel, for how long the current context runs and is away; names of rows begin with `what`. */
void watch_turns(const char *what, double seconds);

/* Ends the section with a row that says which call failed and how. */
_Noreturn void give_up(const char *call, CUresult result);

/* Calls the driver; an absent symbol or a failure ends the section. */
#define MUST(fn, ...) \
    do { \
        CUresult must_result = cu.fn ? cu.fn(__VA_ARGS__) : NOT_FOUND; \
        if (must_result != SUCCESS) \
            give_up(#fn, must_result); \
    } while (0)

#define MUST_HAVE(fn) \
    do { \
        if (!cu.fn) \
            return row_absent(#fn); \
    } while (0)

/* A device with a current context of ours, and NVML's view of it. */
struct bench {
    CUdevice device;
    CUcontext context;
    NvmlDevice witness; /* null when NVML is not there */
};
struct bench bench_open(void);
NvmlDevice witness_open(void);

CUfunction kernel_of(const char *ptx, const char *name);
void launch_u64(CUfunction kernel, CUstream stream, uint64_t argument);

uint64_t now_ns(void);
void pause_ms(double ms);
size_t memory_free(void); /* cuMemGetInfo's free */

/* Order statistics of up to a few thousand samples; sorts in place. */
struct spread { double median, p99, least, most; };
struct spread spread_of(double *samples, size_t count);

/* Forks a process that dies with its parent; 0 in the child. */
pid_t fork_tied(void);
/* Waits, killing it after `seconds`; true when it exited with 0. */
bool reap(pid_t child, double seconds);

#endif
