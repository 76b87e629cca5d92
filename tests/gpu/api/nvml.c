#include "nvml.h"

#include <dlfcn.h>
#include <stdio.h>

struct nvml nv;

NvmlResult nvml_open(void)
{
    if (!nv.handle)
        nv.handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nv.handle)
        return NVML_ABSENT;
#define LOOK_UP(name, params) *(void **)&nv.name = dlsym(nv.handle, #name);
    NVML_SYMBOLS(LOOK_UP)
#undef LOOK_UP
    return nv.nvmlInit_v2 ? nv.nvmlInit_v2() : NVML_ABSENT;
}

NvmlDevice nvml_device(const unsigned char u[16])
{
    char text[64];
    NvmlDevice device = NULL;
    snprintf(text, sizeof text,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
             u[13], u[14], u[15]);
    if (!nv.nvmlDeviceGetHandleByUUID || nv.nvmlDeviceGetHandleByUUID(text, &device) != NVML_OK)
        return NULL;
    return device;
}

uint64_t nvml_used(NvmlDevice device)
{
    NvmlMemory memory = {0};
    if (!nv.nvmlDeviceGetMemoryInfo || nv.nvmlDeviceGetMemoryInfo(device, &memory) != NVML_OK)
        return 0;
    return memory.used;
}

int nvml_processes(NvmlDevice device, NvmlProcess *list, unsigned room)
{
    NvmlResult (*ask)(NvmlDevice, unsigned *, NvmlProcess *) =
        nv.nvmlDeviceGetComputeRunningProcesses_v3 ? nv.nvmlDeviceGetComputeRunningProcesses_v3
                                                   : nv.nvmlDeviceGetComputeRunningProcesses_v2;
    unsigned count = room;
    if (!ask || ask(device, &count, list) != NVML_OK)
        return -1;
    return (int)count;
}

int64_t nvml_process_used(NvmlDevice device, unsigned pid)
{
    NvmlProcess list[256];
    int count = nvml_processes(device, list, 256);
    for (int i = 0; i < count; i++)
        if (list[i].pid == pid)
            return (int64_t)list[i].used;
    return -1;
}
