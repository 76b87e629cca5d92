/* The names linked.c is linked against, so that it builds where no driver is installed.
 * Its soname is the driver's: at run time the loader takes the real (or simulated) one. */
#define NAME(name) \
    int name(void); \
    int name(void) { return 999; }

NAME(cuInit)
NAME(cuDeviceGet)
NAME(cuDeviceGetCount)
NAME(cuDeviceGetName)
NAME(cuDeviceTotalMem_v2)
NAME(cuCtxCreate_v2)
NAME(cuCtxDestroy_v2)
NAME(cuMemGetInfo_v2)
NAME(cuMemAlloc_v2)
NAME(cuMemFree_v2)
