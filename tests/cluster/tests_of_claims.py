"""What pods get of GPUs by resource claims."""

import json
import time

import pods
from cluster import TREE
from node import IMAGE
from waiting import Failed, holds_for, until

DRA = {"devicePlugin": {"enabled": False}, "dra": {"enabled": True, "config": "recovery_s = 4"}, "metrics": {"enabled": True}}
DRIVER = "gpu.tranche.dev"
V100_MIB = 32510
PORT = 9466


def part(name, permille, **more):
    """A claim for a part of a GPU, memory and compute."""
    return pods.claim(name, memory=f"{V100_MIB * permille // 1000}Mi", compute=str(permille), **more)


def apart(claim):
    """The claim with its devices on distinct GPUs."""
    claim["spec"]["devices"]["constraints"] = [{"distinctAttribute": f"{DRIVER}/uuid"}]
    return claim


def working(bed, name, permille):
    bed.api.create(part(name, permille))
    bed.api.create(pods.pod(name, pods.WORK.format(beyond="20Gi"), claims=[name]))


def ended(bed, *names):
    pods.ends(bed.api, *names)
    for name in names:
        bed.api.delete("ResourceClaim", name)
        bed.api.gone("ResourceClaim", name)


def publishes(bed):
    """`helm install --wait` succeeds with the DRA driver, and each GPU is a device with its memory and compute."""
    # Slices of pods that have ended would have part of a GPU for half a minute.
    bed.clear()
    bed.chart.uninstall()
    installed(bed, bed.chart, DRA)


def installed(bed, chart, values):
    """Installs a chart with values for the driver, and looks for the devices."""
    _, _, seconds = chart.install(values)
    bed.say(f"`helm install --wait` of {chart.place.name} took {seconds:.1f} s")
    pool = until("the pool", lambda: pods.devices(bed.api).get("node-1"))
    bed.say(f"devices: {pool}")
    bed.expect(len(pool) == 8, f"{len(pool)} devices of 8 GPUs")
    sizes = {tuple(sorted(device.items())) for device in pool.values()}
    bed.expect(sizes == {(("compute", "1k"), ("memory", f"{V100_MIB}Mi"))}, f"sizes are {sizes}")


