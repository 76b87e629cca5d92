#!/usr/bin/env python3
"""Compiles a kernel with numba-cuda, launches it, and prints what it saw as one line of JSON.

On a simulated GPU kernels compute nothing, so the numbers are reported, not judged: "computed"
says whether the kernel's effect is there.
"""

import json
import sys
import warnings

import numpy
from numba import cuda
from numba.core.errors import NumbaPerformanceWarning
from numba.cuda.cudadrv.driver import CudaAPIError

warnings.simplefilter("ignore", NumbaPerformanceWarning)
COUNT = 1 << 16
OUT_OF_MEMORY = 2


@cuda.jit
def add_one(values):
    i = cuda.grid(1)
    if i < values.size:
        values[i] += 1


def beyond(total):
    """The driver's answer to one allocation as large as all memory."""
    try:
        cuda.current_context().memalloc(total)
    except CudaAPIError as error:
        return error.code
    return 0


def main():
    context = cuda.current_context()
    before = context.get_memory_info()
    host = numpy.arange(COUNT, dtype=numpy.float32)
    values = cuda.to_device(host)
    with_copy = context.get_memory_info()
    add_one[COUNT // 256, 256](values)
    cuda.synchronize()
    back = values.copy_to_host()
    print(json.dumps({
        "client": "numba",
        "device": str(cuda.get_current_device().name),
        "devices": len(cuda.gpus),
        "total": before.total,
        "free": before.free,
        "free_with_copy": with_copy.free,
        "copied_back": int(back.size),
        "computed": bool((back == host + 1).all()),
        "beyond": beyond(before.total),
    }))
    return 0


if __name__ == "__main__":
    sys.exit(main())
