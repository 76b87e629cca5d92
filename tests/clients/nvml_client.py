#!/usr/bin/env python3
"""Prints, as one line of JSON, what nvidia-ml-py sees of every GPU.

With --context it makes a CUDA context first (through ctypes), so that this process is
one of those NVML lists.
"""

import ctypes
import json
import os
import sys

import pynvml


def make_context():
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    for call, answer in (
        ("cuInit", cuda.cuInit(0)),
        ("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), 0)),
        ("cuCtxCreate", cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)),
    ):
        if answer != 0:
            sys.exit(f"nvml_client: {call} answered {answer}")


def processes(handle):
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return [{"pid": p.pid, "used": p.usedGpuMemory} for p in listed]


def device(index):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    v1 = pynvml.nvmlDeviceGetMemoryInfo(handle)
    v2 = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return {
        "name": pynvml.nvmlDeviceGetName(handle),
        "uuid": pynvml.nvmlDeviceGetUUID(handle),
        "total": v1.total,
        "used": v1.used,
        "free": v1.free,
        "v2_total": v2.total,
        "v2_reserved": v2.reserved,
        "v2_used": v2.used,
        "utilisation": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "processes": processes(handle),
    }


def main():
    if "--context" in sys.argv[1:]:
        make_context()
    pynvml.nvmlInit()
    count = pynvml.nvmlDeviceGetCount()
    print(json.dumps({
        "client": "nvml",
        "pid": os.getpid(),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "count": count,
        "devices": [device(index) for index in range(count)],
    }))


if __name__ == "__main__":
    main()
