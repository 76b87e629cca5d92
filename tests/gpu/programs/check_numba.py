"""numba: a kernel compiled by it, out of memory and work after it."""

import warnings

from checks import beyond, fact, fail, module, more_than, skip, verdict

numpy = module("numpy")
numba = module("numba")
cuda = module("numba.cuda")
warnings.simplefilter("ignore")


class OutOfMemory(Exception):
    pass


@cuda.jit
def add_one(values):
    i = cuda.grid(1)
    if i < values.size:
        values[i] += 1


def too_much(total):
    try:
        cuda.current_context().memalloc(more_than(total))
    except cuda.cudadrv.driver.CudaAPIError as error:
        if error.code == 2:
            raise OutOfMemory from error
        raise


def main():
    fact("version", getattr(cuda, "__version__", numba.__version__))
    if not cuda.is_available():
        skip("numba.cuda.is_available() is false")
    total = cuda.current_context().get_memory_info().total
    fact("memory", total, "exact")
    host = numpy.arange(1 << 16, dtype=numpy.float32)
    verdict("contents", (cuda.to_device(host).copy_to_host() == host).all())
    beyond(lambda: too_much(total), OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY")
    values = cuda.to_device(host)
    add_one[host.size // 256, 256](values)
    cuda.synchronize()
    back = values.copy_to_host()
    if back.size != host.size:
        fail("fewer values came back than went")
    verdict("computed", (back == host + 1).all())


main()
