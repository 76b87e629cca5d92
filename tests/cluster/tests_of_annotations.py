"""Slices of pods that another scheduler has placed, through the container runtime's plugin (NRI)."""

import json
import time

import pods
from node import CUDA_IMAGE
from waiting import until

# Pods with this annotation start without the plugin, its own among them.
TOLERATES = "tranche.dev/starts-without-nri"
VALUES = {"nri": {"enabled": True}, "devicePlugin": {"enabled": False}, "metrics": {"enabled": True},
          "podAnnotations": {TOLERATES: "true"}, "verification": {"enabled": False}}
PORT = 9467
V100_MIB = 32510


def annotated(name, annotations, gpu, command=None, **spec):
    """A pod as KAI leaves it: annotations, and the GPU that it chose in NVIDIA_VISIBLE_DEVICES."""
    made = pods.pod(name, command or pods.WORK.format(beyond="20Gi"), **spec)
    made["metadata"]["annotations"] = annotations
    made["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": gpu}]
    return made


def gpus(bed):
    """UUIDs of the node's GPUs."""
    return [gpu["uuid"] for gpu in json.loads(bed.chart.tranche(bed.node, "smi", "--json"))["gpus"]]


def failures(bed, name):
    """Messages of failed attempts to start a pod's containers."""
    return [message for reason, message in bed.api.events(name) if reason == "Failed"]


def schedule(bed, is_there):
    """Has the plugin's pod on the node, or on none."""
    selector = {"nowhere": None if is_there else "yes"}
    bed.api.patch("DaemonSet", "tranche-nriplugin", {"spec": {"template": {"spec": {"nodeSelector": selector}}}}, "tranche")
    if not is_there:
        selector = "app.kubernetes.io/component=nriplugin"
        until("the plugin's end", lambda: not bed.api.list("Pod", "tranche", labelSelector=selector))


def reads_annotations(bed):
    """KAI's and gpu-fractioning's annotations: each pod sees its own memory on the chosen GPU, without a failed attempt."""
    bed.chart.uninstall()
    bed.chart.install(VALUES)
    until("the plugin", lambda: bed.chart.is_ready("nriplugin"))
    first = gpus(bed)[0]
    wanted = {
        "fraction": ({"gpu-fraction": "0.5"}, int(V100_MIB * 0.5)),
        "memory": ({"gpu-memory": "8000"}, 8000),
        "own": ({"nvidia.com/container.main.gpu-memory.limit": "4Gi"}, 4096),
    }
    for name, (annotations, _) in wanted.items():
        bed.api.create(annotated(name, annotations, first))
    for name, (_, mib) in wanted.items():
        pods.runs(bed.api, name)
        report = pods.report(bed.api, name)
        seen = report["device"]["total_bytes"] >> 20
        bed.say(f"{name}: sees {seen} MiB, 20 GiB more: {report['beyond'][0] and report['beyond'][0]['error']}")
        bed.expect(seen == mib, f"{name} sees {seen} MiB instead of {mib}")
        bed.expect(report["beyond"][0] is not None, f"{name} was granted 20 GiB beyond its memory")
        bed.expect(not failures(bed, name), f"{name} failed at first: {failures(bed, name)}")
    for slice_ in bed.chart.slices():
        pod = slice_["pod"]
        bed.expect(pod["namespace"] == "default" and pod["name"] in wanted, f"slice of no pod: {slice_['name']}, {pod}")
        bed.expect(slice_["devices"][0]["gpu_uuid"] == first, f"{slice_['name']} is not on the chosen GPU")


def refuses_what_does_not_fit(bed):
    """A half on a full GPU is not started, with the daemon's sentence, and starts when there is room."""
    bed.api.create(annotated("waiting", {"gpu-fraction": "0.5"}, gpus(bed)[0]))
    refused = until("the refusal", lambda: [one for one in failures(bed, "waiting") if "tranched:" in one])
    bed.say(refused[0])
    bed.api.create(annotated("malformed", {"gpu-fraction": "1.5"}, "all"))
    said = until("the other refusal", lambda: [one for one in failures(bed, "malformed") if "gpu-fraction" in one])
    bed.say(said[0])
    bed.expect(pods.phase(bed.api, "malformed") == "Pending", "a malformed annotation was ignored")
    bed.expect(len(bed.chart.slices()) == 3, f"slices: {[one['name'] for one in bed.chart.slices()]}")
    bed.api.delete("Pod", "malformed")
    begun = time.monotonic()
    bed.api.delete("Pod", "fraction")
    pods.runs(bed.api, "waiting")
    bed.say(f"the waiting pod ran {time.monotonic() - begun:.1f} s after the other's deletion")
    counted = bed.metric("nriplugin", PORT, 'tranche_nriplugin_containers_total{outcome="refused"}')
    bed.expect(counted >= 2, f"{counted} containers are counted as refused")


def ends_with_the_pod(bed):
    """Slices are gone within a second after their pods."""
    pods.ends(bed.api, "waiting", "memory", "own")
    ended = time.monotonic()
    until("the end of the slices", lambda: not bed.chart.slices(), pause=0)
    seconds = time.monotonic() - ended
    bed.say(f"no slice is left {seconds:.2f} s after the last pod's end")
    bed.expect(seconds < 1, f"slices ended {seconds:.1f} s after their pods")


