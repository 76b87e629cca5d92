/* Section nulls: what entry points answer to null outputs and handles.
 *
 * Each row is named by its call, as `tests/facts` writes one; what a GPU answered can become a fact there. A call that
 * ends its process costs its own row: the next process continues behind it. */
#include "probe.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static CUdeviceptr p;
static CUmemHandle h;
static CUstream s;
static CUevent e;
static CUmodule m;
static CUarray a;
static CUgraph g;
static void *q;
static size_t f, t;
static int n;
static char b[64];
static const CUarrayShape shape = {16, 16, 0x20, 1};

/* Name of a trial, function, arguments. */
#define TRIALS(T) \
    T(1, cuDriverGetVersion, (NULL)) \
    T(2, cuGetErrorName, (0, NULL)) \
    T(3, cuGetErrorString, (0, NULL)) \
    T(4, cuGetProcAddress_v2, ("cuInit", NULL, 12000, 0, NULL)) \
    T(5, cuGetProcAddress_v2, (NULL, &q, 12000, 0, NULL)) \
    T(6, cuGetProcAddress_v2, ("cuInit", &q, 12000, 0, NULL)) \
    T(7, cuGetProcAddress_v2, ("cuNoSuch", &q, 12000, 0, &n)) \
    T(8, cuDeviceGetCount, (NULL)) \
    T(9, cuDeviceGet, (NULL, 0)) \
    T(10, cuDeviceGetName, (NULL, 64, 0)) \
    T(11, cuDeviceGetName, (b, 0, 0)) \
    T(12, cuDeviceGetUuid_v2, (NULL, 0)) \
    T(13, cuDeviceTotalMem_v2, (NULL, 0)) \
    T(14, cuDeviceGetAttribute, (NULL, 1, 0)) \
    T(15, cuDevicePrimaryCtxRetain, (NULL, 0)) \
    T(16, cuDevicePrimaryCtxGetState, (0, NULL, &n)) \
    T(17, cuDevicePrimaryCtxGetState, (0, NULL, NULL)) \
    T(18, cuDeviceGetDefaultMemPool, (NULL, 0)) \
    T(19, cuCtxCreate_v2, (NULL, 0, 0)) \
    T(20, cuCtxDestroy_v2, (NULL)) \
    T(21, cuCtxSetCurrent, (NULL)) \
    T(22, cuCtxGetCurrent, (NULL)) \
    T(23, cuCtxPushCurrent_v2, (NULL)) \
    T(24, cuCtxPopCurrent_v2, (NULL)) \
    T(25, cuCtxGetDevice, (NULL)) \
    T(26, cuCtxGetLimit, (NULL, 0)) \
    T(27, cuMemGetInfo_v2, (NULL, &t)) \
    T(28, cuMemGetInfo_v2, (&f, NULL)) \
    T(29, cuMemGetInfo_v2, (NULL, NULL)) \
    T(30, cuMemAlloc_v2, (NULL, 4096)) \
    T(31, cuMemAlloc_v2, (&p, 0)) \
    T(32, cuMemAllocPitch_v2, (NULL, &f, 64, 64, 4)) \
    T(33, cuMemAllocPitch_v2, (&p, NULL, 64, 64, 4)) \
    T(34, cuMemAllocManaged, (NULL, 4096, 1)) \
    T(35, cuMemFree_v2, (0)) \
    T(36, cuMemGetAddressRange_v2, (NULL, NULL, 0)) \
    T(37, cuMemAllocHost_v2, (NULL, 4096)) \
    T(38, cuMemHostAlloc, (NULL, 4096, 0)) \
    T(39, cuMemHostAlloc, (&q, 0, 0)) \
    T(40, cuMemFreeHost, (NULL)) \
    T(41, cuMemHostRegister_v2, (NULL, 4096, 0)) \
    T(42, cuMemHostUnregister, (NULL)) \
    T(43, cuMemcpyHtoD_v2, (0, b, 16)) \
    T(44, cuMemcpyHtoD_v2, (0, b, 0)) \
    T(45, cuMemsetD8_v2, (0, 0, 16)) \
    T(46, cuMemsetD8_v2, (0, 0, 0)) \
    T(47, cuMemAllocAsync, (NULL, 4096, s)) \
    T(48, cuMemAllocAsync, (&p, 0, s)) \
    T(49, cuMemFreeAsync, (0, s)) \
    T(50, cuMemPoolCreate, (NULL, NULL)) \
    T(51, cuMemPoolDestroy, (NULL)) \
    T(52, cuMemPoolTrimTo, (NULL, 0)) \
    T(53, cuMemPoolGetAttribute, (NULL, 5, &f)) \
    T(54, cuMemAllocFromPoolAsync, (&p, 4096, NULL, s)) \
    T(55, cuMemGetAllocationGranularity, (&f, NULL, 0)) \
    T(56, cuMemCreate, (&h, 0x200000, NULL, 0)) \
    T(57, cuMemRelease, (0)) \
    T(58, cuMemAddressReserve, (NULL, 0x200000, 0, 0, 0)) \
    T(59, cuMemMap, (0, 0x200000, 0, 0, 0)) \
    T(60, cuMemUnmap, (0, 0x200000)) \
    T(61, cuMemRetainAllocationHandle, (NULL, NULL)) \
    T(62, cuArrayCreate_v2, (NULL, &shape)) \
    T(63, cuArrayCreate_v2, (&a, NULL)) \
    T(64, cuArrayDestroy, (NULL)) \
    T(65, cuStreamCreate, (NULL, 0)) \
    T(66, cuStreamDestroy_v2, (NULL)) \
    T(67, cuStreamQuery, (NULL)) \
    T(68, cuStreamSynchronize, (NULL)) \
    T(69, cuStreamWaitEvent, (s, NULL, 0)) \
    T(70, cuStreamIsCapturing, (s, NULL)) \
    T(71, cuStreamBeginCapture_v2, (NULL, 0)) \
    T(72, cuStreamEndCapture, (s, NULL)) \
    T(73, cuStreamWriteValue32_v2, (s, 0, 1, 0)) \
    T(74, cuThreadExchangeStreamCaptureMode, (NULL)) \
    T(75, cuEventCreate, (NULL, 0)) \
    T(76, cuEventDestroy_v2, (NULL)) \
    T(77, cuEventRecord, (NULL, s)) \
    T(78, cuEventQuery, (NULL)) \
    T(79, cuEventSynchronize, (NULL)) \
    T(80, cuEventElapsedTime, (NULL, e, e)) \
    T(81, cuModuleLoadData, (NULL, SPIN_PTX)) \
    T(82, cuModuleLoadData, (&m, NULL)) \
    T(83, cuModuleUnload, (NULL)) \
    T(84, cuModuleGetFunction, (NULL, m, "spin_ns")) \
    T(85, cuModuleGetFunction, ((CUfunction *)&q, NULL, "spin_ns")) \
    T(86, cuModuleGetFunction, ((CUfunction *)&q, m, NULL)) \
    T(87, cuLibraryLoadData, (NULL, SPIN_PTX, NULL, NULL, 0, NULL, NULL, 0)) \
    T(88, cuLibraryUnload, (NULL)) \
    T(89, cuLaunchKernel, (NULL, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL)) \
    T(90, cuGraphCreate, (NULL, 0)) \
    T(91, cuGraphDestroy, (NULL)) \
    T(92, cuGraphInstantiateWithFlags, (NULL, g, 0)) \
    T(93, cuGraphLaunch, (NULL, s)) \
    T(94, cuGraphExecDestroy, (NULL))

