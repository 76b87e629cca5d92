"""A cluster of one node, from nothing to ready."""

import contextlib
import os
import pathlib
import time

import cell
import driver
import image
from control import ControlPlane
from machine import NAME, Machine
from node import IMAGE, PAUSE, Node
from processes import tail
from waiting import until

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
BUILT = TREE / "target/cluster"


class Cluster:
    """Control plane and node; everything of it runs in the cell that this process is in."""

    def __init__(self, folder):
        self.begun = time.monotonic()
        self.cell = folder
        self.stage = pathlib.Path(os.environ.get("TRANCHE_STAGE") or TREE / "target/stage")
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.programs = BUILT / "bin"
        self.control = ControlPlane(folder, self.programs, NAME)
        self.api = self.control.api
        (folder / "node").mkdir()
        self.machine = Machine(folder / "node", self.programs)
        driver.put(self.machine, self.stage)
        self.node = Node(self.machine, self.control, folder.name)

    def say(self, what):
        print(f"[{time.monotonic() - self.begun:5.1f} s] {what}", flush=True)

    def start(self):
        archive = image.archive(self.stage, BUILT, [IMAGE, PAUSE])
        self.say("the image is there")
        self.control.start()
        self.say("the control plane serves: etcd, kube-apiserver, kube-controller-manager, kube-scheduler")
        # In the machine's own /var, where it can read it.
        os.link(archive, self.machine.file("/var/image.tar"))
        self.node.start("/var/image.tar")
        self.say("the node has booted: containerd with the image, kubelet")
        until("the node to be ready", self.node.ready)
        self.say("the node is ready")

    def power_cut(self):
        """The node loses its power and comes back: /run and the GPUs are fresh, /var is as it was."""
        self.machine.cut_power()
        cell.empty(self.cell.name)
        self.node.start(None)

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
            self.machine.cut_power()