def claims_share(bed):
    """Claims of 0.5, 0.3 and 0.2 share one GPU, another 0.3 has the next; each sees its own memory, and no more."""
    wanted = {"half": 500, "third": 300, "other-third": 300, "fifth": 200}
    labelled = lambda: sorted((one.get("pod") or {}).get("name", "") for one in bed.chart.slices())
    for number, (name, permille) in enumerate(wanted.items()):
        working(bed, name, permille)
        pods.runs(bed.api, name)
        begun = time.monotonic()
        until("the pod of its slice", lambda: labelled() == sorted(list(wanted)[:number + 1]), pause=0.05)
        bed.say(f"the slice of {name} has its pod {time.monotonic() - begun:.1f} s after the pod ran")
    where = {}
    for name, permille in wanted.items():
        report = pods.report(bed.api, name)
        seen = report["device"]["total_bytes"] >> 20
        bed.expect(seen == V100_MIB * permille // 1000, f"{name} sees {seen} MiB of {V100_MIB}")
        bed.expect(report["beyond"][0] is not None, f"{name} was granted 20 GiB beyond its memory")
        where[name] = pods.allocated(bed.api, name)[0][0]
    bed.expect(where["half"] == where["third"] == where["fifth"] != where["other-third"], f"GPUs: {where}")


def claims_wait(bed):
    """A claim that fits nowhere waits, and has the room of another as soon as that one's pod has ended."""
    for number in range(6):
        bed.api.create(part(f"whole-{number}", 1000))
        bed.api.create(pods.pod(f"whole-{number}", claims=[f"whole-{number}"]))
    for number in range(6):
        pods.runs(bed.api, f"whole-{number}")
    working(bed, "waits", 600)
    # GPUs: 0.5 + 0.3 + 0.2, 0.3, and six whole ones.
    pods.runs(bed.api, "waits")
    working(bed, "waits-too", 600)
    bed.expect(holds_for(3, lambda: pods.phase(bed.api, "waits-too") == "Pending"), "the second is pending")
    begun = time.monotonic()
    bed.api.delete("Pod", "whole-0")
    pods.runs(bed.api, "waits-too")
    bed.say(f"the waiting pod ran {time.monotonic() - begun:.1f} s after the other's deletion")


def claims_end(bed):
    """A slice ends within a second of its pod's end."""
    names = ["half", "third", "other-third", "fifth", "waits", "waits-too"]
    pods.ends(bed.api, *names)
    begun = time.monotonic()
    until("the end of the slices", lambda: len(bed.chart.slices()) == 5, pause=0)
    seconds = time.monotonic() - begun
    bed.say(f"slices were gone {seconds:.2f} s after the last pod")
    bed.expect(seconds < 1, f"slices were gone {seconds:.2f} s after the last pod")
    ended(bed, *names, *(f"whole-{number}" for number in range(6)))
    bed.expect(not bed.chart.slices(), f"slices are left: {bed.chart.slices()}")


def whole_gpu_has_its_processes(bed):
    """A program with a whole GPU, without the shim, is shown in its slice, and taints no GPU."""
    def shows():
        node = json.loads(bed.chart.tranche(bed.node, "smi", "--json"))
        processes = [process for one in node["slices"] for process in one["processes"]]
        return node if len(processes) == 1 and not any(gpu["foreign"] for gpu in node["gpus"]) else None

    # The simulated driver shows every GPU to a program without the shim, which works on the first.
    first = part("alone", 1000)
    first["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
        {"cel": {"expression": f"device.attributes['{DRIVER}'].index == 0"}}]
    bed.api.create(first)
    bed.api.create(pods.pod("alone", pods.WORK.format(beyond="1Gi"), claims=["alone"]))
    pods.runs(bed.api, "alone")
    pods.report(bed.api, "alone")
    node = until("the program in its slice", shows)
    [slice_] = node["slices"]
    [process] = slice_["processes"]
    bed.say(f"the slice of pod {slice_['pod']['name']} has {process['command']} with {process['used'][0] >> 20} MiB")
    bed.expect(process["used"][0] >= 1 << 30, f"1 GiB is allocated, and {process['used']} is shown")

    def works():
        [one] = json.loads(bed.chart.tranche(bed.node, "smi", "--json"))["slices"]
        return one if one["devices"][0]["compute_used_1s"] > 0 else None

    one = until("the GPU time that it uses", works)
    has = (one["tier"], one["compute_state"], one.get("idle_ms"))
    bed.say(f"it has used {one['devices'][0]['compute_used_1s'] / 10:.0f} % of the GPU in a second; tier {has[0]}, {has[1]}")
    bed.expect(has == ("whole", "running", None), f"tier, state and idle time are {has}")
    ended(bed, "alone")


def claims_of_several_gpus(bed):
    """Two parts of a claim are on distinct GPUs and one slice, with the constraint and without."""
    bed.api.create(apart(part("pair", 400, count=2)))
    bed.api.create(pods.pod("pair", pods.WORK.format(beyond="20Gi"), claims=["pair"]))
    pods.runs(bed.api, "pair")
    [slice_] = bed.chart.slices()
    bed.expect(len(slice_["devices"]) == 2, f"the slice has {slice_['devices']}")
    bed.api.create(part("twice", 200, count=2))
    bed.api.create(pods.pod("twice", claims=["twice"]))
    pods.runs(bed.api, "twice")
    # This scheduler gives a claim no second part of a GPU, asked or not; the driver would refuse it.
    gpus = [device for device, _ in pods.allocated(bed.api, "twice")]
    bed.expect(len(set(gpus)) == 2, f"two parts of {gpus}")
    ended(bed, "pair", "twice")


def claim_of_several(bed):
    """Two containers of a pod and another pod use one claim at a time: one slice and one memory cap for all of them."""
    bed.api.create(part("common", 500))
    both = pods.pod("both", pods.WORK.format(beyond="14Gi"), claims=["common"])
    [main] = both["spec"]["containers"]
    both["spec"]["containers"].append({**main, "name": "second"})
    bed.api.create(both)
    pods.runs(bed.api, "both")
    bed.api.create(pods.pod("guest", pods.WORK.format(beyond="14Gi"), claims=["common"]))
    pods.runs(bed.api, "guest")
    for name, container in (("both", "main"), ("both", "second"), ("guest", "main")):
        report = pods.report(bed.api, name, container)
        seen = report["device"]["total_bytes"] >> 20
        bed.expect(seen == V100_MIB // 2, f"{container} of {name} sees {seen} MiB of {V100_MIB}")
    # 14 GiB are free to one program of 1 GiB, and not to three.
    bed.expect(pods.report(bed.api, "guest")["beyond"][0] is not None, "the guest was granted what the others have")
    inside = lambda: [len(one["processes"]) for one in bed.chart.slices()]
    until("three programs in one slice", lambda: inside() == [3])
    pods.ends(bed.api, "guest")
    until("two programs in it", lambda: inside() == [2])
    ended(bed, "both")
    bed.api.delete("ResourceClaim", "common")
    until("the end of the slice", lambda: not bed.chart.slices())


def parameters(bed):
    """Parameters of a claim are those of its slice; what is not known is refused."""
    def with_parameters(name, **fields):
        claim = part(name, 300)
        document = {"apiVersion": f"{DRIVER}/v1", "kind": "SliceParameters", **fields}
        claim["spec"]["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": document}}]
        bed.api.create(claim)
        bed.api.create(pods.pod(name, claims=[name]))

    with_parameters("strict", computeMode="strict", priority=3, latencyMs=20)
    pods.runs(bed.api, "strict")
    [slice_] = bed.chart.slices()
    has = {name: slice_[name] for name in ("mode", "priority")}
    bed.expect(has == {"mode": "strict", "priority": 3}, f"the slice has {has}")
    with_parameters("wrong", colour="red")
    until("the refusal", lambda: any("colour" in said for _, said in bed.api.events("wrong")))
    ended(bed, "strict", "wrong")


