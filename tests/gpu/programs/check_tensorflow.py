"""TensorFlow: a product, out of memory and work after it. It states no total; the size that fits nowhere is the driver's."""

import ctypes
import os

from checks import MIB, beyond, fact, module, more_than, skip, verdict

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
numpy = module("numpy")
tensorflow = module("tensorflow")


def driver_total():
    total = ctypes.c_size_t()
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuInit(0)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
    return total.value


def main():
    fact("version", tensorflow.__version__)
    if not tensorflow.config.list_physical_devices("GPU"):
        skip("TensorFlow lists no GPU")
    total = driver_total()
    host = numpy.arange(64 * 64, dtype=numpy.float32).reshape(64, 64)
    with tensorflow.device("/GPU:0"):
        verdict("contents", (tensorflow.identity(host).numpy() == host).all())
        beyond(lambda: tensorflow.zeros([more_than(total) // MIB, MIB], tensorflow.uint8).numpy(),
               tensorflow.errors.ResourceExhaustedError)
        verdict("computed", (tensorflow.matmul(host, tensorflow.eye(64)).numpy() == host).all())


main()
