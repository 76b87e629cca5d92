/* CUDA_VISIBLE_DEVICES, which the driver reads once in each process: what a text shows, here and in a slice alike. */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_DEVICE = 100, NAME = 41, STRANGE = 255 };

/* How many devices a process sees that sets the variable to this before the driver begins. */
static int devices_seen(const char *text)
{
    int count = 0, status = 0;
    NEEDS(cuDeviceGetCount);
    pid_t child = fork();
    if (child == 0) {
        setenv("CUDA_VISIBLE_DEVICES", text, 1);
        CUresult begun = cu.cuInit(0);
        if (begun == NO_DEVICE)
            _exit(0);
        _exit(begun != SUCCESS || cu.cuDeviceGetCount(&count) != SUCCESS || count > 64 ? STRANGE : count);
    }
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status), "a process with \"%s\" crashed", text);
    EXPECT(WEXITSTATUS(status) != STRANGE, "with \"%s\" the driver answers neither devices nor that there are none", text);
    return WEXITSTATUS(status);
}

/* The name of the first device, as nvidia-smi would write it. */
static void first_name(char name[NAME])
{
    int ends[2], status = 0;
    NEEDS(cuDeviceGetUuid);
    EXPECT(pipe(ends) == 0, "no pipe");
    pid_t child = fork();
    if (child == 0) {
        CUuuid uuid;
        CUdevice device;
        if (cu.cuInit(0) != SUCCESS || cu.cuDeviceGet(&device, 0) != SUCCESS ||
            cu.cuDeviceGetUuid(&uuid, device) != SUCCESS)
            _exit(1);
        _exit(write(ends[1], uuid.bytes, sizeof uuid.bytes) != sizeof uuid.bytes);
    }
    unsigned char bytes[16];
    close(ends[1]);
    EXPECT(read(ends[0], bytes, sizeof bytes) == sizeof bytes, "the first device has no UUID");
    waitpid(child, &status, 0);
    int at = snprintf(name, NAME, "GPU-");
    for (int i = 0; i < 16; i++)
        at += snprintf(name + at, (size_t)(NAME - at), i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", bytes[i]);
}

static void shows(const char *text, int devices)
{
    int got = devices_seen(text);
    EXPECT(got == devices, "\"%s\" shows %d devices, not %d", text, got, devices);
}

static void an_index_shows_one_device(void) { shows("0", 1); }

static void a_uuid_shows_one_device_in_full_or_cut_short(void)
{
    char name[NAME];
    first_name(name);
    shows(name, 1);
    name[NAME - 2] = '\0';
    shows(name, 1);
}

static void an_invalid_entry_ends_the_list(void)
{
    shows("0,-1,0", 1);
    shows("0,63", 1);
    shows("-1,0", 0);
    shows("63", 0);
    shows("GPU-ffffffff-ffff-ffff-ffff-ffffffffffff", 0);
}

static void an_empty_list_shows_nothing(void) { shows("", 0); }

static void a_device_named_twice_hides_all(void) { shows("0,0", 0); }

/* Not documented, and the shim does as other programs found the driver to do: said, so that one can compare. */
static void what_the_documents_leave_open_is_answered(void)
{
    char mixed[NAME + 3], name[NAME];
    first_name(name);
    snprintf(mixed, sizeof mixed, "0,%s", name);
    const char *const texts[] = {"0th", " 0", "+0", "nothing", mixed};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        seen("\"%s\" shows %d", texts[i], devices_seen(texts[i]));
}

const struct check VISIBLE_CHECKS[] = {
    {"an_index_shows_one_device", an_index_shows_one_device},
    {"a_uuid_shows_one_device_in_full_or_cut_short", a_uuid_shows_one_device_in_full_or_cut_short},
    {"an_invalid_entry_ends_the_list", an_invalid_entry_ends_the_list},
    {"an_empty_list_shows_nothing", an_empty_list_shows_nothing},
    {"a_device_named_twice_hides_all", a_device_named_twice_hides_all},
    {"what_the_documents_leave_open_is_answered", what_the_documents_leave_open_is_answered},
    {NULL, NULL},
};
