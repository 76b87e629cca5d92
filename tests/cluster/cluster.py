"""A cluster of one node or more, from nothing to ready."""

import contextlib
import os
import pathlib
import time

import driver
import image
from control import ControlPlane
from machine import Machine
from node import CUDA_IMAGE, IMAGE, PAUSE, Node
from processes import tail
from waiting import until

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
BUILT = TREE / "target/cluster"
# The chart's way to the driver is NVIDIA's runtime by default, so its runtime class has to exist, as its operator makes it.
RUNTIME_CLASS = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}


class Cluster:
    """Control plane and nodes; everything of it runs in the cell that this process is in."""

    def __init__(self, folder):
        self.begun = time.monotonic()
        self.cell = folder
        self.stage = pathlib.Path(os.environ.get("TRANCHE_STAGE") or TREE / "target/stage")
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.programs = BUILT / "bin"
        self.control = ControlPlane(folder, self.programs)
        self.api = self.control.api
        self.archives = {"tranche": image.archive(self.stage, BUILT, {IMAGE: [], PAUSE: [], CUDA_IMAGE: ["NVIDIA_VISIBLE_DEVICES=all"]})}
        self.nodes = []
        self.node = self.another()
        self.machine = self.node.machine

    def another(self):
        """A further node, with its power off."""
        number = len(self.nodes) + 1
        machine = Machine(self.cell, self.programs, number)
        driver.put(machine, self.stage)
        node = Node(machine, self.control, f"{self.cell.name}.{machine.name}")
        self.nodes.append(node)
        return node

    def say(self, what):
        print(f"[{time.monotonic() - self.begun:5.1f} s] {what}", flush=True)

    def start(self):
        self.control.start()
        self.api.create(RUNTIME_CLASS)
        self.say("the control plane serves: etcd, kube-apiserver, kube-controller-manager, kube-scheduler")
        self.boot(self.node)

    def boot(self, node):
        """Starts a node for the first time."""
        node.start()
        for archive in self.archives.values():
            node.load(archive)
        node.start_kubelet()
        self.say(f"{node.name} has booted: containerd with the image, kubelet")
        until(f"{node.name} to be ready", node.ready)
        self.say(f"{node.name} is ready")

    def grow(self, count):
        """Adds nodes until there are this many."""
        while len(self.nodes) < count:
            self.boot(self.another())

    def load(self, name, archive):
        """Brings another image to all nodes, those to come as well."""
        if name not in self.archives:
            self.archives[name] = archive
            for node in self.nodes:
                node.load(archive)

    def power_cut(self):
        """All nodes lose their power and come back: /run and the GPUs are fresh, /var is as it was."""
        for node in self.nodes:
            node.cut_power()
        for node in self.nodes:
            node.start()
            node.start_kubelet()

    def node_of(self, pod):
        """The node that a pod is on."""
        return next(node for node in self.nodes if node.name == pod["spec"]["nodeName"])

    def tell_logs(self, lines=15):
        for log in sorted(self.logs.glob("*.log")):
            self.say(f"--- {log.name}\n{tail(log, lines)}")

    @contextlib.contextmanager
    def running(self):
        """Started for the length of a `with`; what fails within shows the logs."""
        try:
            self.start()
            yield self
        except Exception:
            self.tell_logs()
            raise
        finally:
            for node in self.nodes:
                node.machine.cut_power()
