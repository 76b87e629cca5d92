"""nvidia-ml-py: NVML's own answers about memory."""

from importlib.metadata import version

from checks import fact, module, skip


def main():
    nvml = module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        skip(error)
    fact("version", version("nvidia-ml-py"))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    fact("memory", nvml.nvmlDeviceGetMemoryInfo(handle).total, "about")


main()
