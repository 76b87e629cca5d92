/* How functions are found: dlsym and cuGetProcAddress in its versions. */
#define _GNU_SOURCE /* dlvsym */
#include "suite.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

enum { FOUND = 0, UNKNOWN_NAME = 1, VERSION_TOO_LOW = 2, PER_THREAD_STREAM = 2 };

static void *ask(const char *name, int version, uint64_t flags, int *status)
{
    void *address = (void *)0xabc;
    WORKS(cuGetProcAddress_v2, name, &address, version, flags, status);
    return address;
}

static void the_driver_answers_before_init(void)
{
    int status = -1;
    EXPECT(ask("cuInit", 2000, 0, &status) && status == FOUND, "cuInit is not found: status %d", status);
}

static void an_unknown_name_is_no_error(void)
{
    int status = -1;
    void *address = (void *)0xabc;
    open_device();
    EXPECT(ask("cuNoSuchThing", 12000, 0, &status) == NULL, "an unknown name has an address");
    EXPECT(status == UNKNOWN_NAME, "status %d", status);
    EXPECT(ask("cuMemAlloc_v2", 12000, 0, &status) == NULL, "a suffixed name has an address");
    ANSWERS(NOT_FOUND, cuGetProcAddress, "cuNoSuchThing", &address, 12000, 0);
}

static void a_version_before_the_function_is_said(void)
{
    int status = -1;
    open_device();
    NEEDS(cuMemAllocAsync);
    EXPECT(ask("cuMemAllocAsync", 5000, 0, &status) == NULL, "cuMemAllocAsync is found for CUDA 5.0");
    EXPECT(status == VERSION_TOO_LOW, "status %d", status);
}

static void versions_choose_the_variant(void)
{
    int status;
    open_device();
    void *new_form = ask("cuMemAlloc", 3020, 0, &status), *newest = ask("cuMemAlloc", 12000, 0, &status);
    EXPECT(new_form == newest, "cuMemAlloc differs between 3.2 and 12.0");
    EXPECT(new_form == dlsym(cu.handle, "cuMemAlloc_v2"), "cuMemAlloc of 3.2 is not the export cuMemAlloc_v2");
    EXPECT(ask("cuMemAlloc", 2000, 0, &status) != new_form, "cuMemAlloc of 2.0 has the form of 3.2");
}

static void per_thread_flags_choose_the_variant(void)
{
    int status;
    open_device();
    void *plain = ask("cuLaunchKernel", 12000, 0, &status);
    void *per_thread = ask("cuLaunchKernel", 12000, PER_THREAD_STREAM, &status);
    EXPECT(plain && per_thread && plain != per_thread, "cuLaunchKernel has one form for both kinds of stream");
    EXPECT(plain == dlsym(cu.handle, "cuLaunchKernel"), "cuLaunchKernel is not its export");
    EXPECT(per_thread == dlsym(cu.handle, "cuLaunchKernel_ptsz"), "cuLaunchKernel_ptsz is not its export");
}

static void unknown_flags_are_invalid(void)
{
    int status;
    void *address = (void *)0xabc;
    open_device();
    ANSWERS(INVALID_VALUE, cuGetProcAddress_v2, "cuInit", &address, 12000, 0x80, &status);
}

static void the_look_up_finds_itself(void)
{
    int status = -1;
    void *address = NULL;
    open_device();
    CUresult (*inner)(const char *, void **, int, uint64_t, int *);
    *(void **)&inner = ask("cuGetProcAddress", 12000, 0, &status);
    EXPECT(inner, "cuGetProcAddress is not found through itself");
    EXPECT(inner("cuMemFree", &address, 12000, 0, &status) == SUCCESS && address, "the inner look-up finds nothing");
    EXPECT(address == ask("cuMemFree", 12000, 0, &status), "the inner look-up has other addresses");
}

static void memory_of_one_road_is_freed_by_the_other(void)
{
    int status;
    CUdeviceptr at;
    CUresult (*alloc)(CUdeviceptr *, size_t), (*release)(CUdeviceptr);
    open_context();
    *(void **)&alloc = ask("cuMemAlloc", 12000, 0, &status);
    *(void **)&release = ask("cuMemFree", 12000, 0, &status);
    EXPECT(alloc && release, "cuMemAlloc and cuMemFree are not both found");
    size_t before = bytes_free();
    EXPECT(alloc(&at, 64 * MIB) == SUCCESS, "the looked-up cuMemAlloc failed");
    WORKS(cuMemFree_v2, at);
    WORKS(cuMemAlloc_v2, &at, 64 * MIB);
    EXPECT(release(at) == SUCCESS, "the looked-up cuMemFree failed");
    comes_back(before);
}

static void refusals_are_the_same_on_every_road(void)
{
    int status;
    CUdeviceptr at;
    CUresult (*alloc)(CUdeviceptr *, size_t);
    open_context();
    size_t asked = bytes_free() + 64 * MIB;
    ANSWERS(OUT_OF_MEMORY, cuMemAlloc_v2, &at, asked);
    *(void **)&alloc = ask("cuMemAlloc", 12000, 0, &status);
    EXPECT(alloc(&at, asked) == OUT_OF_MEMORY, "refused by dlsym's cuMemAlloc, allowed by the looked-up one");
    *(void **)&alloc = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    EXPECT(!alloc || alloc(&at, asked) == OUT_OF_MEMORY, "allowed by the global cuMemAlloc_v2");
    *(void **)&alloc = dlvsym(cu.handle, "cuMemAlloc_v2", "NO_SUCH_VERSION");
    EXPECT(!alloc || alloc(&at, asked) == OUT_OF_MEMORY, "allowed by dlvsym's cuMemAlloc_v2");
}

static void absent_symbols_stay_absent(void)
{
    EXPECT(!dlsym(cu.handle, "cuNoSuchThing"), "dlsym finds a function that does not exist");
    EXPECT(dlerror() != NULL, "dlerror is silent after a failed look-up");
}

static void errors_have_their_names(void)
{
    const char *text = NULL;
    open_device();
    WORKS(cuGetErrorName, OUT_OF_MEMORY, &text);
    EXPECT(text && !strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"), "error 2 is called %s", text ? text : "nothing");
    ANSWERS(INVALID_VALUE, cuGetErrorName, 12345, &text);
}

const struct check SYMBOL_CHECKS[] = {
    {"the_driver_answers_before_init", the_driver_answers_before_init},
    {"an_unknown_name_is_no_error", an_unknown_name_is_no_error},
    {"a_version_before_the_function_is_said", a_version_before_the_function_is_said},
    {"versions_choose_the_variant", versions_choose_the_variant},
    {"per_thread_flags_choose_the_variant", per_thread_flags_choose_the_variant},
    {"unknown_flags_are_invalid", unknown_flags_are_invalid},
    {"the_look_up_finds_itself", the_look_up_finds_itself},
    {"memory_of_one_road_is_freed_by_the_other", memory_of_one_road_is_freed_by_the_other},
    {"refusals_are_the_same_on_every_road", refusals_are_the_same_on_every_road},
    {"absent_symbols_stay_absent", absent_symbols_stay_absent},
    {"errors_have_their_names", errors_have_their_names},
    {NULL, NULL},
};