def documented_manifest(bed):
    """The manifest of docs/kubernetes.md works as it is written there, with another image."""
    text = (TREE / "docs/kubernetes.md").read_text()
    block = text[text.index("kind: ResourceClaimTemplate"):]
    block = "apiVersion: resource.k8s.io/v1\n" + block[:block.index("```")].replace("my-cuda-image", IMAGE)
    bed.api.apply(block)
    pods.runs(bed.api, "train")
    [slice_] = bed.chart.slices()
    has = (slice_["mode"], slice_["priority"], slice_["devices"][0]["cap"] >> 20)
    bed.expect(has == ("strict", 1, 16255), f"the slice has {has}")
    pods.ends(bed.api, "train")


def claims_storm(bed):
    """Twelve claims of 0.6 and twelve of 0.5 at once on eight GPUs: as many run as fit, and none fails."""
    names = [f"storm-{permille}-{number}" for number in range(12) for permille in (600, 500)]
    for name in names:
        bed.api.create(part(name, int(name.split("-")[1])))
    for name in names:
        bed.api.create(pods.pod(name, claims=[name], restartPolicy="Always"))

    # Until nothing has changed for 5 s, once there is a pod on each GPU.
    phases, since, begun = [], time.monotonic(), time.monotonic()
    while (time.monotonic() - since < 5 or phases.count("Running") < 8) and time.monotonic() - begun < 90:
        now = [pods.phase(bed.api, name) for name in names]
        if now != phases:
            phases, since = now, time.monotonic()
        time.sleep(0.2)
    used = {}
    for name, phase in zip(names, phases):
        if phase == "Running":
            device = pods.allocated(bed.api, name)[0][0]
            used[device] = used.get(device, 0) + int(name.split("-")[1])
    bed.say(f"{phases.count('Running')} running, {phases.count('Pending')} pending; permille by GPU: {sorted(used.values())}")
    bed.expect(set(phases) <= {"Running", "Pending"}, f"phases: {phases}")
    bed.expect(all(500 < amount <= 1000 for amount in used.values()) and len(used) == 8, f"by GPU: {used}")
    bed.expect(len(bed.chart.slices()) == phases.count("Running"), f"slices: {len(bed.chart.slices())}")


