"""The surroundings of a cluster: private namespaces, a folder and cgroups, all removed at its end.

The outer process makes the folder, starts itself again as the first process of new namespaces, and removes everything
once that has ended. Mounts, network devices and processes end with the namespaces.
"""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Set for the inner process: the folder that is the cell's.
VARIABLE = "TRANCHE_CLUSTER_CELL"
PREFIX = "tranche-cluster-"
HIERARCHIES = pathlib.Path("/sys/fs/cgroup")
NAMESPACES = ["--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]


def folder():
    """The cell's folder, inside; outside there is none."""
    place = os.environ.get(VARIABLE)
    return pathlib.Path(place) if place else None


def live():
    """Starts this program again within a cell, and ends as that does."""
    sweep()
    place = pathlib.Path(tempfile.gettempdir(), f"{PREFIX}{os.getpid()}")
    place.mkdir()
    # A terminal interrupts the inner process, too, which then ends by itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    command = ["unshare", *NAMESPACES, sys.executable, *sys.argv]
    inner = subprocess.Popen(command, env={**os.environ, VARIABLE: str(place)}, preexec_fn=born)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: inner.kill())
    status = inner.wait()
    take_away(place)
    return status if status >= 0 else 128 - status


def take_away(place):
    for cgroup in cgroups(f"{place.name}.*"):
        remove(cgroup)
    shutil.rmtree(place)


def sweep():
    """Removes what killed runs have left. The outer process's id is in the name of its cell."""
    for place in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if not pathlib.Path("/proc", place.name.removeprefix(PREFIX)).exists():
            take_away(place)


def born():
    """In the child: default handling of SIGINT, and its end with that of the parent, even by SIGKILL."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def hierarchies():
    """The only hierarchy of version 2, or all those of version 1."""
    if (HIERARCHIES / "cgroup.controllers").exists():
        return [HIERARCHIES]
    # Links are other names of a hierarchy.
    return [hierarchy for hierarchy in HIERARCHIES.iterdir() if hierarchy.is_dir() and not hierarchy.is_symlink()]


def cgroups(pattern):
    """The cgroups of these names in each hierarchy. Those of a cell begin with its name and a point."""
    return [cgroup for hierarchy in hierarchies() for cgroup in hierarchy.glob(pattern)]


def make(name):
    """A cgroup of this name in each hierarchy."""
    for hierarchy in hierarchies():
        cgroup = hierarchy / name
        cgroup.mkdir()
        # A new cpuset of version 1 has no processors.
        for file in ("cpuset.cpus", "cpuset.mems"):
            parent = hierarchy / file
            if parent.exists() and (cgroup / file).exists():
                (cgroup / file).write_text(parent.read_text())


def empty(name):
    """Removes all cgroups below those of this name, as a cut of power does."""
    for cgroup in cgroups(name):
        for below in cgroup.iterdir():
            if below.is_dir():
                remove(below)


def remove(cgroup):
    """Removes a cgroup with those below it. Their last processes may be a moment away from their end."""
    deadline = time.monotonic() + 10
    for below, _, _ in os.walk(cgroup, topdown=False):
        while True:
            try:
                os.rmdir(below)
                break
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
