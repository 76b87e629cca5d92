"""The shared CUDA runtime (libcudart), by ctypes."""

import ctypes

from checks import absent, beyond, fact, fail, more_than, skip, verdict

COUNT = 1 << 20
NAMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")
TO_DEVICE, TO_HOST = 1, 2


class RuntimeFailure(Exception):
    pass


class OutOfMemory(RuntimeFailure):
    pass


class Runtime:
    """Calls by name; a result other than 0 raises."""

    def __init__(self, library):
        self.library = library
        library.cudaGetErrorName.restype = ctypes.c_char_p

    def __call__(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result:
            text = self.library.cudaGetErrorName(result).decode()
            raise (OutOfMemory if text == "cudaErrorMemoryAllocation" else RuntimeFailure)(f"{name}: {text}")


def runtime():
    """The newest runtime here that this driver is new enough for."""
    refused = None
    for name in NAMES:
        try:
            found = Runtime(ctypes.CDLL(name))
        except OSError:
            continue
        try:
            found("cudaFree", None)
            return found
        except RuntimeFailure as error:
            refused = f"{name}: {error}"
    return skip(refused) if refused else absent("no libcudart.so.*")


def allocate(cuda, size):
    at = ctypes.c_void_p()
    cuda("cudaMalloc", ctypes.byref(at), ctypes.c_size_t(size))
    return at


def copies(cuda, at):
    sent = (ctypes.c_uint32 * COUNT)(*range(3, COUNT + 3))
    back = (ctypes.c_uint32 * COUNT)()
    cuda("cudaMemcpy", at, sent, ctypes.c_size_t(COUNT * 4), TO_DEVICE)
    cuda("cudaMemcpy", back, at, ctypes.c_size_t(COUNT * 4), TO_HOST)
    return bytes(sent) == bytes(back)


def main():
    cuda = runtime()
    version, free, total = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cudaRuntimeGetVersion", ctypes.byref(version))
    cuda("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    fact("version", f"{version.value // 1000}.{version.value % 1000 // 10}")
    fact("memory", total.value, "exact")
    at = allocate(cuda, COUNT * 4)
    verdict("contents", copies(cuda, at))
    beyond(lambda: allocate(cuda, more_than(total.value)), OutOfMemory, "cudaErrorMemoryAllocation")
    cuda.library.cudaGetLastError()
    verdict("contents", copies(cuda, at))
    cuda("cudaDeviceSynchronize")


try:
    main()
except RuntimeFailure as error:
    fail(error)
