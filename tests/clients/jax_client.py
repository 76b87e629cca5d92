#!/usr/bin/env python3
"""JAX programs that run in slices of a simulated GPU, on which kernels take time and compute nothing.

usage: jax_client.py arrays | compile | full TIMES

Each prints lines of JSON. Checks rest on what the device does for real: copies, accounts, order. JAX starts CUDA only
where a device file of NVIDIA's exists; a simulated machine has none, so that one is named that exists.
"""

import json
import sys

import numpy
from jax._src import hardware_utils

hardware_utils._NVIDIA_GPU_DEVICES.append("/dev/null")

import jax
import jax.numpy as jnp

MIB = 1 << 20


def report(**fields):
    print(json.dumps(fields), flush=True)


def arrays():
    """Bytes survive the way to the device, over it and back; then waits, so that its memory can be counted."""
    device = jax.devices()[0]
    host = numpy.arange(4 * MIB, dtype=numpy.int32)
    there = jax.device_put(host, device)
    again = jnp.array(there, copy=True)
    numpy.testing.assert_array_equal(numpy.asarray(again), host)
    stats = device.memory_stats()
    report(devices=len(jax.devices()), kind=device.device_kind, limit=stats["bytes_limit"], pool=stats["pool_bytes"],
           used=stats["bytes_in_use"], capability=device.compute_capability)
    sys.stdin.read()


def compile():
    """Kernels that XLA makes load and run: a network's loss, its gradients, a loop on the device."""
    width = 256
    layers = [jax.device_put(numpy.ones((width, width), numpy.float32)) for _ in range(3)]
    batch = jax.device_put(numpy.ones((32, width), numpy.float32))

    def loss(layers, batch):
        for layer in layers:
            batch = jnp.tanh(batch @ layer)
        return jax.nn.softmax(batch).std()

    @jax.jit
    def step(layers, batch):
        gradients = jax.grad(loss)(layers, batch)
        return [layer - 0.1 * gradient for layer, gradient in zip(layers, gradients)]

    for _ in range(20):
        layers = step(layers, batch)
    carry, seen = jax.lax.scan(lambda carry, row: (jnp.sin(carry) + row, carry.sum()), batch[0], batch)
    keys = jax.random.normal(jax.random.key(1), (128,))
    sines = jax.vmap(jnp.sort)(batch).block_until_ready()
    jax.block_until_ready((layers, carry, seen, keys))
    report(layers=[list(layer.shape) for layer in layers], carry=list(carry.shape), seen=list(seen.shape),
           sorted=list(sines.shape))


def full(times):
    """Fills what it may have, gets JAX's own error and that again, frees half, and goes on."""
    host = numpy.arange(MIB, dtype=numpy.int32)
    # A kernel's result: it takes memory of the device alone.
    block = jax.jit(lambda first: jnp.arange(64 * MIB, dtype=jnp.int32) + first)
    kept, error, refused = [], None, 0
    while error is None:
        try:
            kept.append(block(len(kept)).block_until_ready())
        except jax.errors.JaxRuntimeError as caught:
            error = str(caught)
    held = len(kept) * 256 * MIB
    for _ in range(int(times)):
        try:
            kept.append(block(0).block_until_ready())
        except jax.errors.JaxRuntimeError:
            refused += 1
    del kept[len(kept) // 2 :]
    kept.append(block(0).block_until_ready())
    numpy.testing.assert_array_equal(numpy.asarray(jax.device_put(host)), host)
    report(held=held, refused=refused, error=error)


if __name__ == "__main__":
    {"arrays": arrays, "compile": compile, "full": full}[sys.argv[1]](*sys.argv[2:])
