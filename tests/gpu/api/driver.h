/* The CUDA driver API as these tests use it: our own declarations, filled in by dlopen.
 *
 * Law: nothing here needs a CUDA toolkit or a driver to build, and a symbol that
 * the driver lacks is a null pointer, never a failure to start. */
#ifndef TRANCHE_TESTS_DRIVER_H
#define TRANCHE_TESTS_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemHandle;
typedef struct ctx_opaque *CUcontext;
typedef struct module_opaque *CUmodule;
typedef struct function_opaque *CUfunction;
typedef struct library_opaque *CUlibrary;
typedef struct kernel_opaque *CUkernel;
typedef struct stream_opaque *CUstream;
typedef struct event_opaque *CUevent;
typedef struct pool_opaque *CUpool;
typedef struct array_opaque *CUarray;
typedef struct graph_opaque *CUgraph;
typedef struct node_opaque *CUnode;
typedef struct exec_opaque *CUexec;

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500,
    NOT_READY = 600, NOT_SUPPORTED = 801,
};

enum {
    ATTR_SM_COUNT = 16, ATTR_COMPUTE_MODE = 20, ATTR_CC_MAJOR = 75, ATTR_CC_MINOR = 76,
    ATTR_MANAGED = 83, ATTR_PREEMPTION = 90, ATTR_MEM_OPS_V1 = 92, ATTR_VMM = 102,
    ATTR_FD_HANDLES = 103, ATTR_POOLS = 115, ATTR_MEM_OPS = 122, ATTR_MPS = 133,
};

enum { LIMIT_STACK = 0, LIMIT_PRINTF = 1, LIMIT_HEAP = 2 };
enum { STREAM_NON_BLOCKING = 1, EVENT_PLAIN = 0, EVENT_NO_TIMING = 2 };
enum { CAPTURE_GLOBAL = 0, CAPTURE_THREAD = 1, CAPTURE_RELAXED = 2 };
enum { POOL_RELEASE_THRESHOLD = 4, POOL_RESERVED = 5, POOL_USED = 7 };
enum { HOST_PORTABLE = 1, HOST_MAPPED = 2, MANAGED_GLOBAL = 1 };

typedef struct { unsigned char bytes[16]; } CUuuid;
typedef struct { int type, id; } CUlocation; /* type 1: a device */

typedef struct {
    int type, handle_types;
    CUlocation location;
    void *win32;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
} CUallocationProp;

typedef struct { CUlocation location; int flags; } CUaccess; /* flags 3: read and write */

typedef struct {
    int type, handle_types;
    CUlocation location;
    void *win32;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
} CUpoolProps;

typedef struct { size_t width, height; int format; unsigned channels; } CUarrayShape;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } CUarray3dShape;

typedef struct {
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    void **params, **extra;
    void *kernel;
    CUcontext context;
} CUkernelNode;

typedef struct {
    CUpoolProps pool;
    const CUaccess *access;
    size_t access_count, bytes;
    CUdeviceptr address;
} CUallocNode;

typedef struct { unsigned timeout_ms, reserved; uint64_t reserved_more[7]; } CUlockArgs;

