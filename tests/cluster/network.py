"""Addresses and links of the nodes, and of the pods on each.

The first node shares the network of the control plane; another one has its own, and reaches that by a bridge.
"""

from processes import run

# The first node's own address is the control plane's, too.
CONTROL = "10.88.0.1"
BRIDGE = "node0"


def address(number):
    return f"10.88.0.{number}"


def pods(number):
    return f"10.89.{number}.0/24"


def lay(service):
    """The bridge, with an address of the service `kubernetes` that pods reach without a kube-proxy."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{service}/32", "dev", "lo")
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{CONTROL}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    # The kubelet and the API server require a default route and use its address alone.
    run("ip", "route", "add", "default", "dev", BRIDGE)
    forward()


def plug(number, pid):
    """Connects a machine that has a network of its own, given its first process, with the bridge."""
    port, within = f"node-{number}", ["nsenter", "-t", pid, "-n"]
    run("ip", "link", "delete", port, check=False)
    run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", pid)
    run("ip", "link", "set", port, "master", BRIDGE, "up")
    run("ip", "link", "set", "lo", "up", within=within)
    run("ip", "address", "add", f"{address(number)}/24", "dev", "eth0", within=within)
    run("ip", "link", "set", "eth0", "up", within=within)
    run("ip", "route", "add", "default", "via", CONTROL, within=within)
    run("ip", "route", "replace", pods(number), "via", address(number))
    forward(within)


def forward(within=()):
    """Has packets forwarded between nodes and pods."""
    run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward", within=within)