def image_cannot_undo_it(bed):
    """An image whose NVIDIA_VISIBLE_DEVICES is set beside the pod's: NVIDIA's runtime mounts no driver over the library."""
    made = annotated("of-cuda", {"gpu-fraction": "0.25"}, gpus(bed)[0], "env; " + pods.WORK.format(beyond="20Gi"), runtimeClassName="nvidia")
    made["spec"]["containers"][0]["image"] = CUDA_IMAGE
    bed.api.create(made)
    pods.runs(bed.api, "of-cuda")
    seen = pods.report(bed.api, "of-cuda")["device"]["total_bytes"] >> 20
    bed.expect(seen == V100_MIB // 4, f"it sees {seen} MiB")
    variables = [line for line in bed.api.logs("of-cuda").splitlines() if line.startswith("NVIDIA_VISIBLE_DEVICES")]
    bed.expect(variables == ["NVIDIA_VISIBLE_DEVICES=void"], f"its variables are {variables}")
    pods.ends(bed.api, "of-cuda")
    until("the end of the slice", lambda: not bed.chart.slices())


def init_container_leaves_its_part(bed):
    """An init container's part is the next container's, on a GPU without room for both."""
    made = annotated("in-turn", {"gpu-fraction": "0.6"}, gpus(bed)[0])
    first = {**made["spec"]["containers"][0], "name": "first", "command": ["sh", "-c", "workload --memory 1Gi --launches 2"]}
    made["spec"]["initContainers"] = [first]
    bed.api.create(made)
    pods.runs(bed.api, "in-turn")
    [slice_] = bed.chart.slices()
    bed.expect(slice_["pod"]["container"] == "main", f"the slice is of {slice_['pod']}")
    pods.ends(bed.api, "in-turn")
    until("the end of the slice", lambda: not bed.chart.slices())


def starts_at_once(bed):
    """100 pods with annotations, 20 at a time: 100 start at the first attempt."""
    chosen, failed = gpus(bed), []
    for turn in range(5):
        names = [f"start-{turn}-{index}" for index in range(20)]
        for index, name in enumerate(names):
            bed.api.create(annotated(name, {"gpu-fraction": "0.3"}, chosen[index % 8], "exit 0"))
        for name in names:
            until(f"pod {name}", lambda: pods.phase(bed.api, name) == "Succeeded")
            failed += failures(bed, name)
        pods.ends(bed.api, *names)
    bed.say(f"{len(failed)} of 100 starts failed at first")
    bed.expect(not failed, f"failed attempts: {failed[:3]}")
    until("the end of the slices", lambda: not bed.chart.slices())


def reports_what_has_no_slice(bed):
    """A container that was created while the plugin was away is in the log and the metrics."""
    schedule(bed, False)
    bed.api.create(annotated("unfenced", {"gpu-fraction": "0.5"}, gpus(bed)[0], "sleep 3600"))
    pods.runs(bed.api, "unfenced")
    bed.expect(not bed.chart.slices(), "a slice without the plugin")
    schedule(bed, True)
    until("the plugin", lambda: bed.chart.is_ready("nriplugin"))
    bed.expect(bed.metric("nriplugin", PORT, "tranche_nriplugin_unfenced_containers") == 1, "it is not in the metrics")
    bed.expect("default/unfenced/main" in bed.chart.logs("nriplugin"), "it is not in the log")
    pods.ends(bed.api, "unfenced")


def required_plugin_is_awaited(bed):
    """With the plugin required in containerd's configuration, no container is created without it."""
    bed.node.configure_containerd(
        "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\nrequired_plugins = ['tranche']\n"
        f"tolerate_missing_plugins_annotation = '{TOLERATES}'\n")
    schedule(bed, False)
    bed.api.create(annotated("fenced", {"gpu-fraction": "0.5"}, gpus(bed)[0]))
    said = until("the refusal", lambda: [one for one in failures(bed, "fenced") if 'required plugin "tranche"' in one])
    bed.say(said[0])
    schedule(bed, True)
    pods.runs(bed.api, "fenced")
    bed.expect(len(bed.chart.slices()) == 1, "the container has no slice")
    pods.ends(bed.api, "fenced")
    bed.node.configure_containerd("")


def survives_restarts(bed):
    """After restarts of containerd and of the plugin slices are there, and end with their pods."""
    chosen = gpus(bed)
    for name, gpu in (("stays", chosen[0]), ("leaves", chosen[1])):
        bed.api.create(annotated(name, {"gpu-fraction": "0.5"}, gpu))
        pods.runs(bed.api, name)
    registrations = lambda: bed.chart.logs("nriplugin").count("registered runtime=")
    before = registrations()
    bed.node.restart_containerd()
    until("another registration", lambda: registrations() > before)
    pods.ends(bed.api, "leaves")
    until("the end of its slice", lambda: len(bed.chart.slices()) == 1)
    schedule(bed, False)
    pods.ends(bed.api, "stays")
    bed.expect(len(bed.chart.slices()) == 1, "the slice ended without the plugin")
    schedule(bed, True)
    until("the end of the slice", lambda: not bed.chart.slices())