#define TRY(id, fn, arguments) static CUresult trial_##id(void) { return cu.fn arguments; }
TRIALS(TRY)

struct trial { const char *text; CUresult (*call)(void); const void *needs; };
#define ROW(id, fn, arguments) {#fn #arguments, trial_##id, &cu.fn},
static const struct trial LIST[] = {TRIALS(ROW)};
enum { COUNT = sizeof LIST / sizeof *LIST };

struct progress { volatile unsigned at; };

static void one(const struct trial *trial, CUcontext context)
{
    if (!*(void *const *)trial->needs)
        return row_text(trial->text, "absent", " ");
    p = 0;
    f = t = 0;
    CUresult result = trial->call();
    cu.cuCtxSetCurrent(context);
    CUresult after = cu.cuCtxSynchronize();
    if (p)
        cu.cuMemFree_v2(p);
    if (after == SUCCESS)
        row_text(trial->text, result == SUCCESS ? "SUCCESS" : driver_error(result), "%d", result);
    else
        row_text(trial->text, driver_error(result), "%d; then cuCtxSynchronize answers %d", result, after);
}

_Noreturn static void continue_from(struct progress *progress)
{
    struct bench bench = bench_open();
    MUST(cuStreamCreate, &s, STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &e, EVENT_PLAIN);
    MUST(cuEventRecord, e, s);
    MUST(cuModuleLoadData, &m, SPIN_PTX);
    MUST(cuGraphCreate, &g, 0);
    MUST(cuCtxSynchronize);
    CUmodule module = m;
    for (unsigned i = progress->at; i < COUNT; i++) {
        progress->at = i;
        m = module;
        one(&LIST[i], bench.context);
    }
    progress->at = COUNT;
    _exit(0);
}

void section_nulls(void)
{
    struct progress *progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (progress == MAP_FAILED)
        give_up("mmap", OUT_OF_MEMORY);
    unsigned crashes = 0;
    while (progress->at < COUNT) {
        int status = 0;
        pid_t child = fork_tied();
        if (child == 0)
            continue_from(progress);
        waitpid(child, &status, 0);
        if (progress->at == COUNT)
            break;
        if (WIFEXITED(status))
            give_up(LIST[progress->at].text, NOT_READY);
        row_text(LIST[progress->at].text, "crashes", "signal %d", WTERMSIG(status));
        crashes++;
        progress->at++;
    }
    row_number("trials", COUNT, "", "%u of them end their process", crashes);
}
