"""Kueue, installed by helm with its own chart and the configuration of docs/kubernetes-teams."""

import json
import re
import time

import image
from cluster import BUILT, TREE
from waiting import Failed, until

NAME = "docker.io/library/kueue"
VERSION = "0.15.0"
NAMESPACE = "kueue-system"
CHART = BUILT / "kueue-chart"
DOCUMENTS = TREE / "docs/kubernetes-teams"


def document(name):
    return (DOCUMENTS / name).read_text()


def installed(bed, features=(), configuration=""):
    """Kueue, with these feature gates and further lines of configuration."""
    program = BUILT / "bin/kueue"
    if not program.exists():
        raise Failed("Kueue is not built: run.sh build-all")
    archive = image.kept("kueue", BUILT, [(program, "manager")], {f"{NAME}:{VERSION}": {"User": "65532:65532"}})
    bed.cluster.load("kueue", archive)
    file = bed.cluster.cell / "kueue-config.yaml"
    file.write_text(configured() + configuration)
    values = bed.cluster.cell / "kueue-values.json"
    values.write_text(json.dumps({"controllerManager": {
        "featureGates": [{"name": name, "enabled": True} for name in features],
        "manager": {"image": {"repository": NAME, "tag": VERSION, "pullPolicy": "Never"}}}}))
    begun = time.monotonic()
    bed.chart.helm("upgrade", "--install", "kueue", str(CHART), "--create-namespace", "--values", str(values),
                   "--set-file", f"managerConfig.controllerManagerConfigYaml={file}", namespace=NAMESPACE)
    until("Kueue's certificate", lambda: (bed.api.get("Secret", "kueue-webhook-server-cert", NAMESPACE) or {}).get("data"))
    until("Kueue", lambda: nudged(bed), patience=120, pause=2)
    bed.say(f"Kueue {VERSION} runs after {time.monotonic() - begun:.1f} s")


def nudged(bed):
    """Whether its pod is ready. One that is not gets an annotation, and by that the certificate that was made for it:
    the kubelet looks at volumes when a pod changes, or else each minute or so."""
    deployment = bed.api.get("Deployment", "kueue-controller-manager", NAMESPACE)
    status = deployment["status"]
    if status.get("observedGeneration") == deployment["metadata"]["generation"] and status.get("updatedReplicas") == 1 and \
            status.get("readyReplicas") == 1 and status.get("replicas") == 1:
        return True
    for pod in bed.api.list("Pod", NAMESPACE):
        bed.api.patch("Pod", pod["metadata"]["name"], {"metadata": {"annotations": {"seen": str(time.monotonic())}}}, NAMESPACE)
    return False


def configured():
    """The defaults of its chart, and what docs/kubernetes-teams/kueue-config.yaml has beside them."""
    text = (CHART / "values.yaml").read_text()
    block = re.search(r"controllerManagerConfigYaml: \|-\n((?: {4}.*\n|\n)+)", text).group(1)
    defaults = re.sub("^ {4}", "", block, flags=re.MULTILINE)
    return defaults + document("kueue-config.yaml").split("kind: Configuration\n")[1]


def answers(bed, text):
    """Applies documents once Kueue's webhooks answer."""
    def attempt():
        try:
            bed.api.apply(text)
            return True
        except Failed as failed:
            if "failed calling webhook" in str(failed):
                return False
            raise

    first, rest = text.split("\n---\n", 1)
    text = first
    until("Kueue's webhooks", attempt)
    bed.api.apply(rest)


def usage(bed, team):
    """Thousandths of a GPU that a team's jobs have by Kueue's account, and the number of its jobs that wait."""
    status = bed.api.get("ClusterQueue", team).get("status", {})
    amounts = [resource["total"] for flavor in status.get("flavorsUsage", []) for resource in flavor["resources"]]
    return sum(thousandths(amount) for amount in amounts), status.get("pendingWorkloads", 0)


def thousandths(amount):
    return int(amount[:-1]) * 1000 if amount.endswith("k") else int(amount)


def workloads(bed, namespaces):
    """Workloads by the name of their job."""
    return {owner["name"]: one for namespace in namespaces for one in bed.api.list("Workload", namespace)
            for owner in one["metadata"].get("ownerReferences", [])}


def condition(workload, kind):
    """The condition of a kind, or nothing."""
    conditions = (workload or {}).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), None)