def claims_are_prepared_in_time(bed):
    """100 claims, 20 at a time: the time from the kubelet's request to the slice is counted, and below a second for 99."""
    ended(bed, *(pod["metadata"]["name"] for pod in bed.api.list("Pod")))
    name = "tranche_dradriver_prepare_seconds"
    bounds = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "1.0", "2.5", "10.0"]
    counts = lambda: [bed.metric("dradriver", PORT, f'{name}_bucket{{le="{bound}"}}') for bound in bounds]
    before = counts()
    for turn in range(5):
        names = [f"prompt-{turn}-{number}" for number in range(20)]
        for one in names:
            bed.api.create(part(one, 300))
            bed.api.create(pods.pod(one, "exit 0", claims=[one]))
        for one in names:
            until(f"pod {one}", lambda: pods.phase(bed.api, one) == "Succeeded")
        ended(bed, *names)
    within = {bound: int(now - then) for bound, now, then in zip(bounds, counts(), before)}
    bed.say(f"claims prepared within so many seconds: {within}")
    bed.expect(within["10.0"] >= 100, f"{within['10.0']} of 100 claims are counted")
    bed.expect(within["1.0"] >= 0.99 * within["10.0"], "claims are prepared slowly")


def claims_survive_power_cut(bed):
    """After a power cut the same pods run again, and none has failed."""
    listed = lambda: {one["metadata"]["name"]: one for one in bed.api.list("Pod")}
    before = {name: one["metadata"]["uid"] for name, one in listed().items() if one["status"]["phase"] == "Running"}
    bed.expect(before, "no pod runs before it")
    bed.cluster.power_cut()
    begun = time.monotonic()

    def again():
        now = listed()
        if failed := [name for name in before if now[name]["status"]["phase"] == "Failed"]:
            raise Failed(f"{failed[0]} failed: {pods.reason(bed.api, failed[0])}")
        restarted = [name for name in before if any(one.get("restartCount", 0) > 0 and one.get("ready")
                                                   for one in now[name]["status"].get("containerStatuses", []))]
        return len(restarted) == len(before)

    until("the pods to run again", again, patience=120)
    after = {name: one["metadata"]["uid"] for name, one in listed().items()}
    bed.say(f"{len(before)} pods run again {time.monotonic() - begun:.1f} s after the boot")
    bed.expect(all(after[name] == uid for name, uid in before.items()), "pods were replaced")
    ended(bed, *(name for name in listed() if name.startswith("storm-")))


