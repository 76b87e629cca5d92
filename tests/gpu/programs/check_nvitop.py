"""nvitop: devices as its library has them."""

from checks import fact, module, skip


def main():
    nvitop = module("nvitop")
    fact("version", nvitop.__version__)
    devices = nvitop.Device.all()
    if not devices:
        skip("nvitop lists no GPU")
    fact("memory", devices[0].memory_total(), "about")


main()
