"""A Kubernetes node: containerd with runc, and the kubelet."""

import json
import os
import shutil
import time

import cell
import driver
import network
from machine import PROGRAMS
from waiting import until

IMAGE = "docker.io/library/tranche:0.2.0"
# An image that sets NVIDIA_VISIBLE_DEVICES, as those of CUDA do.
CUDA_IMAGE = "docker.io/library/tranche-cuda:0.2.0"
PAUSE = "docker.io/library/pause:1"
CONTAINERD = "/run/containerd/containerd.sock"
CONTAINERD_CONFIG = f"""
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "{CONTAINERD}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.runtime']
# Root may lack CAP_SYS_RESOURCE, without which an OOM score cannot be set below the own one.
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "/etc/cni/net.d"
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
options = {{BinaryName = "/usr/sbin/runc"}}
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
options = {{BinaryName = "{driver.RUNTIME}"}}
"""

def pod_network(number):
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": {
            "type": "host-local", "ranges": [[{"subnet": network.pods(number)}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    ]}


PKI = "/etc/kubernetes/pki"


class Node:
    """The programs on a machine that run pods."""

    def __init__(self, machine, control, cgroup, gpus="v100x8"):
        self.machine, self.control, self.cgroup, self.gpus = machine, control, cgroup, gpus
        self.name = machine.name
        cell.make(cgroup)
        self.running = {}
        machine.file("/etc/containerd/config.toml").write_text(CONTAINERD_CONFIG)
        machine.file("/etc/cni/net.d/10-pods.conflist").write_text(json.dumps(pod_network(machine.number)))
        machine.file("/etc/kubernetes/kubelet.yaml").write_text(json.dumps(self.kubelet()))
        for name, file in control.admit(self.name, machine.address).items():
            shutil.copy(file, machine.file(f"{PKI}/{name}"))

    def kubelet(self):
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                               "x509": {"clientCAFile": f"{PKI}/ca.crt"}},
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{PKI}/kubelet-server.crt", "tlsPrivateKeyFile": f"{PKI}/kubelet-server.key",
            "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.cgroup}", "failCgroupV1": False,
            "failSwapOn": False,
            # The default is 10 s, and tests would wait as long for each change of what is allocatable.
            "nodeStatusUpdateFrequency": "1s",
            # Free space on the host's disk is not under test.
            "evictionHard": {"memory.available": "1Mi"}, "imageGCHighThresholdPercent": 100,
        }

    def start(self):
        """Boots the machine, with GPUs and containerd."""
        self.machine.boot()
        driver.install(self.machine, self.gpus)
        self.start_containerd()

    def load(self, archive):
        """Imports an image, which is kept from boot to boot."""
        # In the machine's own /var, where it can read it.
        file = f"/var/{archive.name}"
        os.link(archive, self.machine.file(file))
        self.ctr("images", "import", "--local", file)

    def cut_power(self):
        """Ends everything on the machine at once."""
        self.machine.cut_power()
        cell.empty(self.cgroup)

    def start_containerd(self):
        program = self.machine.start("containerd", f"{PROGRAMS}/containerd", "--config", "/etc/containerd/config.toml")
        self.running["containerd"] = program
        until("containerd", lambda: program.check() and self.ctr("version", check=False).count("Version:") > 1)

    def set_default_runtime(self, name):
        """Restarts containerd with another default runtime, as NVIDIA's toolkit can configure it. Containers stay."""
        self.machine.file("/etc/containerd/config.toml").write_text(
            CONTAINERD_CONFIG.replace('default_runtime_name = "runc"', f'default_runtime_name = "{name}"'))
        self.restart_containerd()

    def configure_containerd(self, more):
        """Restarts containerd with more lines of configuration. Containers stay."""
        self.machine.file("/etc/containerd/config.toml").write_text(CONTAINERD_CONFIG + more)
        self.restart_containerd()

    def restart_containerd(self):
        """Restarts containerd. Containers stay."""
        self.machine.run("pkill", "-x", "containerd")
        self.running["containerd"].process.wait()
        self.start_containerd()

    def start_kubelet(self):
        self.running["kubelet"] = self.machine.start(
            "kubelet", f"{PROGRAMS}/kubelet", "--config", "/etc/kubernetes/kubelet.yaml",
            "--kubeconfig", f"{PKI}/kubelet.kubeconfig", "--hostname-override", self.name, "--node-ip", self.machine.address,
            "--node-labels", "nvidia.com/gpu.present=true")

    def ready(self):
        """True once the API server has the node as ready."""
        self.running["kubelet"].check()
        node = self.control.api.get("Node", self.name)
        conditions = node["status"].get("conditions", []) if node else []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def allocatable(self):
        """Amounts of Tranche's resources that the scheduler can allocate here.

        The kubelet keeps names that are no longer offered, with an amount of 0, until it restarts; they are left out.
        """
        offered = self.control.api.get("Node", self.name)["status"].get("allocatable", {})
        ours = {name.split("/")[1]: int(count) for name, count in offered.items() if name.startswith("tranche.dev/")}
        return {name: count for name, count in ours.items() if count}

    def restart_kubelet(self):
        self.machine.run("pkill", "-x", "kubelet")
        self.running["kubelet"].process.wait()
        self.start_kubelet()

    def ctr(self, *words, check=True):
        return self.machine.run(f"{PROGRAMS}/ctr", "--address", CONTAINERD, "--namespace", "k8s.io", *words, check=check)

    def exec(self, pod, container, *command):
        """What a command prints in a container of a pod, as `kubectl exec` would run it, without the API server."""
        statuses = {one["name"]: one for one in pod["status"]["containerStatuses"]}
        identity = statuses[container]["containerID"].removeprefix("containerd://")
        return self.ctr("tasks", "exec", "--exec-id", f"exec-{time.monotonic_ns()}", identity, *command)

    def simgpu(self, *words):
        """Changes the simulated GPUs, such as simgpu("set", "--gpu", "0", "--lost", "on")."""
        return self.machine.run(driver.SIMGPU, *words, driver.GPUS)