def profiles_are_resources(bed):
    """Pods request profiles in their limits, without claims: any mixture that fits is on a GPU, and the rest waits."""
    bed.clear()
    profiles = [{"name": f"gpu-{percent}", "fraction": percent / 100} for percent in (50, 30, 20)]
    bed.chart.install({**DRA, "dra": {**DRA["dra"], "profiles": profiles, "profileGpus": [0]}})
    until("the parts", lambda: sum("gpu-50" in name for name in pods.devices(bed.api).get("node-1", {})) == 2)
    names = {"a": 50, "b": 30, "c": 20}
    for name, percent in names.items():
        bed.api.create(pods.working(name, f"gpu-{percent}"))
    for name, percent in names.items():
        pods.runs(bed.api, name)
        seen = pods.report(bed.api, name)["device"]["total_bytes"] >> 20
        bed.expect(seen == V100_MIB * percent // 100, f"{name} sees {seen} MiB of {V100_MIB}")
    bed.api.create(pods.working("d", "gpu-20"))
    bed.expect(holds_for(3, lambda: pods.phase(bed.api, "d") == "Pending"), "the fourth is pending")
    bed.api.delete("Pod", "b")
    pods.runs(bed.api, "d")
    # The other GPUs take claims of any size.
    working(bed, "any", 123)
    pods.runs(bed.api, "any")
    pods.ends(bed.api, "a", "b", "c", "d", "any")
    ended(bed, "any")
    bed.expect(not bed.chart.slices(), f"slices are left: {bed.chart.slices()}")
    bed.chart.install(DRA)


def lost_gpu_is_tainted(bed):
    """A lost GPU has a taint until it has been well for recovery_s (4 s here), and no claim comes to it."""
    def taints():
        slices = [one for one in bed.api.list("ResourceSlice") if one["spec"]["driver"] == DRIVER]
        return {device["name"]: [taint["key"] for taint in device.get("taints", [])]
                for one in slices for device in one["spec"].get("devices", [])}

    until("the driver", lambda: bed.chart.is_ready("dradriver") and bed.chart.is_ready("tranched"))
    bed.node.simgpu("set", "--gpu", "1", "--lost", "on")
    lost = time.monotonic()
    until("the taint", lambda: any(taints().values()))
    bed.say(f"tainted {time.monotonic() - lost:.1f} s after the loss: {[keys for keys in taints().values() if keys]}")
    bed.node.simgpu("set", "--gpu", "1", "--lost", "off")
    well = time.monotonic()
    until("the end of the taint", lambda: not any(taints().values()))
    seconds = time.monotonic() - well
    bed.say(f"free of it {seconds:.1f} s after it was well")
    bed.expect(seconds >= 4, f"the taint went after {seconds:.1f} s")


def lost_gpu_evicts(bed):
    """With `evict_on` a pod leaves a lost GPU, and a pod of its Deployment has a claim on another."""
    config = f'{DRA["dra"]["config"]}\nevict_on = ["gone", "unusable"]'
    bed.chart.install({**DRA, "dra": {**DRA["dra"], "config": config}})
    spec = part("template", 500)["spec"]
    bed.api.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "half"}, "spec": {"spec": spec}})
    body = pods.pod("replica", pods.WORK.format(beyond="20Gi"), claims=["half"])["spec"]
    body["resourceClaims"] = [{"name": "half", "resourceClaimTemplateName": "half"}]
    labels = {"app": "replica"}
    bed.api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "replica"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {**body, "restartPolicy": "Always"}}}})
    place = lambda: [(one["pod"]["uid"], one["devices"][0]["gpu_index"]) for one in bed.chart.slices()
                     if (one.get("pod") or {}).get("uid") and one["processes"]]
    [(uid, gpu)] = until("the pod's slice", place)
    bed.node.simgpu("set", "--gpu", str(gpu), "--lost", "on")
    lost = time.monotonic()
    moved = lambda: [pod for pod, where in place() if pod != uid and where != gpu]
    until("a pod on another GPU", moved, patience=90)
    bed.say(f"the Deployment's next pod runs on another GPU {time.monotonic() - lost:.1f} s after the loss")
    bed.node.simgpu("set", "--gpu", str(gpu), "--lost", "off")
    bed.api.delete("Deployment", "replica")
    bed.api.delete("ResourceClaimTemplate", "half")
    until("the end of its slices", lambda: not bed.chart.slices(), patience=90)
    bed.chart.uninstall()
