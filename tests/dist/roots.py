"""Bare distributions in folders: what a host has that was just installed, without a compiler and without Tranche."""

import os
import pathlib
import shutil
import subprocess
import tempfile

# Debian's releases by name, oldest first. The first has an older C library than releases are built on.
SUITES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13"}
# Beside the smallest Debian: what the one line for the wheel and for the RPM package begins with.
TOOLS = "python3-venv,rpm"
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


def base(suite):
    """A fresh Debian of that release in a folder, made once and kept."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tranche-dist"
    ready = cache / suite
    if not ready.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = tempfile.mkdtemp(dir=cache)
        made = subprocess.run(["debootstrap", "--variant=minbase", f"--include={TOOLS}", suite, unfinished, mirror()],
                              capture_output=True, text=True)
        if made.returncode:
            shutil.rmtree(unfinished)
            raise Absent(f"debootstrap could not make it: {made.stdout.strip().splitlines()[-1:]}")
        os.chmod(unfinished, 0o755)
        os.rename(unfinished, ready)
    return ready


class Root:
    """A copy of a bare distribution with the artefacts in /dist; it is gone when the `with` ends."""

    def __init__(self, suite, artefacts):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tranche-dist-"))
        self.root = self.folder / "root"
        output("cp", "-a", "--reflink=auto", str(base(suite)), str(self.root))
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
