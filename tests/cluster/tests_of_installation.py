"""Other values of the chart, and nodes without a driver."""

import json
import time

import pods
from tests_of_slices import LAYOUT, OFFER
from waiting import until

# Without a runtime class, the driver comes by the node's default runtime or not at all.
NO_CLASS = {**LAYOUT, "driver": {"runtimeClassName": ""}, "verification": {"patience": 20}}
FEATURES = "/etc/kubernetes/node-feature-discovery/features.d/tranche"


def no_driver(bed):
    """F1: without a driver the daemon's pod is not ready, and `helm install --wait` fails."""
    bed.chart.uninstall()
    status, output, seconds = bed.chart.install(NO_CLASS, check=False)
    unready = not bed.chart.is_ready("tranched")
    bed.say(f"helm: status {status} after {seconds:.1f} s: {output.splitlines()[0]}")
    bed.chart.uninstall()
    bed.expect(unready, "the daemon's pod is ready, and there is no driver")
    bed.expect(status != 0, f"`helm install --wait` succeeded after {seconds:.1f} s: {output.splitlines()[:2]}")


def default_runtime(bed):
    """Without a runtime class the chart works where the node's default runtime brings the driver."""
    bed.chart.uninstall()
    bed.node.set_default_runtime("nvidia")
    try:
        bed.chart.install(NO_CLASS)
        until("the offer", lambda: bed.chart.offers(**OFFER))
    finally:
        bed.chart.uninstall()
        bed.node.set_default_runtime("runc")


def labels(bed):
    """F4: labels of a profile named `gpu` are not those of the GPUs."""
    # Devices beside slices of another layout would be taken for half a minute.
    bed.chart.uninstall()
    profiles = [{"name": "gpu", "fraction": 1}, {"name": "gpu-50", "fraction": 0.5}]
    layouts = [{"profiles": ["gpu-50", "gpu-50"]}, {"gpu": 0, "profiles": ["gpu"]}]
    bed.chart.install({"profiles": profiles, "layouts": layouts})
    try:
        until("the offer", lambda: bed.chart.offers(**{"gpu": 1, "gpu-50": 14}))
        lines = [line for line in bed.machine.run("cat", FEATURES).splitlines() if "=" in line and line[0] != "#"]
        found = dict(line.split("=", 1) for line in lines)
        bed.say(", ".join(lines))
        bed.expect(len(found) == len(lines), f"two labels have one name: {lines}")
        bed.expect(found["tranche.dev/gpu.count"] == "1", "the profile's count")
        bed.expect("8" in [found.get(f"tranche.dev/{name}") for name in ("gpus", "gpu-count")], "the GPUs' count")
        whole_gpu(bed)
    finally:
        bed.chart.uninstall()


def whole_gpu(bed):
    """A program with a whole GPU, without the shim, is shown in its slice as soon as the plugin knows the pod's uid."""
    bed.api.create(pods.working("alone", "gpu"))
    pods.runs(bed.api, "alone")
    pods.report(bed.api, "alone")

    def shows():
        node = json.loads(bed.chart.tranche(bed.node, "smi", "--json"))
        return [len(one["processes"]) for one in node["slices"]] == [1] and not any(one["foreign"] for one in node["gpus"])

    until("the program in its slice", shows)
    pods.ends(bed.api, "alone")


def dynamic(bed):
    """F6: with dynamic profiles, the plugin counts the pods that lose the race."""
    profiles = [{"name": "gpu-60", "fraction": 0.6}, {"name": "gpu-50", "fraction": 0.5}]
    bed.chart.install({**LAYOUT, "gpus": [0, 1, 2, 3], "profiles": profiles, "layouts": [], "dynamic": True})
    try:
        until("the offer", lambda: bed.chart.offers(**{"gpu-60": 4, "gpu-50": 8}))
        names = [f"{profile}-{number}" for number in range(6) for profile in ("gpu-60", "gpu-50")]
        for name in names:
            bed.api.create(pods.pod(name, limits={f"tranche.dev/{name.rsplit('-', 1)[0]}": 1}))
        time.sleep(10)
        phases = [pods.phase(bed.api, name) for name in names]
        failed = [name for name, phase in zip(names, phases) if phase == "Failed"]
        why = pods.reason(bed.api, failed[0]) if failed else ""
        counted = bed.metric("deviceplugin", 9465, "tranche_deviceplugin_lost_races_total")
        events = [said for reason, said in bed.api.events("node-1") if reason == "GpuRaceLost"]
        bed.say(f"{phases.count('Running')} running, {len(failed)} failed, counted {counted:.0f}, events {len(events)}; {why}")
        pods.ends(bed.api, *names)
        bed.expect(counted >= len(failed), f"{len(failed)} pods failed, and the plugin counted {counted:.0f}")
        bed.expect(events or not failed, "pods failed, and there is no event")
    finally:
        bed.chart.uninstall()
