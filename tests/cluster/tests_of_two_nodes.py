"""Claims on two nodes of eight GPUs each."""

import collections
import time

import pods
from tests_of_claims import DRA, V100_MIB, ended, part
from waiting import Failed, until

# Reports once and holds its slice; sixteen GPUs of programs that compute would be all of a small machine.
HOLD = "workload --memory 1Gi --launches 20; exec sleep 36000"
GPUS = 16


def claims_two_nodes(bed):
    """24 claims of 0.6 and 0.5 on 16 GPUs of two nodes are packed, none fails, and the same pods run after a power cut."""
    bed.clear()
    bed.chart.uninstall()
    bed.chart.install(DRA, wait="120s")
    until("both pools", lambda: sorted(len(pool) for pool in pods.devices(bed.api).values()) == [8, 8])
    sizes = {f"two-{permille}-{number}": permille for number in range(12) for permille in (600, 500)}
    for name, permille in sizes.items():
        bed.api.create(part(name, permille))
        bed.api.create(pods.pod(name, HOLD, claims=[name], restartPolicy="Always"))
    running = settled(bed, sizes)
    packed(bed, sizes, running)
    totals(bed, sizes, running, restarts=0)
    before = {name: pod["metadata"]["uid"] for name, pod in listed(bed).items()}

    bed.cluster.power_cut()
    begun = time.monotonic()
    until("the pods to run again", lambda: all(starts(listed(bed)[name]) == 1 for name in running), patience=180)
    bed.say(f"{len(running)} pods run again {time.monotonic() - begun:.1f} s after both nodes' boot")
    after = {name: pod["metadata"]["uid"] for name, pod in listed(bed).items()}
    bed.expect(after == before, "pods were replaced")
    bed.expect(settled(bed, sizes) == running, "other pods run than before")
    packed(bed, sizes, running)
    totals(bed, sizes, running, restarts=1)
    ended(bed, *sizes)
    bed.expect(not bed.chart.slices(), f"slices are left: {bed.chart.slices()}")


def listed(bed):
    return {one["metadata"]["name"]: one for one in bed.api.list("Pod") if one["metadata"]["name"].startswith("two-")}


def starts(pod):
    """How often the container was restarted and is ready; nothing where it is not."""
    if pod["status"]["phase"] == "Failed":
        raise Failed(f"{pod['metadata']['name']} failed: {pod['status'].get('message')}")
    [status] = pod["status"].get("containerStatuses") or [{}]
    return status.get("restartCount") if status.get("ready") else None


def settled(bed, names, patience=120):
    """Names of the pods that run, once no phase has changed for 6 s. A pod that has failed is a failure."""
    phases, since, begun = {}, time.monotonic(), time.monotonic()
    while time.monotonic() - since < 6 or "Running" not in phases.values():
        bed.expect(time.monotonic() - begun < patience, f"phases still change after {patience} s: {phases}")
        now = {name: pod["status"]["phase"] for name, pod in listed(bed).items()}
        if now != phases:
            phases, since = now, time.monotonic()
        time.sleep(0.2)
    failed = [name for name, phase in phases.items() if phase not in ("Running", "Pending")]
    bed.expect(not failed and len(phases) == len(names), f"{len(phases)} pods, {len(failed)} of them failed: {failed}")
    return {name for name, phase in phases.items() if phase == "Running"}


def packed(bed, sizes, running):
    """No GPU has more than all of it, and none has room for a pod that is pending."""
    used = collections.Counter({(node, device): 0 for node, pool in pods.devices(bed.api).items() for device in pool})
    bed.expect(len(used) == GPUS, f"{len(used)} GPUs")
    for name in running:
        used[place(bed, name)] += sizes[name]
    pending = [size for name, size in sizes.items() if name not in running]
    free = 1000 - min(used.values())
    bed.say(f"{len(running)} running, {len(pending)} pending, 0 failed; permille by GPU: {sorted(used.values())}")
    bed.expect(max(used.values()) <= 1000, f"a GPU is promised twice: {used}")
    bed.expect(not pending or min(pending) > free, f"{min(pending, default=0)} permille wait, and {free} are free: {used}")
    bed.expect(pending, "no pod waits, so nothing was shown about room")
    by_node = collections.Counter(listed(bed)[name]["spec"]["nodeName"] for name in running)
    bed.expect(len(by_node) == 2, f"pods by node: {by_node}")
    bed.expect(len(bed.chart.slices()) == len(running), f"{len(bed.chart.slices())} slices of {len(running)} pods")


def place(bed, name):
    """Pool and device of a claim, which has one of each."""
    [result] = bed.api.get("ResourceClaim", name)["status"]["allocation"]["devices"]["results"]
    return result["pool"], result["device"]


def totals(bed, sizes, running, restarts):
    """The program in each pod sees the memory of its claim as that of the GPU."""
    for name in sorted(running):
        bed.expect(starts(listed(bed)[name]) == restarts, f"{name} is restarted {starts(listed(bed)[name])} times")
        seen = pods.report(bed.api, name)["device"]["total_bytes"] >> 20
        bed.expect(seen == V100_MIB * sizes[name] // 1000, f"{name} sees {seen} MiB of {V100_MIB}")
