"""CuPy: memory, copies, a kernel, out of memory and work after it."""

from checks import beyond, fact, module, more_than, skip, verdict

cupy = module("cupy")
numpy = module("numpy")


def main():
    fact("version", cupy.__version__)
    try:
        total = cupy.cuda.runtime.memGetInfo()[1]
    except cupy.cuda.runtime.CUDARuntimeError as error:
        skip(error)
    fact("memory", total, "exact")
    host = numpy.arange(1 << 20)
    verdict("contents", (cupy.asnumpy(cupy.asarray(host)) == host).all())
    beyond(lambda: cupy.empty(more_than(total), dtype=cupy.uint8), cupy.cuda.memory.OutOfMemoryError)
    verdict("computed", (cupy.asnumpy(cupy.asarray(host) * 2 + 1) == host * 2 + 1).all())


main()
