"""C programs of the driver API: linked with it, by dlopen and cuGetProcAddress, and with threads."""

import json

from checks import TESTS, beyond, fact, fail, output


class OutOfMemory(Exception):
    pass


def client(name, *arguments):
    return json.loads(output(TESTS / name, *arguments, seconds=60))


def main():
    linked, roads = client("linked"), client("dlopened")["roads"]
    client("threads", 1, 4)
    fact("version", linked["device"])
    fact("memory", linked["device_total"], "exact")
    if {linked["total"], *(road["total"] for road in roads)} != {linked["device_total"]}:
        fail("the totals differ by the way to the driver")

    def refusal():
        if all(answer["beyond"] == 2 for answer in (linked, *roads)):
            raise OutOfMemory
    beyond(refusal, OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY")


main()
