"""Slices of pods through the device plugin."""

import time

import pods
from waiting import holds_for, until

# Two GPUs are enough, and with few devices a full node is reached quickly.
LAYOUT = {"gpus": [0, 1], "metrics": {"enabled": True}, "devicePlugin": {"config": "recovery_s = 8"}}
OFFER = {"gpu-50": 2, "gpu-30": 2, "gpu-20": 2}
V100_MIB = 32510
SHARES = {"gpu-50": 0.5, "gpu-30": 0.3, "gpu-20": 0.2}


def installs(bed):
    """`helm install --wait` succeeds, and the node offers what the layout holds."""
    _, _, seconds = bed.chart.install(LAYOUT)
    bed.say(f"`helm install --wait` took {seconds:.1f} s")
    until("the offer", lambda: bed.chart.offers(**OFFER))
    until("the daemon's pod to be ready", lambda: bed.chart.is_ready("tranched"))


def shares(bed):
    """0.5 + 0.3 + 0.2 in three pods: each sees its own memory, and is refused what is beyond."""
    for name in SHARES:
        bed.api.create(pods.working(name, name))
    for name, share in SHARES.items():
        pods.runs(bed.api, name)
        report = pods.report(bed.api, name)
        seen = report["device"]["total_bytes"] >> 20
        bed.say(f"{name}: sees {seen} MiB, 20 GiB more: {report['beyond'][0] and report['beyond'][0]['error']}")
        bed.expect(seen == int(V100_MIB * share), f"{name} sees {seen} MiB of {V100_MIB}")
        bed.expect(report["beyond"][0] is not None, f"{name} was granted 20 GiB beyond its memory")
    until("every slice's process", lambda: [len(one["processes"]) for one in bed.chart.slices()] == [1, 1, 1])


def waits_for_room(bed):
    """A pod for which there is no room is pending, and starts when another ends."""
    bed.api.create(pods.working("second", "gpu-50"))
    pods.runs(bed.api, "second")
    bed.api.create(pods.working("third", "gpu-50"))
    bed.expect(holds_for(3, lambda: pods.phase(bed.api, "third") == "Pending"), "the third is pending")
    begun = time.monotonic()
    bed.api.delete("Pod", "gpu-50")
    pods.runs(bed.api, "third")
    bed.say(f"the third pod ran {time.monotonic() - begun:.1f} s after the first one's deletion")


def ends_at_release(bed):
    """F2: devices stay healthy when slices end, and a pod that comes in that moment runs."""
    running = ["gpu-30", "gpu-20", "second", "third"]
    pods.ends(bed.api, *running)
    until("the offer", lambda: bed.chart.offers(**OFFER))
    # The plugin ends the slices half a minute after their pods.
    seen = []
    watch = lambda: seen.append(bed.node.allocatable()) or not bed.chart.slices()
    until("the end of the slices", watch, pause=0)
    bed.api.create(pods.working("at-once", "gpu-50"))
    bed.api.create(pods.working("at-once-too", "gpu-30"))
    until("the first to be admitted", lambda: pods.phase(bed.api, "at-once") != "Pending")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        seen.append(bed.node.allocatable())
    phases = {name: (pods.phase(bed.api, name), pods.reason(bed.api, name)) for name in ("at-once", "at-once-too")}
    taken = [line for line in bed.chart.logs("deviceplugin").splitlines() if "health=taken" in line]
    lowest = {name: min(one.get(name, 0) for one in seen) for name in OFFER}
    bed.say(f"pods: {phases}; lowest allocatable: {lowest}; devices reported as taken: {len(taken)}")
    for name in phases:
        bed.api.delete("Pod", name)
        bed.api.gone("Pod", name)
    bed.expect(not taken, f"devices were reported as taken though idle: {taken[:2]}")
    bed.expect(all(phase == "Running" for phase, _ in phases.values()), f"pods after the release: {phases}")


def recovers(bed):
    """F3: a lost GPU's devices are offered again only once it has been well for recovery_s (8 s here)."""
    until("the offer", lambda: bed.chart.offers(**OFFER))
    bed.node.simgpu("set", "--gpu", "1", "--lost", "on")
    lost = time.monotonic()
    until("the loss to show", lambda: bed.node.allocatable().get("gpu-50") == 1)
    bed.say(f"allocatable is lower {time.monotonic() - lost:.1f} s after the loss")
    bed.node.simgpu("set", "--gpu", "1", "--lost", "off")
    well = time.monotonic()
    until("the recovery", lambda: bed.chart.offers(**OFFER))
    seconds = time.monotonic() - well
    bed.say(f"offered again {seconds:.1f} s after it was well")
    bed.expect(seconds >= 8, f"the lost GPU was offered again after {seconds:.1f} s")
