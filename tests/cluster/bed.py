"""A cluster with simulated GPUs, in namespaces of its own: of one node, or of two where a test wants them.

    bed.py shell [COMMAND...]  start it and open a shell beside it, or run a command there
    bed.py test [NAME...]      install the chart and do what has to hold; all of it, or what is named
    bed.py short               the part of it that fits into three minutes
    bed.py demo                fractions of GPUs by resource claims, told and drawn: target/report/demo-cluster.svg and .json

As root, after tests/cluster/build.sh and `make build`. SIMULATED: no GPU is touched, and kernels compute nothing.
"""

import os
import signal
import subprocess
import sys

import cell
import demo
import story
from cluster import BUILT, Cluster
from machine import PROGRAMS
from waiting import Failed

WELCOME = """
  helm, curl and such reach the API server:  $KUBECONFIG, or curl --cacert $PKI/ca.crt --cert $PKI/admin.crt --key $PKI/admin.key $SERVER/api
  on the node:                               on-node COMMAND, such as `on-node ctr -n k8s.io containers list`
  simulated GPUs:                            on-node /opt/simgpu/bin/simgpu show /run/simgpu/gpus
  logs of everything:                        $LOGS
"""


def shell(cluster, words):
    pid = cluster.machine.pid()
    tools = cluster.cell / "bin"
    tools.mkdir()
    on_node = tools / "on-node"
    on_node.write_text(f'#!/bin/sh\nexec nsenter -t {pid} -m -u -i -p -- env PATH={PROGRAMS}:/usr/bin:/bin:/usr/sbin "$@"\n')
    on_node.chmod(0o755)
    pki = cluster.control.authority.folder
    environment = {
        **os.environ, "KUBECONFIG": str(cluster.control.files["admin-config"]), "LOGS": str(cluster.logs),
        "PKI": str(pki), "SERVER": cluster.control.server, "PATH": f"{tools}:{BUILT / 'bin'}:{os.environ['PATH']}",
    }
    if not words:
        print(WELCOME)
    return subprocess.run(words or ["bash", "--norc"], env=environment).returncode


def main(word, *rest):
    if cell.folder() is None:
        return cell.live()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with Cluster(cell.folder()).running() as cluster:
            if word == "shell":
                return shell(cluster, rest)
            if word == "demo":
                return demo.run(story.Bed(cluster))
            return story.tell(cluster, story.SHORT if word == "short" else story.ALL, rest)
    except Failed as failed:
        print(f"FAILED: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("shell", "test", "short", "demo"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
