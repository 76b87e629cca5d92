"""C programs of the driver API: linked, by dlopen and cuGetProcAddress, to the cap, and with threads."""

import json

from checks import TESTS, beyond, fact, fail, output


class OutOfMemory(Exception):
    pass


def client(name, *arguments):
    return json.loads(output(TESTS / name, *arguments, seconds=120))


def main():
    linked, dlopened, cap = client("linked"), client("dlopened"), client("cap")
    client("threads", 1, 4)
    fact("version", linked["device"])
    fact("memory", cap["device_total"], "exact")
    if len({linked["total"], cap["total"], *(road["total"] for road in dlopened["roads"])}) != 1:
        fail("the totals differ by the way to the driver")

    def refusal():
        if cap["beyond"] == cap["refusal"] == 2:
            raise OutOfMemory
    beyond(refusal, OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY")
    if not 0 < cap["filled"] <= cap["device_total"]:
        fail(f"{cap['filled']} bytes were had of {cap['device_total']}")


main()
