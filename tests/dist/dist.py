"""Each artefact of a release on bare distributions: one line, and `tranche play` works.

    dist.py DIST [ROOT...]      the folder that `make dist` made; names of Debian's releases, else all of them

What is for another machine than this one is tried emulated, on one release, and takes the time that it takes.

SIMULATED: no GPU is touched, and kernels compute nothing.
"""

import json
import os
import pathlib
import platform
import re
import shutil
import sys
import tempfile
import time

from roots import DEBIAN, SUITES, Absent, Failed, Root, emulate, output

LIMIT_S = 60
# Half of a V100 with 32510 MiB, of which the driver's context is taken before a program gets the rest.
CAP = 16255 << 20
# What a person does in `tranche play`: a program that fills its slice, and prints what it saw.
SESSION = """#!/bin/sh
set -eu
tranche smi >/dev/null
tranche run -g 0.5 -- workload --fill --beyond 1Mi --seconds 1
"""
# The one line for each artefact. Where a package is installed, root does that, and an ordinary user plays.
PACKAGES = {
    "archive": (None, "tar xzf /dist/tranche-*-linux.tar.gz -C ~ && ~/tranche-*-linux/bin/tranche play"),
    "wheel": (None, "python3 -m venv ~/venv && ~/venv/bin/pip install -q --disable-pip-version-check --no-index "
                    "/dist/tranche-*.whl && ~/venv/bin/tranche play"),
    "deb": ("apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y /dist/tranche_*.deb", "tranche play"),
    # Its dependencies have other names here, and are judged where a distribution with RPM is.
    "rpm": ("rpm --install --nodeps --noscripts /dist/tranche-*.rpm", "tranche play"),
}

# Podman without anything of the machine's, and within what a container may do that runs it.
STORAGE = '[storage]\ndriver = "vfs"\ngraphroot = "{0}/storage"\nrunroot = "/run/storage"\n'
CONTAINERS = (
    '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\nnetns = "none"\n'
    '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
)
PODMAN = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /run && exec podman --tmpdir /run/libpod "$@"')


def judge(printed):
    """Holds what the program in the slice printed to what a slice of a half must show."""
    reports = [json.loads(line) for line in printed.splitlines() if line.startswith('{"ok"')]
    if len(reports) != 1:
        raise Failed(f"no program ran in a slice: {printed}")
    seen = reports[0]
    total, refused = seen["device"]["total_bytes"], seen["beyond"][0]["error"]
    if (total, refused) != (CAP, "CUDA_ERROR_OUT_OF_MEMORY") or not seen["ok"]:
        raise Failed(f"a slice of a half has {CAP} bytes and nothing beyond, but this is what a program saw: {seen}")


def try_package(suite, kind, dist, machine):
    """Seconds from the artefact to a node on which a program ran in its slice."""
    install, play = PACKAGES[kind]
    with Root(suite, dist, machine) as root:
        if root.has("cc") or root.has("gcc"):
            raise Failed("a bare root has no compiler, and this one does")
        root.put("/session", SESSION)
        begun = time.monotonic()
        if install:
            root.run(install, user=0, HOME="/root")
        printed = root.run(play, SHELL="/session")
        seconds = time.monotonic() - begun
        judge(printed)
        left = [file for file in (root.root / "tmp").iterdir() if file.name.startswith("tranche-")]
        if left:
            raise Failed(f"left behind: {left}")
    return seconds


def try_image(dist, machine):
    """The same in a container, by podman with folders of its own."""
    archive = next(pathlib.Path(dist).glob("*.oci.tar"), None)
    if archive is None or not shutil.which("podman"):
        raise Absent("it takes podman, and an image, which `make dist` makes on a Debian")
    if machine != platform.machine():
        emulate(machine)
    with tempfile.TemporaryDirectory(prefix="tranche-dist-") as folder:
        here = pathlib.Path(folder)
        (here / "storage.conf").write_text(STORAGE.format(here))
        (here / "containers.conf").write_text(CONTAINERS)
        (here / "session").write_text(SESSION)
        (here / "session").chmod(0o755)
        (here / "run").mkdir()
        environment = {**os.environ, "TMPDIR": folder, "CONTAINERS_STORAGE_CONF": f"{here}/storage.conf",
                       "CONTAINERS_CONF": f"{here}/containers.conf"}
        podman = lambda *words: output(*PODMAN, f"{here}/run", *words, environment=environment)
        begun = time.monotonic()
        name = podman("load", "-q", "-i", str(archive)).strip().rsplit(" ", 1)[-1]
        printed = podman("run", "--rm", "-v", f"{here}/session:/session:ro", "-e", "SHELL=/session", name, "tranche", "play")
        seconds = time.monotonic() - begun
        judge(printed)
    return seconds


def machine_of(dist):
    """The machine that the packages are for, by the archive's name."""
    for file in pathlib.Path(dist).glob("tranche-*-linux.tar.gz"):
        name = re.fullmatch(r"tranche-.*-(\w+)-linux\.tar\.gz", file.name)
        if name and name.group(1) in DEBIAN:
            return name.group(1)
    raise Failed(f"there is no archive of a release in {dist}: `make dist` makes it")


def sums(dist):
    output("sh", "-c", f"cd '{dist}' && sha256sum --check --strict --quiet SHA256SUMS")
    print("SHA256SUMS holds", flush=True)


def trials(dist, suites, machine):
    for suite in suites:
        for kind in PACKAGES:
            yield f"{SUITES[suite]}: {kind}", lambda suite=suite, kind=kind: try_package(suite, kind, dist, machine)
    yield "podman: image", lambda: try_image(dist, machine)


def main(arguments):
    dist, machine = arguments[0], machine_of(arguments[0])
    emulated = machine != platform.machine()
    suites = arguments[1:] or (["bookworm"] if emulated else list(SUITES))
    required, absent = os.environ.get("TRANCHE_REQUIRE") == "all", 0
    sums(dist)
    for name, trial in trials(dist, suites, machine):
        try:
            seconds = trial()
        except Absent as reason:
            absent += 1
            print(f"SKIP: {name}: {reason}", flush=True)
            continue
        if seconds > LIMIT_S and not emulated:
            raise Failed(f"{name}: a working `tranche play` took {seconds:.1f} s, and may take {LIMIT_S} s")
        print(f"{name:24} {seconds:5.1f} s to a program that saw its cap in `tranche play`{f' ({machine}, emulated)' if emulated else ''}", flush=True)
    if absent and required:
        raise Failed(f"{absent} skipped, but TRANCHE_REQUIRE=all")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failed as failed:
        print(f"dist.py: {failed}", file=sys.stderr)
        sys.exit(1)
