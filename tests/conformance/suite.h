/* What every check of the suite shares.
 *
 * Law: a check runs in a process of its own and ends by falling off its end (it holds), by
 * EXPECT (it does not) or by SKIP. `seen` records what the driver answered where several
 * answers would be right: those lines must be the same bare and in a slice. */
#ifndef TRANCHE_CONFORMANCE_SUITE_H
#define TRANCHE_CONFORMANCE_SUITE_H

#include <stdbool.h>
#include <stdint.h>

#include "../gpu/api/driver.h"
#include "../gpu/api/kernels.h"
#include "../gpu/api/nvml.h"

#define MIB (1ull << 20)
#define FAR_TOO_MUCH (1ull << 50)

struct check {
    const char *name;
    void (*run)(void);
};
extern const struct check MEMORY_CHECKS[], CONTEXT_CHECKS[], POOL_CHECKS[], VIRTUAL_CHECKS[], STREAM_CHECKS[],
    SYMBOL_CHECKS[], NVML_CHECKS[], ABUSE_CHECKS[], VISIBLE_CHECKS[];

/* Checks that must answer otherwise inside a slice, and why; ends with a null name. */
struct difference {
    const char *name, *why;
};
extern const struct difference DIFFERENCES[];

_Noreturn void fails(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void skips(const char *why);
void seen(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define EXPECT(condition, ...) \
    do { \
        if (!(condition)) \
            fails(__VA_ARGS__); \
    } while (0)

/* Calls the driver and expects this result. */
#define ANSWERS(result, fn, ...) \
    do { \
        if (!cu.fn) \
            skips("the driver has no " #fn); \
        CUresult answers_got = cu.fn(__VA_ARGS__); \
        EXPECT(answers_got == (result), #fn " answered %d %s, not %d", answers_got, driver_error(answers_got), \
               (result)); \
    } while (0)
#define WORKS(fn, ...) ANSWERS(SUCCESS, fn, __VA_ARGS__)
#define NEEDS(fn) \
    do { \
        if (!cu.fn) \
            skips("the driver has no " #fn); \
    } while (0)

/* The device under test with its primary context current. */
CUdevice open_device(void);
CUcontext open_context(void);
NvmlDevice open_witness(void);
CUfunction open_spin(void);
void spin(CUfunction kernel, CUstream stream, uint64_t ns);
size_t bytes_free(void);

/* Expects cuMemGetInfo's free to be what it was: exactly with --exact, else to one block,
 * which a real driver may keep for its next small allocation. */
void comes_back(size_t before);

/* Whether `condition` comes true within `ms`, polled each millisecond. */
bool within_ms(int ms, bool (*condition)(void *), void *with);

#endif
