"""Restarts of the kubelet and of the node."""

import time

import pods
from tests_of_slices import LAYOUT, OFFER
from waiting import until


def kubelet_restarts(bed):
    """Pods continue while the kubelet restarts, and the plugin registers with the new one."""
    bed.api.create(pods.working("steady", "gpu-50"))
    pods.runs(bed.api, "steady")
    before = bed.api.get("Pod", "steady")["status"]["containerStatuses"][0]["containerID"]
    bed.node.restart_kubelet()
    bed.api.create(pods.working("next", "gpu-30"))
    pods.runs(bed.api, "next")
    after = bed.api.get("Pod", "steady")["status"]["containerStatuses"][0]["containerID"]
    bed.expect(before == after, "the pod's container was replaced")


def power_cut(bed):
    """F5: after a power cut, pods get slices again."""
    if bed.api.get("Pod", "steady") is None:
        bed.api.create(pods.working("steady", "gpu-50"))
        pods.runs(bed.api, "steady")
    components = ("tranched", "deviceplugin")
    before = [bed.chart.container(component) for component in components]
    begun = time.monotonic()
    bed.cluster.power_cut()
    bed.say(f"power cut, and kubelet and containerd started again after {time.monotonic() - begun:.1f} s")
    # Until the kubelet has reported, the API server has the state of before.
    until("new containers of daemon and plugin", lambda: all(
        bed.chart.is_ready(component) and bed.chart.container(component) not in (None, old)
        for component, old in zip(components, before)))
    until("the offer", lambda: bed.chart.offers(**OFFER))
    bed.say(f"the plugin offers again {time.monotonic() - begun:.1f} s after the cut")
    # A limit of the interface: the kubelet admits pods again before any plugin has registered, and refuses them.
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and pods.phase(bed.api, "steady") != "Failed":
        time.sleep(0.5)
    for name in pods.present(bed.api, "steady", "next"):
        status = bed.api.get("Pod", name)["status"]
        restarts = [one["restartCount"] for one in status.get("containerStatuses", [])]
        bed.say(f"pod {name}: {status['phase']}, restarts {restarts}, {pods.reason(bed.api, name)}, {bed.api.events(name)[-1]}")
    bed.api.create(pods.working("after", "gpu-50"))
    pods.runs(bed.api, "after")
    seen = pods.report(bed.api, "after")["device"]["total_bytes"] >> 20
    bed.expect(seen == 16255, f"a pod after it sees {seen} MiB")
    pods.ends(bed.api, *pods.present(bed.api, "steady", "next", "after"))
