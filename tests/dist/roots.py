"""Bare distributions in folders: what a host has that was just installed, without a compiler and without Tranche.

Those of another machine than this one are emulated.
"""

import os
import pathlib
import platform
import shutil
import subprocess
import tempfile

# Debian's releases by name, oldest first. The first has an older C library than releases are built on.
SUITES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13"}
# Beside the smallest Debian: what the one line for the wheel and for the RPM package begins with.
TOOLS = "python3-venv,rpm"
# Debian's names of machines.
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
BINFMT = pathlib.Path("/proc/sys/fs/binfmt_misc")
# First bytes of a machine's programs and their mask, as binfmt_misc takes them
# (https://www.kernel.org/doc/html/latest/admin-guide/binfmt-misc.html): ELF, 64 bits, little endian, e_type and e_machine.
HEADERS = {"aarch64": r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
                      r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"}
USER, HOME = 1000, "/home/user"


class Failed(Exception):
    """Something did not go as it should."""


class Absent(Exception):
    """Something cannot be tried here."""


def output(*command, environment=None):
    """What a command on the outside prints."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stdout}{done.stderr}".strip())
    return done.stdout


def mirror():
    """Where this machine gets Debian from."""
    wanted = ("indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages")
    for line in output("apt-get", *wanted).splitlines():
        label, uri = line.rsplit(" ", 1)
        if label == "Debian":
            return uri
    raise Absent("apt knows no source of Debian")


def emulate(machine):
    """Has the kernel start another machine's programs by qemu, from now until it boots anew."""
    rule, qemu = BINFMT / f"qemu-{machine}", shutil.which(f"qemu-{machine}-static")
    if rule.exists():
        return
    if qemu is None or machine not in HEADERS:
        raise Absent(f"programs for {machine} take qemu-{machine}-static (Debian package qemu-user-static)")
    try:
        if not (BINFMT / "register").exists():
            output("mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT))
        # F: opened now, as there is no emulator in the roots.
        (BINFMT / "register").write_text(f":qemu-{machine}:M::{HEADERS[machine]}:{qemu}:F")
    except (OSError, Failed) as error:
        raise Absent(f"the kernel cannot be told how to start programs for {machine}: {error}") from error


def base(suite, machine):
    """A fresh Debian of that release in a folder, made once and kept."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tranche-dist"
    foreign = machine != platform.machine()
    if foreign:
        emulate(machine)
    ready = cache / (f"{suite}-{machine}" if foreign else suite)
    if not ready.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = tempfile.mkdtemp(dir=cache)
        options = [f"--arch={DEBIAN[machine]}", "--variant=minbase", f"--include={TOOLS}"]
        made = subprocess.run(["debootstrap", *options, suite, unfinished, mirror()],
                              capture_output=True, text=True)
        if made.returncode:
            shutil.rmtree(unfinished)
            raise Absent(f"debootstrap could not make it: {made.stdout.strip().splitlines()[-1:]}")
        os.chmod(unfinished, 0o755)
        os.rename(unfinished, ready)
    return ready


class Root:
    """A copy of a bare distribution with the artefacts in /dist; it is gone when the `with` ends."""

    def __init__(self, suite, artefacts, machine):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tranche-dist-"))
        self.root = self.folder / "root"
        output("cp", "-a", "--reflink=auto", str(base(suite, machine)), str(self.root))
        shutil.copytree(artefacts, self.root / "dist")
        (self.root / HOME[1:]).mkdir()
        os.chown(self.root / HOME[1:], USER, USER)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def put(self, path, text):
        """Writes a program."""
        file = self.root / path[1:]
        file.write_text(text)
        file.chmod(0o755)

    def has(self, command):
        return subprocess.run(["chroot", str(self.root), "sh", "-c", f"command -v {command}"],
                              capture_output=True).returncode == 0

    def run(self, line, user=USER, **environment):
        """What a shell in it prints for a line; with processes of its own, which end with the line."""
        begin = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--root={self.root}", "--mount-proc"]
        variables = {"HOME": HOME, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", **environment}
        inside = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "sh", "-c", line]
        done = subprocess.run(begin + inside, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"`{line}` ended with {done.returncode}: {done.stdout}{done.stderr}".strip())
        return done.stdout
