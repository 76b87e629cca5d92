"""RAPIDS cuDF: a sum by key, out of memory and work after it."""

from checks import beyond, fact, module, verdict

cudf = module("cudf")
rmm = module("rmm")
numpy = module("numpy")


def main():
    fact("version", cudf.__version__)
    free, total = rmm.mr.available_device_memory() if hasattr(rmm.mr, "available_device_memory") else (0, 0)
    if total:
        fact("memory", total, "exact")
        beyond(lambda: rmm.DeviceBuffer(size=total + total // 20), MemoryError)
    host = numpy.arange(100_000)
    sums = cudf.DataFrame({"key": host % 10, "value": host}).groupby("key")["value"].sum().sort_index().to_numpy()
    verdict("computed", (sums == numpy.array([host[host % 10 == key].sum() for key in range(10)])).all())


main()
