/* NVML as these tests use it: our own declarations, filled in by dlopen.
 *
 * Law: the same as driver.h; NVML is the witness here, so nothing in this file
 * depends on the driver library. */
#ifndef TRANCHE_TESTS_NVML_H
#define TRANCHE_TESTS_NVML_H

#include <stdint.h>

typedef int NvmlResult;
typedef struct nvml_device_opaque *NvmlDevice;

enum { NVML_OK = 0, NVML_NOT_SUPPORTED = 3, NVML_INSUFFICIENT_SIZE = 7, NVML_ABSENT = 13 };
enum { NVML_MEMORY_V2 = 0x2000028, NVML_GPU_SAMPLES = 1 };

typedef struct { uint64_t total, free, used; } NvmlMemory;
typedef struct { unsigned version; uint64_t total, reserved, free, used; } NvmlMemoryV2;
typedef struct { unsigned pid; uint64_t used; unsigned gpu_instance, compute_instance; } NvmlProcess;
typedef struct { unsigned gpu, memory; } NvmlRates;
typedef struct { unsigned pid; uint64_t at_us; unsigned sm, memory, encoder, decoder; } NvmlProcessRate;
typedef struct { uint64_t at_us; union { double d; unsigned u; uint64_t ull; } value; } NvmlSample;

#define NVML_SYMBOLS(F) \
    F(nvmlInit_v2, (void)) \
    F(nvmlShutdown, (void)) \
    F(nvmlSystemGetDriverVersion, (char *, unsigned)) \
    F(nvmlSystemGetNVMLVersion, (char *, unsigned)) \
    F(nvmlSystemGetCudaDriverVersion_v2, (int *)) \
    F(nvmlSystemGetProcessName, (unsigned, char *, unsigned)) \
    F(nvmlDeviceGetCount_v2, (unsigned *)) \
    F(nvmlDeviceGetHandleByIndex_v2, (unsigned, NvmlDevice *)) \
    F(nvmlDeviceGetHandleByUUID, (const char *, NvmlDevice *)) \
    F(nvmlDeviceGetUUID, (NvmlDevice, char *, unsigned)) \
    F(nvmlDeviceGetName, (NvmlDevice, char *, unsigned)) \
    F(nvmlDeviceGetMemoryInfo, (NvmlDevice, NvmlMemory *)) \
    F(nvmlDeviceGetMemoryInfo_v2, (NvmlDevice, NvmlMemoryV2 *)) \
    F(nvmlDeviceGetComputeRunningProcesses_v2, (NvmlDevice, unsigned *, NvmlProcess *)) \
    F(nvmlDeviceGetComputeRunningProcesses_v3, (NvmlDevice, unsigned *, NvmlProcess *)) \
    F(nvmlDeviceGetGraphicsRunningProcesses_v3, (NvmlDevice, unsigned *, NvmlProcess *)) \
    F(nvmlDeviceGetMPSComputeRunningProcesses_v3, (NvmlDevice, unsigned *, NvmlProcess *)) \
    F(nvmlDeviceGetUtilizationRates, (NvmlDevice, NvmlRates *)) \
    F(nvmlDeviceGetProcessUtilization, (NvmlDevice, NvmlProcessRate *, unsigned *, uint64_t)) \
    F(nvmlDeviceGetSamples, (NvmlDevice, int, uint64_t, int *, unsigned *, NvmlSample *)) \
    F(nvmlDeviceGetComputeMode, (NvmlDevice, int *)) \
    F(nvmlDeviceGetPersistenceMode, (NvmlDevice, int *)) \
    F(nvmlDeviceGetVirtualizationMode, (NvmlDevice, int *)) \
    F(nvmlDeviceGetMigMode, (NvmlDevice, unsigned *, unsigned *))

struct nvml {
    void *handle;
#define NVML_FIELD(name, params) NvmlResult(*name) params;
    NVML_SYMBOLS(NVML_FIELD)
#undef NVML_FIELD
};

/* The one NVML of this process; all null until `nvml_open`. */
extern struct nvml nv;

/* Opens libnvidia-ml.so.1 and initialises it. Returns NVML's code, or
 * NVML_ABSENT when the library or its init function is not there. */
NvmlResult nvml_open(void);

/* The device with this CUDA UUID (16 raw bytes), or null. */
NvmlDevice nvml_device(const unsigned char uuid[16]);

/* Bytes in use on the device as NVML counts them (v1), or 0. */
uint64_t nvml_used(NvmlDevice device);

/* The compute processes NVML lists, at most `room`; -1 when it will not say. */
int nvml_processes(NvmlDevice device, NvmlProcess *list, unsigned room);

/* Bytes NVML books on `pid`; -1 when it does not list it. */
int64_t nvml_process_used(NvmlDevice device, unsigned pid);

#endif
