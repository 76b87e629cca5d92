"""Judges what is about to be packed: its machine, the glibc that it needs, what it was stripped of, and paths in it.

    check.py ROOT        files of the installation below ROOT
"""

import os
import pathlib
import platform
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# The shim lives in programs that others built, and needs less than the programs do (`shim/hooks`).
SHIM, SHIM_GLIBC = "lib/tranche/(libtranche_preload|replace/)", (2, 17)
# Bytes of a library that each program of a slice maps.
SHIM_BYTES = 400_000


# Which machine it is for (ARCH), as `readelf` has it.
MACHINE = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}[os.environ.get("ARCH") or platform.machine()]


class Refused(Exception):
    """Something that must not be packed."""


def elves(root):
    for file in sorted(root.rglob("*")):
        if file.is_file() and not file.is_symlink() and file.read_bytes()[:4] == b"\x7fELF":
            yield file


def readelf(*arguments):
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True,
                          env=environment).stdout


def needed(file):
    """The newest version of glibc that the loader looks for before it starts the file."""
    versions = re.findall(r"Name: GLIBC_([\d.]+)", readelf("-V", file))
    return max(map(number, versions), default=(2, 2))


def number(version):
    return tuple(int(part) for part in version.split("."))


def dotted(version):
    return ".".join(map(str, version))


def builders_paths():
    """Folders that exist on the machine that builds, which no file may name."""
    tree, home = HERE.parent.parent, pathlib.Path.home()
    places = [tree, os.environ.get("CARGO_HOME", home / ".cargo"), os.environ.get("RUSTUP_HOME", home / ".rustup")]
    # A name of one part, such as /src, could stand there for another reason.
    return [f"{place}/".encode() for place in map(pathlib.Path, places) if len(place.parts) > 2]


def check(file, path, limit):
    machine = re.search(r"Machine: +(.*)", readelf("-h", file)).group(1)
    if machine != MACHINE:
        raise Refused(f"{path} is for {machine}, and the packages are for {MACHINE}: ARCH names the machine")
    glibc, limit = needed(file), SHIM_GLIBC if re.search(SHIM, path) else limit
    if glibc > limit:
        raise Refused(f"{path} needs glibc {dotted(glibc)}, and may need {dotted(limit)}: `readelf -W --dyn-syms` shows for what")
    if re.search(r"\.debug_info\b", readelf("-S", file)):
        raise Refused(f"{path} has debugging information: it was not built by systemd/dist/build.sh")
    content = file.read_bytes()
    if re.search(SHIM, path) and len(content) > SHIM_BYTES:
        raise Refused(f"{path} has {len(content)} bytes, and may have {SHIM_BYTES}: `size -A` shows what grew")
    for place in builders_paths():
        if place in content:
            around = re.search(rb"[ -~]*" + re.escape(place) + rb"[ -~]*", content).group()[-200:]
            raise Refused(f"{path} names {around!r}, which is a path of this machine: systemd/dist/build.sh maps such")
    return glibc


def main(arguments):
    if len(arguments) != 1:
        raise Refused("one folder is needed: the installation")
    root = pathlib.Path(arguments[0])
    limit = number((HERE / "glibc").read_text().strip())
    found = {str(file.relative_to(root)): file for file in elves(root)}
    if not found:
        raise Refused(f"there is no program in {root}")
    for path, file in found.items():
        glibc = check(file, path, limit)
        print(f"{path:48} {file.stat().st_size / 1e6:6.1f} MB, glibc {dotted(glibc)} or newer")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Refused as refused:
        print(f"check.py: {refused}", file=sys.stderr)
        sys.exit(1)
