"""The four teams of docs/kubernetes-teams: their jobs, applied one by one, and the totals that follow."""

import collections
import re

import kueue
from node import IMAGE
from waiting import Failed, until

TEAMS = ("team-a", "team-b", "team-c", "team-d")
# Ends at SIGTERM, so that a preempted job gives way at once.
COMMAND = "workload --memory 1Gi --launches 20; trap 'exit 143' TERM; sleep 36000 & wait"
MILLIGPUS = {"gpu": 1000, **{f"gpu-{percent}": percent * 10 for percent in (60, 50, 40, 30, 20)}}


def runnable(text):
    """Manifests with an image that is here and a command."""
    return text.replace("image: my-cuda-image",
                        f'image: {IMAGE}\n          imagePullPolicy: Never\n          command: [sh, -c, "{COMMAND}"]')


def documented():
    """The jobs of jobs.yaml by name, in their order."""
    found = {}
    for text in runnable(kueue.document("jobs.yaml")).split("\n---\n"):
        found[re.search("^  name: (.*)$", text, re.MULTILINE).group(1)] = text
    return found


def training(name, gpus):
    """A further training job of the team of its name's first letter: that of jobs.yaml with another name and size."""
    text = documented()["a-2-gg"].replace("a-2-gg", name).replace("team-a", f"team-{name[0]}")
    return text.replace("tranche.dev/gpu: 2", f"tranche.dev/gpu: {gpus}")


def queues(bed):
    """Makes flavors, priorities and queues, and gives the nodes the label that they name."""
    for node in bed.cluster.nodes:
        bed.api.patch("Node", node.name, {"metadata": {"labels": {"tranche.dev/deploy": "true"}}})
    if bed.api.get("ClusterQueue", "team-a") is None:
        kueue.answers(bed, kueue.document("queues.yaml"))


def totals(bed):
    """By Kueue's account: thousandths of a GPU of each team, and the number of its jobs that wait."""
    both = [kueue.usage(bed, team) for team in TEAMS]
    return [amount for amount, _ in both], [waiting for _, waiting in both]


def running(bed):
    """Thousandths of a GPU in the running pods of each team."""
    found = collections.Counter()
    for team in TEAMS:
        for pod in bed.api.list("Pod", team):
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]:
                limits = pod["spec"]["containers"][0]["resources"]["limits"]
                found[team] += sum(MILLIGPUS[name.split("/")[1]] * int(count) for name, count in limits.items())
    return [found[team] for team in TEAMS]


def reaches(bed, what, *wanted, patience=60):
    """Waits until Kueue counts one of these totals, each with the jobs that wait, and pods of the same sizes run."""
    wanted = [(list(milligpus), list(waiting)) for milligpus, waiting in wanted]
    try:
        until(f"{wanted} after {what}", lambda: totals(bed) in wanted and running(bed) == totals(bed)[0], patience)
    except Failed as failed:
        raise Failed(f"{failed}: Kueue counts {totals(bed)}, pods run with {running(bed)}; {pending(bed)}") from None


def pending(bed):
    """Pods that wait or have failed, each with its latest event."""
    return {pod["metadata"]["name"]: bed.api.events(pod["metadata"]["name"], team)[-1:]
            for team in TEAMS for pod in bed.api.list("Pod", team) if pod["status"]["phase"] != "Running"}


def preemptions(bed):
    """How often each job was preempted, by Kueue's events about it."""
    found = collections.Counter()
    for team in TEAMS:
        for event in bed.api.list("Event", team):
            about = event["involvedObject"]
            if event["reason"] == "Preempted" and about["kind"] == "Workload":
                found[re.sub("^job-(.*)-[^-]*$", r"\1", about["name"])] += event.get("count", 1)
    return dict(found)


def clear(bed):
    """Ends all jobs, and removes their events."""
    for team in TEAMS:
        for kind in ("Job", "Event"):
            for one in bed.api.list(kind, team):
                bed.api.delete(kind, one["metadata"]["name"], team)
    until("the end of all jobs", lambda: not any(bed.api.list("Pod", team) or bed.api.list("Workload", team) for team in TEAMS))
