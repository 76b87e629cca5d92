/* Section addresses: do dlsym and cuGetProcAddress hand out the same functions? */
#include "probe.h"

#include <dlfcn.h>
#include <string.h>

/* The base names a governor of memory and launches has to own. */
static const char *const FAMILIES[] = {
    "cuGetProcAddress", "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceTotalMem", "cuMemGetInfo",
    "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset", "cuCtxCreate",
    "cuCtxDestroy", "cuCtxSetLimit", "cuMemAlloc", "cuMemAllocPitch", "cuMemAllocManaged", "cuMemFree",
    "cuMemAllocHost", "cuMemHostAlloc", "cuMemHostRegister", "cuMemAllocAsync", "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync", "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolTrimTo", "cuMemPoolSetAttribute",
    "cuMemPoolImportPointer", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap",
    "cuMemImportFromShareableHandle", "cuMemRetainAllocationHandle", "cuMulticastCreate", "cuArrayCreate",
    "cuArray3DCreate", "cuArrayDestroy", "cuMipmappedArrayCreate", "cuMipmappedArrayDestroy",
    "cuIpcOpenMemHandle", "cuIpcCloseMemHandle", "cuImportExternalMemory", "cuModuleLoadData",
    "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuLibraryLoadData", "cuLinkComplete", "cuGraphAddMemAllocNode",
    "cuGraphAddNode", "cuGraphInstantiate", "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams",
    "cuGraphLaunch", "cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuStreamBeginCapture",
    "cuStreamEndCapture", "cuEventRecord", "cuEventQuery", "cuStreamWriteValue32", "cuStreamWriteValue64",
    "cuStreamSynchronize", "cuCtxSynchronize",
};
static const char *const SUFFIXES[] = {"", "_v2", "_v3", "_v4", "_ptsz", "_ptds", "_v2_ptsz", "_v2_ptds"};
static const int VERSIONS[] = {2000, 3020, 4000, 6050, 10010, 11010, 11070, 12000, 12050, 13000};

enum { FAMILY_COUNT = sizeof FAMILIES / sizeof *FAMILIES, SUFFIX_COUNT = sizeof SUFFIXES / sizeof *SUFFIXES,
       VERSION_COUNT = sizeof VERSIONS / sizeof *VERSIONS };

/* The suffix of the export at this address, or null when no export of the family is there. */
static const char *export_at(const char *base, const void *address)
{
    char name[96];
    for (int s = 0; s < SUFFIX_COUNT; s++) {
        snprintf(name, sizeof name, "%s%s", base, SUFFIXES[s]);
        if (dlsym(cu.handle, name) == address)
            return SUFFIXES[s];
    }
    return NULL;
}

static void *resolve(const char *base, int version, uint64_t flags)
{
    void *address = NULL;
    int status = 0;
    if (cu.cuGetProcAddress_v2)
        return cu.cuGetProcAddress_v2(base, &address, version, flags, &status) == SUCCESS ? address : NULL;
    return cu.cuGetProcAddress && cu.cuGetProcAddress(base, &address, version, flags) == SUCCESS ? address : NULL;
}

struct tally { int equal, different, unknown; };

/* The variants one kind of stream gets as the version rises: "plain _v2", or "differs". */
static bool list_variants(const char *base, uint64_t flags, char *list, size_t room, struct tally *tally)
{
    const void *last = NULL;
    list[0] = '\0';
    for (int v = 0; v < VERSION_COUNT; v++) {
        void *address = resolve(base, VERSIONS[v], flags);
        if (!address || address == last)
            continue;
        last = address;
        const char *suffix = export_at(base, address);
        ++*(suffix ? &tally->equal : &tally->different);
        size_t used = strlen(list);
        snprintf(list + used, room - used, "%s%s", used ? " " : "",
                 !suffix ? "differs" : *suffix ? suffix : "plain");
    }
    return last != NULL;
}

static void compare(const char *base, struct tally *tally)
{
    char usual[96], per_thread[96];
    bool any = list_variants(base, 0, usual, sizeof usual, tally);
    any |= list_variants(base, 2, per_thread, sizeof per_thread, tally);
    tally->unknown += !any;
    if (!any)
        row_text(base, "not resolved", " ");
    else if (!strcmp(usual, per_thread))
        row_text(base, usual, " ");
    else
        row_text(base, usual, "per-thread stream: %s", per_thread);
}

void section_addresses(void)
{
    struct tally tally = {0};
    if (driver_open() != 0)
        give_up("dlopen libcuda.so.1", NOT_FOUND);
    MUST(cuInit, 0);
    if (!cu.cuGetProcAddress_v2 && !cu.cuGetProcAddress)
        return row_absent("cuGetProcAddress");
    for (int f = 0; f < FAMILY_COUNT; f++)
        compare(FAMILIES[f], &tally);
    row_number("addresses_equal_to_an_export", tally.equal, "", "cuGetProcAddress gives what dlsym gives");
    row_number("addresses_unlike_any_export", tally.different, "", "a hook by address must know these too");
    row_number("families_not_resolved", tally.unknown, "", " ");
}
