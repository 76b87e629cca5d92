"""The chart, installed by helm as docs/kubernetes.md describes it."""

import json
import os
import subprocess
import time

from waiting import Failed, until

NAMESPACE = "tranche"
# The way to the driver is NVIDIA's runtime by default, so its runtime class has to exist, as its operator makes it.
RUNTIME_CLASS = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
VALUES = {"image": {"pullPolicy": "Never"}}


class Chart:
    """One installation of the chart."""

    def __init__(self, cluster, place):
        self.cluster, self.api, self.place = cluster, cluster.api, place

    def helm(self, *words, check=True):
        """Output of helm, with its exit status."""
        program = self.cluster.programs / "helm"
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.cluster.cell),
                       "KUBECONFIG": str(self.cluster.control.files["admin-config"])}
        done = subprocess.run([program, "--namespace", NAMESPACE, *words], stdin=subprocess.DEVNULL, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        if check and done.returncode != 0:
            raise Failed(f"helm {' '.join(words)} failed ({done.returncode}):\n{done.stdout}")
        return done.returncode, done.stdout

    def install(self, values=None, wait="60s", check=True):
        """`helm upgrade --install --wait`. Returns helm's exit status, its output and the seconds that it took."""
        if self.api.get("RuntimeClass", "nvidia") is None:
            self.api.create(RUNTIME_CLASS)
        file = self.cluster.cell / "values.json"
        file.write_text(json.dumps({**VALUES, **(values or {})}))
        begun = time.monotonic()
        status, said = self.helm("upgrade", "--install", "tranche", str(self.place), "--create-namespace",
                                 "--values", str(file), "--wait", "--timeout", wait, check=check)
        return status, said, time.monotonic() - begun

    def uninstall(self):
        """Removes the installation and what it left on the node, as docs/kubernetes.md describes it."""
        self.helm("uninstall", "tranche", "--wait", check=False)
        until("the end of the chart's pods", lambda: not self.api.list("Pod", NAMESPACE))
        self.cluster.machine.run("sh", "-c", "rm -rf /run/tranche /var/lib/tranche /var/run/cdi/tranche.dev-*")

    def pod(self, component):
        """The running pod of a component (`tranched` or `deviceplugin`), or nothing."""
        pods = self.api.list("Pod", NAMESPACE, labelSelector=f"app.kubernetes.io/component={component}")
        running = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return running[0] if running else None

    def is_ready(self, component):
        pod = self.pod(component)
        conditions = pod["status"].get("conditions", []) if pod else []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def container(self, component):
        """Id of a component's running container, or nothing."""
        pod = self.pod(component)
        statuses = pod["status"].get("containerStatuses", []) if pod else []
        return next((one["containerID"] for one in statuses if "running" in one["state"]), None)

    def logs(self, component):
        pod = self.pod(component)
        return self.api.logs(pod["metadata"]["name"], NAMESPACE, container=component) if pod else ""

    def tranche(self, *words):
        """Output of a command of `tranche` in the daemon's container."""
        until("the daemon's container", lambda: self.container("tranched"))
        return self.cluster.node.exec(self.pod("tranched"), "tranched", "tranche", *words)

    def slices(self):
        return json.loads(self.tranche("smi", "--json"))["slices"]

    def offers(self, **expected):
        """Whether the node's allocatable resources are these, such as offers(**{"gpu-50": 8})."""
        return self.cluster.node.allocatable() == expected
