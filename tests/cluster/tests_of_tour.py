"""The tour of a Kubernetes administrator."""

import subprocess
import time

import pods
import surroundings
from cluster import TREE
from waiting import Failed

PAGE = TREE / "docs/tour-kubernetes.md"
COMMANDS = 15
PATIENCE_S = 60
# What the page makes, besides pods.
MADE = [("Deployment", "train"), ("ResourceClaimTemplate", "half-a-gpu"), ("ResourceClaim", "infer"), ("ResourceClaim", "big")]


def steps(page):
    """Commands of a page's blocks of `sh`, each with what its output has to contain.

    A command is a line, with those after it where it ends in a backslash or in `&&`, and with its here-document.
    """
    found, words, end = [], [], None
    for block in page.split("```sh\n")[1:]:
        for line in block.split("```")[0].splitlines():
            if not words and line.startswith("#> "):
                found[-1][1].append(line.removeprefix("#> "))
                continue
            words.append(line)
            if end is None and "<<'" in line:
                end = line.split("<<'")[1].split("'")[0]
            elif end == line:
                end = None
            if end is None and not line.endswith(("\\", "&&")):
                found.append(("\n".join(words), []))
                words = []
    return found


def tour(bed):
    """Every command of docs/tour-kubernetes.md does what the page states."""
    bed.clear()
    bed.chart.uninstall()
    found = steps(PAGE.read_text())
    bed.expect(len(found) == COMMANDS, f"the page has {len(found)} commands, not {COMMANDS}")
    environment = surroundings.environment(bed.cluster)
    took = {}
    try:
        for command, expected in found:
            begun = time.monotonic()
            run(bed, environment, command, expected)
            took[command.splitlines()[0]] = time.monotonic() - begun
    except Failed:
        bed.show()
        raise
    finally:
        cleared(bed)
    slowest = max(took, key=took.get)
    bed.say(f"{COMMANDS} commands in {sum(took.values()):.1f} s, {took[slowest]:.1f} s of them: {slowest}")


def cleared(bed):
    """Removes what a tour has made; claims before the driver, which ends them."""
    for kind, name in MADE:
        bed.api.delete(kind, name)
    pods.ends(bed.api, *(pod["metadata"]["name"] for pod in bed.api.list("Pod")))
    bed.chart.uninstall()


def run(bed, environment, command, expected):
    """Runs a command in a shell. A failure has its output."""
    done = subprocess.run(["timeout", str(PATIENCE_S), "bash", "-c", command], cwd=TREE, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    bed.expect(done.returncode == 0, f"the status is {done.returncode}:\n{command}\n{done.stdout}")
    for words in expected:
        bed.expect(words in done.stdout, f"the output has no {words!r}:\n{command}\n{done.stdout}")
