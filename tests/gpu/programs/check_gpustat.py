"""gpustat: its own table."""

from checks import MIB, fact, module, skip


def main():
    gpustat = module("gpustat")
    fact("version", gpustat.__version__)
    try:
        gpus = gpustat.new_query()
    except Exception as error:  # it has no class of its own for a machine without NVML
        skip(error)
    fact("memory", gpus[0].memory_total * MIB, "about")


main()