/* One line per symbol: exported name, then its parameters. All return CUresult. */
#define DRIVER_SYMBOLS(F) \
    F(cuInit, (unsigned)) \
    F(cuDriverGetVersion, (int *)) \
    F(cuGetErrorName, (CUresult, const char **)) \
    F(cuGetErrorString, (CUresult, const char **)) \
    F(cuGetProcAddress, (const char *, void **, int, uint64_t)) \
    F(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *)) \
    F(cuDeviceGet, (CUdevice *, int)) \
    F(cuDeviceGetCount, (int *)) \
    F(cuDeviceGetName, (char *, int, CUdevice)) \
    F(cuDeviceGetUuid, (CUuuid *, CUdevice)) \
    F(cuDeviceGetUuid_v2, (CUuuid *, CUdevice)) \
    F(cuDeviceTotalMem_v2, (size_t *, CUdevice)) \
    F(cuDeviceGetAttribute, (int *, int, CUdevice)) \
    F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
    F(cuDevicePrimaryCtxRelease_v2, (CUdevice)) \
    F(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *)) \
    F(cuDeviceGetDefaultMemPool, (CUpool *, CUdevice)) \
    F(cuDeviceGetExecAffinitySupport, (int *, int, CUdevice)) \
    F(cuCtxCreate_v2, (CUcontext *, unsigned, CUdevice)) \
    F(cuCtxDestroy_v2, (CUcontext)) \
    F(cuCtxSetCurrent, (CUcontext)) \
    F(cuCtxGetCurrent, (CUcontext *)) \
    F(cuCtxPushCurrent_v2, (CUcontext)) \
    F(cuCtxPopCurrent_v2, (CUcontext *)) \
    F(cuCtxGetDevice, (CUdevice *)) \
    F(cuCtxSynchronize, (void)) \
    F(cuCtxSetLimit, (int, size_t)) \
    F(cuCtxGetLimit, (size_t *, int)) \
    F(cuMemGetInfo_v2, (size_t *, size_t *)) \
    F(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
    F(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
    F(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned)) \
    F(cuMemFree_v2, (CUdeviceptr)) \
    F(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr)) \
    F(cuMemAllocHost_v2, (void **, size_t)) \
    F(cuMemHostAlloc, (void **, size_t, unsigned)) \
    F(cuMemFreeHost, (void *)) \
    F(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
    F(cuMemHostUnregister, (void *)) \
    F(cuMemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned)) \
    F(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t)) \
    F(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t)) \
    F(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream)) \
    F(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
    F(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t)) \
    F(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream)) \
    F(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream)) \
    F(cuMemFreeAsync, (CUdeviceptr, CUstream)) \
    F(cuMemPoolCreate, (CUpool *, const CUpoolProps *)) \
    F(cuMemPoolDestroy, (CUpool)) \
    F(cuMemPoolTrimTo, (CUpool, size_t)) \
    F(cuMemPoolGetAttribute, (CUpool, int, void *)) \
    F(cuMemPoolSetAttribute, (CUpool, int, void *)) \
    F(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUpool, CUstream)) \
    F(cuMemGetAllocationGranularity, (size_t *, const CUallocationProp *, int)) \
    F(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, uint64_t)) \
    F(cuMemAddressFree, (CUdeviceptr, size_t)) \
    F(cuMemCreate, (CUmemHandle *, size_t, const CUallocationProp *, uint64_t)) \
    F(cuMemRelease, (CUmemHandle)) \
    F(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemHandle, uint64_t)) \
    F(cuMemUnmap, (CUdeviceptr, size_t)) \
    F(cuMemSetAccess, (CUdeviceptr, size_t, const CUaccess *, size_t)) \
    F(cuMemRetainAllocationHandle, (CUmemHandle *, void *)) \
    F(cuArrayCreate_v2, (CUarray *, const CUarrayShape *)) \
    F(cuArray3DCreate_v2, (CUarray *, const CUarray3dShape *)) \
    F(cuArrayDestroy, (CUarray)) \
    F(cuMipmappedArrayCreate, (CUarray *, const CUarray3dShape *, unsigned)) \
    F(cuStreamCreate, (CUstream *, unsigned)) \
    F(cuStreamDestroy_v2, (CUstream)) \
    F(cuStreamQuery, (CUstream)) \
    F(cuStreamSynchronize, (CUstream)) \
    F(cuStreamWaitEvent, (CUstream, CUevent, unsigned)) \
    F(cuStreamIsCapturing, (CUstream, int *)) \
    F(cuStreamBeginCapture_v2, (CUstream, int)) \
    F(cuStreamEndCapture, (CUstream, CUgraph *)) \
    F(cuThreadExchangeStreamCaptureMode, (int *)) \
    F(cuStreamWriteValue32_v2, (CUstream, CUdeviceptr, uint32_t, unsigned)) \
    F(cuStreamWriteValue64_v2, (CUstream, CUdeviceptr, uint64_t, unsigned)) \
    F(cuEventCreate, (CUevent *, unsigned)) \
    F(cuEventDestroy_v2, (CUevent)) \
    F(cuEventRecord, (CUevent, CUstream)) \
    F(cuEventQuery, (CUevent)) \
    F(cuEventSynchronize, (CUevent)) \
    F(cuEventElapsedTime, (float *, CUevent, CUevent)) \
    F(cuModuleLoadData, (CUmodule *, const void *)) \
    F(cuModuleUnload, (CUmodule)) \
    F(cuModuleGetFunction, (CUfunction *, CUmodule, const char *)) \
    F(cuModuleGetLoadingMode, (int *)) \
    F(cuLibraryLoadData, (CUlibrary *, const void *, void *, void *, unsigned, void *, void *, unsigned)) \
    F(cuLibraryUnload, (CUlibrary)) \
    F(cuLibraryGetKernel, (CUkernel *, CUlibrary, const char *)) \
    F(cuLibraryGetGlobal, (CUdeviceptr *, size_t *, CUlibrary, const char *)) \
    F(cuKernelGetFunction, (CUfunction *, CUkernel)) \
    F(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)) \
    F(cuGraphCreate, (CUgraph *, unsigned)) \
    F(cuGraphDestroy, (CUgraph)) \
    F(cuGraphAddKernelNode_v2, (CUnode *, CUgraph, const CUnode *, size_t, const CUkernelNode *)) \
    F(cuGraphAddMemAllocNode, (CUnode *, CUgraph, const CUnode *, size_t, CUallocNode *)) \
    F(cuGraphAddMemFreeNode, (CUnode *, CUgraph, const CUnode *, size_t, CUdeviceptr)) \
    F(cuGraphInstantiateWithFlags, (CUexec *, CUgraph, uint64_t)) \
    F(cuGraphLaunch, (CUexec, CUstream)) \
    F(cuGraphExecDestroy, (CUexec)) \
    F(cuDeviceGraphMemTrim, (CUdevice)) \
    F(cuCheckpointProcessGetState, (int, int *)) \
    F(cuCheckpointProcessGetRestoreThreadId, (int, int *)) \
    F(cuCheckpointProcessLock, (int, const CUlockArgs *)) \
    F(cuCheckpointProcessCheckpoint, (int, void *)) \
    F(cuCheckpointProcessRestore, (int, void *)) \
    F(cuCheckpointProcessUnlock, (int, void *))

struct driver {
    void *handle;
#define DRIVER_FIELD(name, params) CUresult(*name) params;
    DRIVER_SYMBOLS(DRIVER_FIELD)
#undef DRIVER_FIELD
};

/* The one driver of this process; all null until `driver_open`. */
extern struct driver cu;

/* Opens libcuda.so.1 and looks up every name. Returns 0, or -1 when the library
 * cannot be opened (`dlerror` says why). Does not call cuInit. */
int driver_open(void);

/* The driver's name of a result ("CUDA_ERROR_OUT_OF_MEMORY"), never null. */
const char *driver_error(CUresult result);

#endif
