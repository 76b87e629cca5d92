"""The driver API from Python, by ctypes: what bindings do that find each function by its name."""

import ctypes

from checks import absent, beyond, fact, fail, more_than, verdict

COUNT = 1 << 20
FILL = b"""
.version 6.0
.target sm_52
.address_size 64
.visible .entry fill(.param .u64 to)
{
  .reg .u32 %i, %c, %n; .reg .u64 %a;
  ld.param.u64 %a, [to];
  mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %i, %tid.x;
  mad.lo.u32 %i, %c, %n, %i;
  cvta.to.global.u64 %a, %a;
  mad.wide.u32 %a, %i, 4, %a;
  st.global.u32 [%a], %i;
  ret;
}
"""


class DriverError(Exception):
    pass


class OutOfMemory(DriverError):
    pass


class Driver:
    """Calls by name; a result other than 0 raises."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            absent(error)

    def __call__(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(result, ctypes.byref(text))
            error = OutOfMemory if text.value == b"CUDA_ERROR_OUT_OF_MEMORY" else DriverError
            raise error(f"{name}: {(text.value or b'unknown').decode()}")


def allocate(cuda, size):
    at = ctypes.c_uint64()
    cuda("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
    return at


def copies(cuda, here, there):
    """Bytes go up, across and down."""
    sent = (ctypes.c_uint32 * COUNT)(*range(7, COUNT + 7))
    back = (ctypes.c_uint32 * COUNT)()
    size = ctypes.c_size_t(ctypes.sizeof(sent))
    cuda("cuMemcpyHtoD_v2", here, sent, size)
    cuda("cuMemcpyDtoD_v2", there, here, size)
    cuda("cuMemcpyDtoH_v2", back, there, size)
    return bytes(sent) == bytes(back)


def kernel(cuda, to):
    code, function = ctypes.c_void_p(), ctypes.c_void_p()
    cuda("cuModuleLoadData", ctypes.byref(code), FILL)
    cuda("cuModuleGetFunction", ctypes.byref(function), code, b"fill")
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(to))
    cuda("cuLaunchKernel", function, COUNT // 256, 1, 1, 256, 1, 1, 0, None, parameters, None)
    back = (ctypes.c_uint32 * COUNT)()
    cuda("cuCtxSynchronize")
    cuda("cuMemcpyDtoH_v2", back, to, ctypes.c_size_t(ctypes.sizeof(back)))
    return list(back) == list(range(COUNT))


def main():
    cuda = Driver()
    device, context, version = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
    cuda("cuInit", 0)
    cuda("cuDriverGetVersion", ctypes.byref(version))
    cuda("cuDeviceGet", ctypes.byref(device), 0)
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda("cuCtxSetCurrent", context)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    fact("version", f"CUDA {version.value // 1000}.{version.value % 1000 // 10}")
    fact("memory", total.value, "exact")
    here, there = allocate(cuda, COUNT * 4), allocate(cuda, COUNT * 4)
    verdict("contents", copies(cuda, here, there))
    beyond(lambda: allocate(cuda, more_than(total.value)), OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY")
    verdict("contents", copies(cuda, here, there))
    verdict("computed", kernel(cuda, there))


try:
    main()
except DriverError as error:
    fail(error)
