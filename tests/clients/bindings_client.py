#!/usr/bin/env python3
"""NVIDIA's own Python bindings, unmodified, in a slice of a simulated GPU.

usage: bindings_client.py driver | runtime

Each prints a line of JSON. Kernels compute nothing: checks rest on copies, fills, accounts and order.
"""

import ctypes
import json
import sys

from cuda.bindings import driver, runtime

MIB = 1 << 20
PTX = b""".version 7.0
.target sm_50
.address_size 64
.visible .entry spin_ns(.param .u64 spin_ns_0) { ret; }
\0"""


def report(**fields):
    print(json.dumps(fields), flush=True)


def good(answer):
    """The values of an answer that is a success."""
    assert int(answer[0]) == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]


def fill_to_the_end(allocate, free):
    """Allocates until refused, then twenty times more; frees all. Returns bytes, names of refusals."""
    held, refusals, size = [], [], 512 * MIB
    while size >= MIB:
        error, address = allocate(size)
        if int(error):
            size //= 2
        else:
            held.append((address, size))
    for _ in range(20):
        refusals.append(allocate(1024 * MIB)[0].name)
    total = sum(size for _, size in held)
    for address, _ in held:
        good(free(address))
    return total, sorted(set(refusals))


def use_driver():
    good(driver.cuInit(0))
    device = good(driver.cuDeviceGet(0))
    context = good(driver.cuDevicePrimaryCtxRetain(device))
    good(driver.cuCtxSetCurrent(context))
    free, total = good(driver.cuMemGetInfo())
    assert good(driver.cuDeviceTotalMem(device)) == total

    stream, start, end = good(driver.cuStreamCreate(1)), *(good(driver.cuEventCreate(0)) for _ in range(2))
    source, back = bytearray(range(256)) * 4096, bytearray(MIB)
    there, too = (good(driver.cuMemAlloc(MIB)) for _ in range(2))
    good(driver.cuMemcpyHtoD(there, bytes(source), MIB))
    good(driver.cuMemcpyDtoDAsync(too, there, MIB, stream))
    good(driver.cuStreamSynchronize(stream))
    good(driver.cuMemcpyDtoH(back, too, MIB))
    same = back == source
    good(driver.cuMemsetD8(too, 7, MIB // 2))
    good(driver.cuMemcpyDtoH(back, too, MIB))
    filled = back == bytearray([7]) * (MIB // 2) + source[MIB // 2 :]

    module = good(driver.cuModuleLoadData(PTX))
    kernel = good(driver.cuModuleGetFunction(module, b"spin_ns"))
    good(driver.cuEventRecord(start, stream))
    arguments = ((20_000_000,), (ctypes.c_uint64,))
    good(driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, arguments, 0))
    good(driver.cuEventRecord(end, stream))
    waits = driver.cuEventQuery(end)[0].name
    good(driver.cuEventSynchronize(end))
    took = good(driver.cuEventElapsedTime(start, end))
    missing = driver.cuModuleGetFunction(module, b"absent")[0].name
    for address in (there, too):
        good(driver.cuMemFree(address))
    held, refusals = fill_to_the_end(driver.cuMemAlloc, driver.cuMemFree)
    again = good(driver.cuMemGetInfo())[0]
    report(total=total, free=free, again=again, same=same, filled=filled, waits=waits, took_ms=took, missing=missing,
           held=held, refusals=refusals)


def use_runtime():
    good(runtime.cudaSetDevice(0))
    free, total = good(runtime.cudaMemGetInfo())
    properties = good(runtime.cudaGetDeviceProperties(0))
    source, back = bytes(range(256)) * 4096, bytearray(MIB)
    stream = good(runtime.cudaStreamCreate())
    kind = runtime.cudaMemcpyKind
    there = good(runtime.cudaMallocAsync(MIB, stream))
    good(runtime.cudaMemcpyAsync(there, source, MIB, kind.cudaMemcpyHostToDevice, stream))
    good(runtime.cudaMemcpyAsync(back, there, MIB, kind.cudaMemcpyDeviceToHost, stream))
    good(runtime.cudaStreamSynchronize(stream))
    same = bytes(back) == source
    good(runtime.cudaFreeAsync(there, stream))
    good(runtime.cudaStreamSynchronize(stream))
    held, refusals = fill_to_the_end(runtime.cudaMalloc, runtime.cudaFree)
    report(total=total, properties=properties.totalGlobalMem, free=free, same=same, held=held, refusals=refusals)


if __name__ == "__main__":
    {"driver": use_driver, "runtime": use_runtime}[sys.argv[1]]()
