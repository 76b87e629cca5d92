"""A node's machine: private root, /var and processes, with a power switch.

Its /usr is the host's, read-only. Its /run is empty at each boot, its /var stays. From the second one on, a machine has
a network of its own.
"""

import os
import pathlib
import shutil
import subprocess

import network
from processes import PATHS, Program, run
from waiting import Failed, until

PROGRAMS = "/opt/cluster/bin"

# Makes the machine's root from a folder and becomes its first process. Kernel settings that a kubelet would change are
# not namespaced, so files with the values that it expects are mounted over them.
BOOT = r"""
set -e
folder=$1 programs=$2
root=$folder/root
mount -t tmpfs -o mode=755 root "$root"
cd "$root"
mkdir usr etc var run tmp dev proc sys opt root before
for name in bin sbin lib lib32 lib64 libx32; do
    if [ -L /$name ]; then cp -P /$name .; elif [ -d /$name ]; then mkdir $name; mount --rbind /$name $name; fi
done
mount --rbind /usr usr
mount -o remount,bind,ro usr
mount --rbind /dev dev
mount --rbind /sys sys
mount -t proc proc proc
mount -t tmpfs -o mode=755 run run
for name in etc var opt; do mount --bind "$folder/$name" $name; done
mount -t tmpfs -o mode=1777 tmp tmp
mkdir -p opt/cluster/bin
mount --bind "$programs" opt/cluster/bin
(cd "$folder/sysctl" && find . -type f) | while read -r name; do
    [ ! -e "proc/sys/$name" ] || mount --bind "$folder/sysctl/$name" "proc/sys/$name"
done
ln -s /run var/run 2>/dev/null || true
pivot_root . before
umount -l before
rmdir before
# Mounts propagate between the node and the volumes of pods, as systemd sets it up.
mount --make-rshared /
hostname "$3"
exec python3 -c '
import os, signal
while True:
    try:
        os.wait()
    except ChildProcessError:
        signal.sigtimedwait([signal.SIGCHLD], 1)
'
"""
SYSCTL = {"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
          "kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000}
# Files of /etc that programs need.
KEPT = ("ld.so.cache", "passwd", "group", "nsswitch.conf", "hosts", "localtime")


class Machine:
    """A node's hardware and its first process."""

    def __init__(self, folder, programs, number):
        self.number, self.name, self.address = number, f"node-{number}", network.address(number)
        self.folder, self.programs = folder / self.name, programs
        self.folder.mkdir()
        folder = self.folder
        self.first = None
        for name in ("root", "etc", "var", "opt", "sysctl"):
            (folder / name).mkdir()
        for name, value in SYSCTL.items():
            file = folder / "sysctl" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
        for name in KEPT:
            if pathlib.Path("/etc", name).exists():
                shutil.copy(pathlib.Path("/etc", name), folder / "etc" / name)
        # The kubelet copies it into pods. There is no name server.
        (folder / "etc/resolv.conf").touch()

    def file(self, path):
        """A file of the machine, by the path that it has outside: of /etc, /var or /opt."""
        file = self.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def boot(self):
        log = open(self.folder / "console", "ab")
        self.first = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--uts", "--ipc", *(["--net"] if self.apart() else []), "--fork", "--kill-child",
             "sh", "-c", BOOT, "boot", self.folder, self.programs, self.name],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={"PATH": PATHS}, start_new_session=True)
        log.close()
        until(f"the first process of {self.name}", self.pid)
        until(f"the root of {self.name}", self.booted)
        if self.apart():
            network.plug(self.number, self.pid())

    def apart(self):
        """Whether its network is its own."""
        return self.number > 1

    def booted(self):
        return pathlib.Path(f"/proc/{self.pid()}/comm").read_text().startswith("python")

    def pid(self):
        """The machine's first process, by its pid outside."""
        if self.first.poll() is not None:
            raise Failed(f"{self.name} ended:\n" + (self.folder / "console").read_text(errors="replace"))
        children = pathlib.Path(f"/proc/{self.first.pid}/task/{self.first.pid}/children").read_text().split()
        return children[0] if children else None

    def cut_power(self):
        """Ends all its processes at once, as a cut of power does."""
        if self.first is None:
            return
        pid = self.pid()
        os.kill(int(pid), 9)
        self.first.wait()
        self.first = None
        # The bridge of the pod network, too, would be gone.
        if not self.apart():
            run("ip", "link", "delete", "cni0", check=False)

    def within(self):
        return ["nsenter", "-t", self.pid(), "-m", "-u", "-i", "-p", *(["-n"] if self.apart() else []), "--"]

    def run(self, *command, check=True, timeout=120):
        """What a command prints on the machine."""
        return run(*command, check=check, within=self.within(), timeout=timeout)

    def start(self, name, *command):
        """Starts a program on the machine."""
        path = f"PATH={PROGRAMS}:{PATHS}"
        log = self.folder.parent / "logs" / f"{self.name}-{name}.log"
        return Program(name, ["env", path, *command], log, prefix=self.within())
