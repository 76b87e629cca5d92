"""A machine that boots: a Debian in a folder, run by systemd-nspawn, with simulated GPUs in it."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

PATIENCE_S = 60

# In the place of NVIDIA's service of that name: makes the GPUs' device file when the machine starts. A simulated GPU
# lasts until the next boot, of which nspawn gives those an id of their own that see all of /proc/sys and the real one to
# those that see a part; here everybody sees the real one.
DRIVER = """[Unit]
Description=Simulated GPUs
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/umount /proc/sys/kernel/random/boot_id
ExecStart=/usr/local/bin/simgpu create --preset v100x8 /dev/simgpu
ExecStart=/bin/chmod 666 /dev/simgpu
[Install]
WantedBy=sysinit.target
"""


class Failed(Exception):
    """Something on the machine did not go as it should."""


def output(*command):
    """What a command on the outside prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def until(what, look):
    """Waits until look() is true and returns what it is; what was waited for in vain is named."""
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise Failed(f"waited {PATIENCE_S} s in vain for {what}")
        time.sleep(0.05)
    return seen


def suite():
    """The release of Debian that this machine has: what was built here runs there."""
    lines = pathlib.Path("/etc/os-release").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["VERSION_CODENAME"].strip('"')


def mirror(release):
    """Where this machine gets that release from."""
    wanted = ("indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages")
    for line in output("apt-get", *wanted).splitlines():
        name, uri = line.split()
        if name == release:
            return uri
    raise Failed(f"apt knows no source of {release}")


def base(also):
    """A fresh Debian with systemd, and other packages, in a folder; made once and kept."""
    release = suite()
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tranche-boot"
    ready = cache / "-".join((release, *also))
    if not ready.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = tempfile.mkdtemp(dir=cache)
        subprocess.run(
            ["debootstrap", "--variant=minbase", "--include=" + ",".join(("systemd,systemd-sysv,dbus,procps,init-system-helpers", *also)),
             release, unfinished, mirror(release)],
            check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(f"{unfinished}/var/cache/apt/archives")
        shutil.rmtree(f"{unfinished}/var/lib/apt/lists")
        os.chmod(unfinished, 0o755)
        os.rename(unfinished, ready)
    return ready


class Machine:
    """The machine; it is gone when the `with` ends."""

    def __init__(self, stage, also=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tranche-boot-"))
        self.root = self.folder / "root"
        self.nspawn = None
        output("cp", "-a", "--reflink=auto", str(base(also)), str(self.root))
        self.put_driver(pathlib.Path(stage))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.power_off()
        shutil.rmtree(self.folder)

    def put_driver(self, stage):
        """Simulated GPUs where a driver would have real ones."""
        libraries = self.root / "usr/local/lib"
        for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
            shutil.copy(stage / "sim" / library, libraries)
        for program in ("simgpu", "workload"):
            shutil.copy(stage / "bin" / program, self.root / "usr/local/bin")
        units = self.root / "etc/systemd/system"
        (units / "nvidia-persistenced.service").write_text(DRIVER)
        everywhere = self.root / "etc/systemd/system.conf.d"
        everywhere.mkdir()
        (everywhere / "simgpu.conf").write_text("[Manager]\nDefaultEnvironment=SIMGPU_NODE=/dev/simgpu\n")
        output("chroot", str(self.root), "ldconfig")

    def boot(self):
        """Starts it and waits until everything on it runs."""
        console = open(self.folder / "console", "ab")
        self.nspawn = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--settings=no",
             "--link-journal=no", "--boot", "-D", str(self.root), "systemd.unit=multi-user.target"],
            stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        until("the machine's first process", self.leader)
        until("the machine's systemd", lambda: self.run("test", "-S", "/run/systemd/private", check=False) is not None)
        state = self.run("systemctl", "is-system-running", "--wait", check=False, said=True)
        if "running" not in state:
            raise Failed(f"it is {state!r} after booting:\n" + self.run("systemctl", "--failed", check=False, said=True))

    def power_off(self):
        """Stops it as a person would, and by force if that does not help."""
        if self.nspawn is None:
            return
        self.run("systemctl", "poweroff", check=False)
        try:
            self.nspawn.wait(30)
        except subprocess.TimeoutExpired:
            self.nspawn.kill()
            self.nspawn.wait()
        self.nspawn = None

    def leader(self):
        """The machine's first process, by the pid that it has outside."""
        if self.nspawn.poll() is not None:
            raise Failed("it ended at once:\n" + (self.folder / "console").read_text(errors="replace"))
        pid = self.nspawn.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        first = [child for child in children if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "systemd"]
        return first[0] if first else None

    def run(self, *command, user=None, check=True, said=False):
        """Runs a command on it. Returns what it printed; None where it failed, unless `said` or `check`."""
        within = ["nsenter", "-t", self.leader(), "-m", "-u", "-i", "-n", "-p", "-C", "--"]
        if user:
            within += ["runuser", "-u", user, "--"]
        within += ["env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "SIMGPU_NODE=/dev/simgpu"]
        done = subprocess.run(within + list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=2 * PATIENCE_S)
        if done.returncode != 0 and check:
            raise Failed(f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout}")
        return done.stdout if done.returncode == 0 or said else None

    def file(self, path):
        """A file of it, by the path that it has outside."""
        return self.root / path.lstrip("/")

    def files(self):
        """What lies on it, besides what changes by itself. Sizes and times are not looked at."""
        beside = ["/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/var/log", "/var/cache", "/run/systemd", "/run/log",
                  "/run/agetty.reload", "/var/lib/systemd"]
        skipped = [word for path in beside for word in ("-path", path, "-prune", "-o")]
        return set(self.run("find", "/", *skipped, "-print").splitlines())
