"""JAX: the part of the memory that it takes, jit, RESOURCE_EXHAUSTED and work after it."""

import os

from checks import MIB, beyond, fact, module, more_than, skip, verdict

PART = 0.75
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = str(PART)
os.environ.setdefault("JAX_PLATFORMS", "cuda")
jax = module("jax")
numpy = module("numpy")


class ResourceExhausted(Exception):
    pass


def too_much(total):
    try:
        jax.block_until_ready(jax.device_put(jax.numpy.zeros((more_than(total) // MIB, MIB), jax.numpy.uint8)))
    except Exception as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise ResourceExhausted from error
        raise


def main():
    fact("version", jax.__version__)
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError as error:
        skip(error)
    total = int((device.memory_stats() or {}).get("bytes_limit", 0) / PART)
    if total:
        fact("memory", total, "about")
    host = numpy.arange(1 << 18, dtype=numpy.float32)
    there = jax.device_put(host, device)
    verdict("contents", (numpy.asarray(there) == host).all())
    verdict("computed", (numpy.asarray(jax.jit(lambda x: x * 2 + 1)(there)) == host * 2 + 1).all())
    if total:
        beyond(lambda: too_much(total), ResourceExhausted, "RESOURCE_EXHAUSTED")
    verdict("contents", (numpy.asarray(jax.device_put(host, device)) == host).all())


main()
