"""A demonstration: the fractions 0.6 + 0.4 and 0.5 + 0.3 + 0.2, one GPU, two and four, by resource claims on a node of eight.

They are nine GPUs' worth, so the pod of four waits. SIMULATED: kernels take time and compute nothing.
"""

import json
import time

import driver
import plot
import pods
from cluster import TREE
from consumers import Watch, consumers
from tests_of_claims import DRA, ended
from waiting import Failed, holds_for, until

REPORT = TREE / "target/report"
GPUS = 8
# Thousandths by which a share may differ from its part of the GPU: programs whose threads wake late leave time to others.
TOLERANCE = 60
OUT_OF_MEMORY = "out of memory"


class Demo:
    """The story of the eight pods, with a verdict on each claim."""

    def __init__(self, bed):
        self.bed, self.consumers, self.claims = bed, consumers(), []
        *self.others, self.last = self.consumers
        self.freeing = next(one for one in self.others if one.name == "one-gpu")

    def step(self, text):
        print(f"\n[{time.monotonic() - self.bed.cluster.begun:5.1f} s] {text}", flush=True)

    def line(self, text):
        print(f"          {text}".rstrip(), flush=True)

    def judge(self, name, value, goal, holds=None):
        """Notes and prints whether a claim holds: by default, whether the value is the goal."""
        holds = value == goal if holds is None else holds
        self.claims.append({"name": name, "value": value, "goal": goal, "holds": holds})
        self.line(f"{name:50} {str(value):>28}   {'ok' if holds else f'FAILED, it should be {goal}'}")

    def play(self):
        """Runs all of it. Returns whether every claim holds."""
        self.install()
        watch = Watch(self.bed)
        watch.start()
        try:
            self.submit()
            self.wait(watch)
            self.work()
        finally:
            watch.ends()
        self.reckon(watch)
        self.table()
        self.verdict()
        ended(self.bed, *(one.name for one in self.consumers))
        return all(claim["holds"] for claim in self.claims)

    def install(self):
        self.step("A Kubernetes node of eight V100s gets the chart, with the DRA driver")
        self.line("real:      Kubernetes 1.36.2 with its scheduler and kubelet, containerd, runc, helm; daemon, DRA driver, shim")
        self.line("simulated: the GPUs and their driver: kernels take time and compute nothing, and a program with whole GPUs")
        self.line("           names those to CUDA whose device files its container has")
        self.bed.clear()
        self.bed.chart.uninstall()
        _, _, seconds = self.bed.chart.install({**DRA, "tranched": {"config": f'cdi_node = "{driver.EACH}"'}})
        devices = until("the pool", lambda: pods.devices(self.bed.api).get("node-1"))
        self.line(f"`helm install --wait` took {seconds:.1f} s; published: {len(devices)} GPUs, each "
                  + ", ".join(f"{name} {amount}" for name, amount in next(iter(devices.values())).items()))

    def submit(self):
        self.step("Eight pods, each with a claim: nine GPUs' worth for eight GPUs")
        for one in self.consumers:
            self.bed.api.create(one.claim())
        self.began = time.time()
        self.line(f"{'pod':10} {'GPUs':>4}   claim")
        for one in self.consumers:
            one.asked = time.time() - self.began
            self.bed.api.create(one.pod())
            # In this order, whichever the scheduler's queue would be in.
            if one is not self.last:
                until(f"the allocation of {one.name}", lambda: pods.allocated(self.bed.api, one.name))
            self.line(f"{one.name:10} {one.size():>4}   {one.requests()}")

    def wait(self, watch):
        for one in self.others:
            pods.runs(self.bed.api, one.name)
        self.why = until("the scheduler's reason", self.reason)
        busy = lambda: watch.readings and all(self.at_work(watch.readings[-1], one) for one in self.others)
        until("all programs to be at work", busy)
        self.step("Seven work at the same time, and the eighth waits")
        print(self.bed.chart.tranche(self.bed.node, "smi").rstrip(), flush=True)
        self.line(f"{self.last.name}: Pending")
        # Its first sentence; those after it are about preemption.
        self.line(f"kube-scheduler: {self.why.split('. ')[0]}")
        self.kept = holds_for(3, lambda: pods.phase(self.bed.api, self.last.name) == "Pending")

    def at_work(self, reading, one):
        return one.name in reading and len(reading[one.name]["processes"]) == one.count

    def reason(self):
        """The scheduler's reason, from the condition of the last pod."""
        conditions = self.bed.api.get("Pod", self.last.name)["status"].get("conditions", [])
        return next((it.get("message") for it in conditions if it["type"] == "PodScheduled" and it["status"] == "False"), None)

    def work(self):
        over = lambda one: pods.phase(self.bed.api, one.name) in ("Succeeded", "Failed")
        until("the end of one-gpu", lambda: over(self.freeing))
        self.step(f"{self.freeing.name} has done its work, and its GPU is free")
        pods.runs(self.bed.api, self.last.name)
        self.step(f"{self.last.name} runs")
        for one in self.consumers:
            until(f"the end of {one.name}", lambda: over(one))
            said = [json.loads(line) for line in self.bed.api.logs(one.name).splitlines() if line.startswith("{")]
            one.sees = [seen for seen in said if seen["ok"]]
        until("the end of the slices", lambda: not self.bed.chart.slices())
        self.step("All have done their work")

    def reckon(self, watch):
        """GPUs and shares of the pods by the daemon's readings, and times by its events."""
        events = [json.loads(line) for line in self.bed.chart.tranche(self.bed.node, "events", "--json").splitlines()]
        names = {one["name"]: name for reading in watch.readings for name, one in reading.items()}
        for event in events:
            one = next((it for it in self.consumers if it.name == names.get(event.get("slice"))), None)
            if one and event["kind"] == "slice-created":
                one.begin = event["time_unix_ms"] / 1000 - self.began
            if one and event["kind"] == "slice-deleted":
                one.end = event["time_unix_ms"] / 1000 - self.began
        for one in self.consumers:
            one.gpus = watch.gpus(one.name)
        if lacking := [one.name for one in self.consumers if None in (one.begin, one.end) or not one.gpus]:
            raise Failed(f"the daemon's events and readings lack slices of {lacking}")
        used = watch.shares([one.name for one in self.consumers if one.permille < 1000])
        on = lambda gpu: sum(used[one.name] for one in self.consumers if one.name in used and gpu in one.gpus)
        # Of the GPU time that was used on their GPU. A whole GPU's is its only slice's, and not measured.
        self.shares = {one.name: round(1000 * used[one.name] / on(one.gpus[0])) for one in self.consumers if one.name in used}

    def table(self):
        self.line(f"{'pod':10} {'claim':>5}  {'GPU':12} {'sees':>9}  {'1 GiB more':14} {'of GPU time':>11}  kernels of 2 ms")
        for one in self.consumers:
            share = f"{self.shares[one.name] / 10:.1f} %" if one.name in self.shares else "alone"
            totals = " ".join(map(str, one.totals()))
            rate = sum(seen["per_second"] for seen in one.sees)
            self.line(f"{one.name:10} {one.size():>5}  {', '.join(map(str, one.gpus)):12} {totals:>5} MiB  {one.answers():14} {share:>11}  {rate:6.0f}/s")

    def verdict(self):
        self.step("Claims, and whether they hold")
        where = {one.name: one.gpus for one in self.consumers}
        together = lambda *names: len({where[name][0] for name in names if where[name]})
        for one in self.consumers:
            self.judge(f"{one.name}: distinct GPUs that its programs see", one.distinct(), one.count)
            self.judge(f"{one.name}: MiB that CUDA shows", " ".join(map(str, one.totals())), str(one.promised()))
            self.judge(f"{one.name}: 1 GiB more", one.answers(), OUT_OF_MEMORY)
        for name, share in self.shares.items():
            wanted = next(one.permille for one in self.consumers if one.name == name)
            self.judge(f"{name}: thousandths of its GPU's time", share, f"{wanted} +- {TOLERANCE}", abs(share - wanted) <= TOLERANCE)
        self.judge("0.6 and 0.4: GPUs that they are on", together("train-60", "train-40"), 1)
        self.judge("0.5, 0.3 and 0.2: GPUs that they are on", together("infer-50", "infer-30", "infer-20"), 1)
        self.judge("the seven: GPUs that they are on", len({gpu for one in self.others for gpu in one.gpus}), 5)
        self.judge("most thousandths promised of a GPU at a time", self.most(), 1000)
        self.judge("four-gpus: pending while seven work", self.kept, True)
        self.judge("four-gpus: reason", self.why.split(". ")[0].split(": ")[-1], "1 cannot allocate all claims")
        waited = round(self.last.begin - self.freeing.end, 2)
        self.judge("four-gpus: seconds from the end of one-gpu's slice", waited, "0 to 10", 0 <= waited <= 10)
        self.judge("four-gpus: GPUs of other slices among its own", len(set(self.last.gpus) & set().union(*self.held())), 0)
        self.judge("slices that are left", len(self.bed.chart.slices()), 0)

    def held(self):
        """GPUs of the others whose slices outlasted the wait."""
        return [set(one.gpus) for one in self.others if one.end > self.last.begin]

    def most(self):
        """Most of a GPU in slices at the same time, at the begin of any slice."""
        def at(moment, gpu):
            return sum(one.permille for one in self.consumers if gpu in one.gpus and one.begin <= moment < one.end)

        return max(at(one.begin, gpu) for one in self.consumers for gpu in one.gpus)

    def write(self):
        """The report and the drawing, below target/report."""
        REPORT.mkdir(parents=True, exist_ok=True)
        commit = self.bed.cluster.stage / "commit"
        seconds = lambda moment: None if moment is None else round(moment, 3)
        report = {
            "device": "Tesla V100-SXM2-32GB", "simulated": True, "commit": commit.read_text().strip() if commit.exists() else None,
            "claims": self.claims, "gpus": GPUS, "waits": self.last.name, "reason": self.why,
            "pods": [{
                "name": one.name, "permille": one.permille, "count": one.count, "gpus": one.gpus, "asked_s": seconds(one.asked),
                "begin_s": seconds(one.begin), "end_s": seconds(one.end), "total_mib": one.totals(), "beyond": one.answers(),
                "share_permille": self.shares.get(one.name), "per_second": [round(seen["per_second"], 1) for seen in one.sees],
            } for one in self.consumers],
        }
        (REPORT / "demo-cluster.json").write_text(json.dumps(report, indent=2) + "\n")
        (REPORT / "demo-cluster.svg").write_text(plot.draw(report))
        self.step("Who had which GPUs, when: target/report/demo-cluster.svg and demo-cluster.json")


def run(bed):
    """Plays it and writes the report. Returns the exit status."""
    demo = Demo(bed)
    holds = demo.play()
    demo.write()
    failed = sum(not claim["holds"] for claim in demo.claims)
    print(f"{len(demo.claims) - failed} claims hold, {failed} failed", flush=True)
    return 0 if holds else 1


def published_fractions(bed):
    """0.6 + 0.4 share a GPU, 0.5 + 0.3 + 0.2 another, beside one and two; a pod of four waits for the one."""
    demo = Demo(bed)
    holds = demo.play()
    bed.expect(holds, f"{[claim['name'] for claim in demo.claims if not claim['holds']]}")
