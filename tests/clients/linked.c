/* linked: an ordinary program linked with -lcuda, the way most C code is written.
 * It prints what it saw as one line of JSON; exit 1 names the call that failed. */
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;

int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetCount(int *count);
int cuDeviceGetName(char *name, int room, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuCtxCreate_v2(CUcontext *context, unsigned flags, int device);
int cuCtxDestroy_v2(CUcontext context);
int cuMemGetInfo_v2(size_t *available, size_t *total);
int cuMemAlloc_v2(CUdeviceptr *at, size_t bytes);
int cuMemFree_v2(CUdeviceptr at);

static void must(int result, const char *call)
{
    if (result == 0)
        return;
    fprintf(stderr, "linked: %s answered %d\n", call, result);
    exit(1);
}

int main(void)
{
    char name[100];
    int device, count;
    size_t device_total, total, available, after;
    CUcontext context;
    CUdeviceptr at;
    must(cuInit(0), "cuInit");
    must(cuDeviceGetCount(&count), "cuDeviceGetCount");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName");
    must(cuDeviceTotalMem_v2(&device_total, device), "cuDeviceTotalMem");
    must(cuCtxCreate_v2(&context, 0, device), "cuCtxCreate");
    must(cuMemGetInfo_v2(&available, &total), "cuMemGetInfo");
    must(cuMemAlloc_v2(&at, 64 << 20), "cuMemAlloc of 64 MiB");
    must(cuMemGetInfo_v2(&after, &total), "cuMemGetInfo");
    must(cuMemFree_v2(at), "cuMemFree");
    int refused = cuMemAlloc_v2(&at, total);
    must(cuCtxDestroy_v2(context), "cuCtxDestroy");
    printf("{\"client\": \"linked\", \"device\": \"%s\", \"devices\": %d, \"device_total\": %zu, \"total\": %zu, "
           "\"free\": %zu, \"took\": %zu, \"beyond\": %d}\n",
           name, count, device_total, total, available, available - after, refused);
    return 0;
}
