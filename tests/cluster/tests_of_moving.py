"""Pods written for HAMi, for NVIDIA's time-slicing, or with an annotation: their requests become profiles."""

import json

import pods
from cluster import TREE
from node import IMAGE
from waiting import Failed, holds_for, until

V100_MIB = 32510
PROFILES = [{"name": "gpu-10", "fraction": 0.1}, {"name": "gpu-25", "fraction": 0.25}, {"name": "gpu-50", "fraction": 0.5},
            {"name": "gpu", "fraction": 1}]
COMPATIBILITY = {"enabled": True, "gpuMemoryMiB": V100_MIB, "plain": "gpu-25"}
VALUES = {"devicePlugin": {"enabled": False}, "dra": {"enabled": True, "profiles": PROFILES}, "compatibility": COMPATIBILITY}
HAMI = "nvidia.com/gpumem"


def moving(bed):
    """The manifests of docs/moving.md, unchanged: each pod gets the smallest profile that suffices, and sees its own memory."""
    bed.clear()
    bed.chart.uninstall()
    bed.chart.install(VALUES)
    until("the parts", lambda: any("gpu-25" in name for name in pods.devices(bed.api).get("node-1", {})))
    text = (TREE / "docs/moving.md").read_text()
    block = text[text.index("apiVersion: v1\nkind: Pod"):]
    command = f"image: {IMAGE}\n      imagePullPolicy: Never\n      command: {json.dumps(['sh', '-c', pods.WORK.format(beyond='31Gi')])}"
    bed.api.apply(block[:block.index("```")].replace("image: my-cuda-image", command))
    for name, permille in {"from-hami": 250, "from-time-slicing": 250, "with-a-fraction": 500}.items():
        pods.runs(bed.api, name)
        seen = pods.report(bed.api, name)["device"]["total_bytes"] >> 20
        bed.say(f"{name} sees {seen} MiB")
        bed.expect(seen == V100_MIB * permille // 1000, f"{name} sees {seen} MiB of {V100_MIB}")
    pods.ends(bed.api, "from-hami", "from-time-slicing", "with-a-fraction")


def moving_rules(bed):
    """Each request has its profile, what is larger than any stays, and what cannot be read is refused."""
    def requested(limits, annotations=None):
        made = pods.pod("asked", limits=limits)
        made["metadata"]["annotations"] = annotations or {}
        made["spec"]["schedulerName"] = "nobody"
        bed.api.create(made)
        has = bed.api.get("Pod", "asked")["spec"]["containers"][0]["resources"]
        bed.api.delete("Pod", "asked", grace=0)
        bed.api.gone("Pod", "asked")
        bed.expect(has["limits"] == has["requests"], f"limits and requests differ: {has}")
        return has["limits"]

    bed.chart.install(VALUES)
    gpu, mem, percent, cores = ("nvidia.com/gpu", HAMI, f"{HAMI}-percentage", "nvidia.com/gpucores")
    profile = lambda name: {f"tranche.dev/{name}": "1"}
    for limits, expected in [
        ({gpu: "1", mem: "3000"}, profile("gpu-10")),
        ({mem: "3252"}, profile("gpu-25")),
        ({mem: "3251"}, profile("gpu-10")),
        ({gpu: "1", percent: "50"}, profile("gpu-50")),
        ({gpu: "1", mem: "3000", cores: "30"}, profile("gpu-50")),
        ({gpu: "1", cores: "51"}, profile("gpu")),
        ({gpu: "1", "cpu": "1"}, {"cpu": "1", **profile("gpu-25")}),
        ({gpu: "2", mem: "3001"}, {gpu: "2", mem: "3001"}),
        ({gpu: "1", mem: "33001"}, {gpu: "1", mem: "33001"}),
        ({"cpu": "1"}, {"cpu": "1"}),
    ]:
        has = requested(limits)
        bed.expect(has == expected, f"{limits} became {has}")
    bed.expect(requested({gpu: "1"}, {"gpu-fraction": "0.251"}) == profile("gpu-50"), "the annotation")
    for limits, annotations in [({gpu: "1"}, {"gpu-fraction": "half"}), ({mem: "0.5"}, {})]:
        try:
            has = requested(limits, annotations)
        except Exception as refused:
            bed.say(f"refused: {str(refused)[-300:]}")
        else:
            raise Failed(f"{limits} with {annotations} was accepted as {has}")
    too_large = pods.pod("too-large", limits={gpu: "1", mem: "33000"})
    bed.api.create(too_large)
    bed.expect(holds_for(2, lambda: pods.phase(bed.api, "too-large") == "Pending"), "it is pending")
    pods.ends(bed.api, "too-large")
    bed.chart.uninstall()
