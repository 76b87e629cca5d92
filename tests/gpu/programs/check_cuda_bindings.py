"""cuda.bindings, NVIDIA's own of the driver API: copies, out of memory and work after it."""

from checks import beyond, fact, fail, module, more_than, verdict

bindings = module("cuda.bindings")
driver = module("cuda.bindings.driver")
SIZE = 4 << 20


class DriverError(Exception):
    pass


class OutOfMemory(DriverError):
    pass


def must(answer):
    result, *values = answer
    if result == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise OutOfMemory
    if result != driver.CUresult.CUDA_SUCCESS:
        raise DriverError(str(result))
    return values[0] if len(values) == 1 else values


def copies(at):
    sent, back = bytes(range(256)) * (SIZE // 256), bytearray(SIZE)
    must(driver.cuMemcpyHtoD(at, sent, SIZE))
    must(driver.cuMemcpyDtoH(back, at, SIZE))
    return sent == bytes(back)


def main():
    fact("version", getattr(bindings, "__version__", "unknown"))
    must(driver.cuInit(0))
    context = must(driver.cuDevicePrimaryCtxRetain(must(driver.cuDeviceGet(0))))
    must(driver.cuCtxSetCurrent(context))
    total = must(driver.cuMemGetInfo())[1]
    fact("memory", total, "exact")
    at = must(driver.cuMemAlloc(SIZE))
    verdict("contents", copies(at))
    beyond(lambda: must(driver.cuMemAlloc(more_than(total))), OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY")
    verdict("contents", copies(at))
    must(driver.cuMemFree(at))


try:
    main()
except DriverError as error:
    fail(error)
