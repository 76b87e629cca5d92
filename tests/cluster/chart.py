"""The chart, installed by helm as docs/kubernetes.md describes it."""

import json
import os
import subprocess
import time

from waiting import Failed, until

NAMESPACE = "tranche"
VALUES = {"image": {"pullPolicy": "Never"}}


class Chart:
    """One installation of the chart."""

    def __init__(self, cluster, place):
        self.cluster, self.api, self.place = cluster, cluster.api, place

    def helm(self, *words, check=True, namespace=NAMESPACE):
        """Output of helm, with its exit status."""
        program = self.cluster.programs / "helm"
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.cluster.cell),
                       "KUBECONFIG": str(self.cluster.control.files["admin-config"])}
        done = subprocess.run([program, "--namespace", namespace, *words], stdin=subprocess.DEVNULL, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        if check and done.returncode != 0:
            raise Failed(f"helm {' '.join(words)} failed ({done.returncode}):\n{done.stdout}")
        return done.returncode, done.stdout

    def install(self, values=None, wait="60s", check=True, files=()):
        """`helm upgrade --install --wait`, with files of values before these. Returns helm's exit status, its output and the seconds that it took."""
        file = self.cluster.cell / "values.json"
        file.write_text(json.dumps({**VALUES, **(values or {})}))
        begun = time.monotonic()
        status, said = self.helm("upgrade", "--install", "tranche", str(self.place), "--create-namespace",
                                 *(f"--values={one}" for one in (*files, file)), "--wait", "--timeout", wait, check=check)
        return status, said, time.monotonic() - begun

    def uninstall(self):
        """Removes the installation and what it left on the node, as docs/kubernetes.md describes it."""
        self.helm("uninstall", "tranche", "--wait", check=False)
        until("the end of the chart's pods", lambda: not self.api.list("Pod", NAMESPACE))
        for node in self.cluster.nodes:
            node.machine.run("sh", "-c", "rm -rf /run/tranche /var/lib/tranche /var/run/cdi/tranche.dev-*")

    def pod(self, component, node=None):
        """The running pod of a component (`tranched`, `deviceplugin`) on a node, the first by default, or nothing."""
        name = (node or self.cluster.node).name
        pods = self.api.list("Pod", NAMESPACE, labelSelector=f"app.kubernetes.io/component={component}",
                             fieldSelector=f"spec.nodeName={name}")
        running = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return running[0] if running else None

    def is_ready(self, component):
        """Whether the pods of a component are ready, on each node."""
        def ready(pod):
            conditions = pod["status"].get("conditions", []) if pod else []
            return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

        return all(ready(self.pod(component, node)) for node in self.cluster.nodes)

    def container(self, component, node=None):
        """Id of a component's running container on a node, or nothing."""
        pod = self.pod(component, node)
        statuses = pod["status"].get("containerStatuses", []) if pod else []
        return next((one["containerID"] for one in statuses if "running" in one["state"]), None)

    def logs(self, component):
        pod = self.pod(component)
        return self.api.logs(pod["metadata"]["name"], NAMESPACE, container=component) if pod else ""

    def tranche(self, node, *words):
        """Output of a command of `tranche` in the daemon's container on a node."""
        until("the daemon's container", lambda: self.container("tranched", node))
        return node.exec(self.pod("tranched", node), "tranched", "tranche", *words)

    def slices(self):
        """Those of all nodes."""
        return [one for node in self.cluster.nodes for one in json.loads(self.tranche(node, "smi", "--json"))["slices"]]

    def offers(self, **expected):
        """Whether the node's allocatable resources are these, such as offers(**{"gpu-50": 8})."""
        return self.cluster.node.allocatable() == expected
