"""A cluster with simulated GPUs, in namespaces of its own: of one node, or of two where a test wants them.

    bed.py shell [COMMAND...]  start it and open a shell with kubectl and helm beside it, or run a command there
    bed.py test [NAME...]      install the chart and do what has to hold; all of it, or what is named
    bed.py short               the part of it that fits into four minutes
    bed.py demo                fractions of GPUs by resource claims, told and drawn: target/report/demo-cluster.svg and .json

As root, after tests/cluster/build.sh and `make build`. SIMULATED: no GPU is touched, and kernels compute nothing.
"""

import signal
import subprocess
import sys

import cell
import demo
import story
import surroundings
from cluster import TREE, Cluster
from waiting import Failed

WELCOME = """
  kubectl and helm reach the API server:     $KUBECONFIG names it; docs/tour-kubernetes.md has fifteen commands
  so does curl:                              curl --cacert $PKI/ca.crt --cert $PKI/admin.crt --key $PKI/admin.key $SERVER/api
  on the node:                               on-node COMMAND, such as `on-node ctr -n k8s.io containers list`
  simulated GPUs:                            on-node /opt/simgpu/bin/simgpu show /run/simgpu/gpus
  logs of everything:                        $LOGS
"""


def shell(cluster, words):
    if not words:
        print(WELCOME)
    return subprocess.run(words or ["bash", "--norc"], cwd=TREE, env=surroundings.environment(cluster)).returncode


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
