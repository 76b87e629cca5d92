"""The surroundings of a shell beside a cluster: kubectl, helm and the programs of the node are at hand."""

import os

from machine import PROGRAMS


def environment(cluster):
    """Variables of such a shell. Makes `on-node`, which runs a command on the first node as it has booted now."""
    tools = cluster.cell / "bin"
    tools.mkdir(exist_ok=True)
    on_node = tools / "on-node"
    namespaces = f"nsenter -t {cluster.machine.pid()} -m -u -i -p"
    on_node.write_text(f'#!/bin/sh\nexec {namespaces} -- env PATH={PROGRAMS}:/usr/bin:/bin:/usr/sbin "$@"\n')
    on_node.chmod(0o755)
    control = cluster.control
    return {
        **os.environ, "KUBECONFIG": str(control.files["admin-config"]), "LOGS": str(cluster.logs),
        "PKI": str(control.authority.folder), "SERVER": control.server, "PATH": f"{tools}:{cluster.programs}:{os.environ['PATH']}",
        # Another cluster at the same address may have other kinds of objects.
        "KUBECACHEDIR": str(cluster.cell / "cache"),
    }
