"""The pods of the demonstration with their claims, and readings of the daemon while they work."""

import threading

import driver
import pods
from tests_of_claims import V100_MIB, apart, part
from waiting import Failed

KERNEL_NS = 2_000_000
# A program on each GPU that the container was given, all at the same time. Whole GPUs come without the shim, which would name
# them to CUDA; with a real driver, CUDA would find those whose device files are there.
WORK = f"""
visible=$(for file in {driver.FILE}*; do echo "${{file#{driver.FILE}}}"; done | tr '\\n' ,)
[ -n "$CUDA_VISIBLE_DEVICES" ] || export CUDA_VISIBLE_DEVICES="${{visible%,}}"
for gpu in $ordinals; do
    workload --device $gpu --fill --beyond 1Gi --kernel-ns {KERNEL_NS} --sync 8 --seconds $seconds --report /tmp/$gpu &
done
wait
cat /tmp/[0-9]*
"""


class Consumer:
    """A pod with a claim for a part of a GPU or for several GPUs."""

    def __init__(self, name, permille, count=1, seconds=22):
        self.name, self.permille, self.count, self.seconds = name, permille, count, seconds
        # GPUs of its slice, and the times of its pod and slice, in seconds since the first pod.
        self.gpus, self.asked, self.begin, self.end = [], None, None, None
        # Reports of its programs, one for each GPU.
        self.sees = []

    def size(self):
        return f"{self.permille / 1000:g}" if self.permille < 1000 else str(self.count)

    def promised(self):
        """Memory on each GPU, in MiB."""
        return V100_MIB * self.permille // 1000

    def requests(self):
        amount = f"{self.promised()}Mi, compute {self.permille}"
        return f"{self.count} x {amount}, on distinct GPUs" if self.count > 1 else amount

    def claim(self):
        claim = part(self.name, self.permille, count=self.count)
        return apart(claim) if self.count > 1 else claim

    def pod(self):
        settings = f"ordinals='{' '.join(map(str, range(self.count)))}' seconds={self.seconds}"
        return pods.pod(self.name, settings + WORK, claims=[self.name])

    def answers(self):
        """The distinct answers to requests for 1 GiB beyond what is left."""
        said = [seen["beyond"][0] for seen in self.sees]
        words = {"granted" if one is None else one["error"].removeprefix("CUDA_ERROR_").replace("_", " ").lower() for one in said}
        return ", ".join(sorted(words))

    def distinct(self):
        """Number of GPUs in which its programs work; 0 if any of them sees more or fewer."""
        worked = {seen["device"]["uuid"] for seen in self.sees}
        return len(worked) if all(seen["devices"] == len(worked) for seen in self.sees) else 0

    def totals(self):
        """The distinct totals that CUDA shows, in MiB."""
        return sorted({seen["device"]["total_bytes"] >> 20 for seen in self.sees})


def consumers():
    return [Consumer("train-60", 600), Consumer("train-40", 400), Consumer("infer-50", 500), Consumer("infer-30", 300),
            Consumer("infer-20", 200), Consumer("one-gpu", 1000, seconds=10), Consumer("two-gpus", 1000, 2),
            Consumer("four-gpus", 1000, 4, seconds=8)]


class Watch(threading.Thread):
    """Readings of the daemon, about one a second: GPU time and processes of each pod's slice."""

    def __init__(self, bed):
        super().__init__(daemon=True)
        self.bed, self.readings, self.over = bed, [], threading.Event()

    def run(self):
        while not self.over.wait(0.7):
            try:
                self.readings.append({one["pod"]["name"]: one for one in self.bed.chart.slices() if one["pod"]})
            except Failed as failed:
                self.bed.say(f"a reading of the daemon failed: {failed}")

    def ends(self):
        self.over.set()
        self.join()

    def gpus(self, name):
        """Indices of a pod's GPUs; none if no reading has its slice."""
        found = [reading[name] for reading in self.readings if name in reading]
        return [device["gpu_index"] for device in found[-1]["devices"]] if found else []

    def shares(self, names):
        """Thousandths of GPU time of these pods while all of them were at work, the first seconds of that aside."""
        used = lambda reading: [reading[name]["devices"][0]["compute_used_1s"] if name in reading else 0 for name in names]
        steady = [used(reading) for reading in self.readings if all(used(reading))][3:-2]
        if not steady:
            raise Failed(f"no reading has GPU time of all of {names}")
        return dict(zip(names, (sum(column) / len(steady) for column in zip(*steady))))
