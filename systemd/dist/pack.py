"""Packs what `make install` put into a folder: archive, wheel, chart and image, each from the same bytes.

    pack.py ROOT OUT     files of the installation below ROOT, packages into OUT
    pack.py base         only fetches what the image takes of Debian
    pack.py bounds OUT   only holds packages of a release to their sizes

Law: equal files give equal bytes. The order of entries, their owners, modes and times are set here, times to
SOURCE_DATE_EPOCH. Compressed bytes also depend on zlib, so that two machines need the same one to get equal archives.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
ARCH = os.environ.get("ARCH") or platform.machine()
# Names that Debian and OCI have for a machine, and where its loader lies in glibc's package.
MACHINES = {"x86_64": ("amd64", "lib64/ld-linux-x86-64.so.2"), "aarch64": ("arm64", "lib/ld-linux-aarch64.so.1")}
# Programs that a person starts. The device plugin belongs to a cluster, and is not in the wheel.
COMMANDS = ("tranche", "tranched", "tranche-page")
# What the image takes of Debian: the C library that the programs run on, that of C++ drivers, and a shell.
BASE = ("libc6", "libgcc-s1", "busybox-static")
DEBIAN = TREE / "target/tools/image" / ARCH
# How large packages may be, in bytes: what a person fetches before the first trial stays small.
LIMITS = {".whl": 15_000_000, ".oci.tar": 60_000_000}
# Of zlib, in all compressed packages.
LEVEL = 9


class Failed(Exception):
    """Something could not be packed."""


class Tree:
    """Files and links by path, with content and mode, from folders and from memory."""

    def __init__(self):
        self.files = {}

    def add(self, path, content, mode=0o644):
        self.files[path] = (content, mode)

    def link(self, path, to):
        self.files[path] = (to, None)

    def copy(self, folder, prefix="", wanted=lambda path: True):
        """Takes what lies in a folder, below a prefix."""
        folder = pathlib.Path(folder)
        for file in sorted(folder.rglob("*")):
            path = str(file.relative_to(folder))
            if not wanted(path):
                continue
            if file.is_symlink():
                self.link(prefix + path, os.readlink(file))
            elif file.is_file():
                executable = file.stat().st_mode & 0o100
                self.add(prefix + path, file.read_bytes(), 0o755 if executable else 0o644)

    def tar(self, folders=()):
        """An uncompressed archive, with the folders that the files need and some more, as (path, mode)."""
        modes = dict(folders)
        for path in self.files:
            for parent in pathlib.PurePosixPath(path).parents:
                modes.setdefault(str(parent), 0o755)
        modes.pop(".", None)
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted({**self.files, **modes}):
                info = tarfile.TarInfo(path)
                info.mtime = epoch()
                if path in modes:
                    info.type, info.mode = tarfile.DIRTYPE, modes[path]
                    archive.addfile(info)
                    continue
                content, mode = self.files[path]
                if mode is None:
                    info.type, info.linkname, info.mode = tarfile.SYMTYPE, content, 0o777
                    archive.addfile(info)
                else:
                    info.size, info.mode = len(content), mode
                    archive.addfile(info, io.BytesIO(content))
        return out.getvalue()


def epoch():
    try:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    except (KeyError, ValueError) as error:
        raise Failed(f"cannot date the files: SOURCE_DATE_EPOCH is {error}; run `make dist`, which sets it") from error


def compressed(data):
    return gzip.compress(data, LEVEL, mtime=epoch())


def version():
    """The version of the workspace, from which all packages take it."""
    manifest = (TREE / "Cargo.toml").read_text()
    return re.search(r'(?s)\[workspace\.package\]\nversion = "(.*?)"', manifest).group(1)


def glibc():
    """Version of the oldest C library that the programs run on; `check.py` holds them to it."""
    return (HERE / "glibc").read_text().strip()


# The archive: the installation as it is, in one folder that may lie anywhere.

def archive(root):
    name = f"tranche-{version()}-{ARCH}-linux"
    tree = Tree()
    tree.copy(root / "usr", f"{name}/")
    tree.copy(root / "etc", f"{name}/etc/")
    return f"{name}.tar.gz", compressed(tree.tar())


# The wheel, as https://packaging.python.org/en/latest/specifications/binary-distribution-format/ has it. `pip` puts
# what lies in `scripts` into bin, and what lies in `data` below the environment, where the programs find each other.

def wheel(root):
    name, tag = f"tranche-{version()}", f"py3-none-manylinux_{glibc().replace('.', '_')}_{ARCH}"
    share = ("share/man/", "share/bash-completion/", "share/zsh/", "share/fish/")
    of_tenants = lambda path: path.startswith(("lib/tranche/", *share))
    tree = Tree()
    tree.copy(root / "usr/bin", f"{name}.data/scripts/", lambda path: path in COMMANDS)
    tree.copy(root / "usr", f"{name}.data/data/", of_tenants)
    licences = root / "usr/share/doc/tranche"
    for file in ("LICENSE", "THIRD-PARTY-LICENSES.txt"):
        tree.add(f"{name}.dist-info/licenses/{file}", (licences / file).read_bytes())
    tree.add(f"{name}.dist-info/sboms/sbom.cdx.json", (licences / "sbom.cdx.json").read_bytes())
    tree.add(f"{name}.dist-info/METADATA", metadata().encode())
    tree.add(f"{name}.dist-info/WHEEL",
             f"Wheel-Version: 1.0\nGenerator: tranche\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
    tree.add(f"{name}.dist-info/RECORD", record(name, tree).encode())
    return f"{name}-{tag}.whl", zipped(tree)


def metadata():
    return (
        "Metadata-Version: 2.4\nName: tranche\n"
        f"Version: {version()}\n"
        "Summary: Slices of NVIDIA GPUs, each with a memory cap and a share of the GPU's time\n"
        "License-Expression: Apache-2.0\nLicense-File: LICENSE\nLicense-File: THIRD-PARTY-LICENSES.txt\n"
        "Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n"
        "The daemon, the command line and the library of Tranche, and a simulated node to try them on:\n\n"
        "    tranche play\n"
    )


def record(name, tree):
    """Hash and size of each file, except of this list itself."""
    lines = []
    for path, (content, _) in sorted(tree.files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}\n")
    return "".join(lines) + f"{name}.dist-info/RECORD,,\n"


def zipped(tree):
    # Installers read the list of files first where it stands last.
    order = sorted(tree.files, key=lambda path: (".dist-info/" in path, path.endswith("/RECORD"), path))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive_:
        for path in order:
            content, mode = tree.files[path]
            info = zipfile.ZipInfo(path, time.gmtime(epoch())[:6])
            info.create_system, info.external_attr = 3, (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive_.writestr(info, content)
    return out.getvalue()


# The chart, as `helm package` lays it out.

def chart(_):
    tree = Tree()
    tree.copy(TREE / "deviceplugin/chart", "tranche/")
    return f"tranche-chart-{version()}.tgz", compressed(tree.tar())


# The image: https://github.com/opencontainers/image-spec, as an archive that `podman load` and `skopeo copy` read.

def image(root):
    packages = debian()
    layers = [base_layer(packages), tranche_layer(root)]
    blobs, created = {}, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch()))

    def blob(kind, data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    config = {
        "created": created,
        "architecture": MACHINES[ARCH][0],
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/bin:/bin"],
            # A container that is started without a command shows what it could run.
            "Cmd": ["/usr/bin/tranched", "--help"],
            "Labels": {
                "org.opencontainers.image.title": "tranche",
                "org.opencontainers.image.version": version(),
                "org.opencontainers.image.licenses": "Apache-2.0",
                "dev.tranche.base": " ".join(sorted(packages)),
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]},
        "history": [{"created": created, "created_by": name} for name in ("Debian's packages", "make dist")],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", encoded(config)),
        "layers": [blob("layer.v1.tar+gzip", compressed(layer)) for layer in layers],
    }
    entry = blob("manifest.v1+json", encoded(manifest))
    entry["annotations"] = {"org.opencontainers.image.ref.name": f"localhost/tranche:{version()}"}
    entry["platform"] = {"architecture": MACHINES[ARCH][0], "os": "linux"}
    out = Tree()
    out.add("oci-layout", encoded({"imageLayoutVersion": "1.0.0"}))
    out.add("index.json", encoded({"schemaVersion": 2, "manifests": [entry]}))
    for path, data in blobs.items():
        out.add(path, data)
    return f"tranche-{version()}-{ARCH}.oci.tar", out.tar()


def encoded(value):
    return json.dumps(value, indent=1, sort_keys=True).encode()


def debian():
    """The packages of the base, fetched once: file names, which have their versions."""
    if not list(DEBIAN.glob("*.deb")):
        DEBIAN.mkdir(parents=True, exist_ok=True)
        try:
            if ARCH != platform.machine():
                apt("update")
            apt("download", *BASE)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Failed(f"cannot fetch {', '.join(BASE)} for the image by apt-get: {error}; "
                         "run `apt-get update` on a Debian, or pack without the image (IMAGE=no)") from error
    return {package.name for package in DEBIAN.glob("*.deb")}


def apt(*action):
    """Runs apt-get; for another machine with lists of its own, so that this machine's stay as they are."""
    options = ["-qq", "-o", "APT::Sandbox::User=root"]
    if ARCH != platform.machine():
        name, state = MACHINES[ARCH][0], DEBIAN / "apt"
        for folder in ("lists/partial", "archives/partial"):
            (state / folder).mkdir(parents=True, exist_ok=True)
        settings = (f"APT::Architecture={name}", f"APT::Architectures::={name}", f"Dir::State={state}",
                    "Dir::State::status=/dev/null", f"Dir::Cache={state}")
        options += [word for setting in settings for word in ("-o", setting)]
    subprocess.run(["apt-get", *options, *action], cwd=DEBIAN, check=True, stdout=subprocess.DEVNULL)


def base_layer(packages):
    tree = Tree()
    for package in sorted(packages):
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", DEBIAN / package], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as files:
            take(tree, files)
    # Debian's folders of today, in which /lib and /bin are links.
    for folder in ("bin", "sbin", "lib", "lib64"):
        tree.link(folder, f"usr/{folder}")
    for applet in ("sh", "ls", "cat", "grep", "sleep"):
        tree.link(f"usr/bin/{applet}", "busybox")
    number = re.search(r"--uid (\d+)", (TREE / "deviceplugin/Containerfile").read_text()).group(1)
    tree.add("etc/passwd", f"root:x:0:0:root:/root:/bin/sh\ntranched:x:{number}:{number}::/:/usr/sbin/nologin\n".encode())
    tree.add("etc/group", f"root:x:0:\ntranched:x:{number}:\n".encode())
    return tree.tar([("tmp", 0o1777), ("root", 0o700), ("run", 0o755), ("var/lib", 0o755), ("var", 0o755)])


def take(tree, files):
    """Libraries, the loader, the shell and licences of a package; no conversion tables and no manual pages."""
    for member in files:
        path = member.name.removeprefix("./")
        path = f"usr/{path}" if path.startswith(("lib/", "lib64/", "bin/")) else path
        wanted = re.search(rf"^usr/({MACHINES[ARCH][1]}$|lib/{ARCH}-linux-gnu/[^/]*$|bin/busybox$)|/copyright$", path)
        if wanted and member.issym():
            to = member.linkname
            tree.link(path, f"/usr{to}" if to.startswith("/lib") else to)
        elif wanted and member.isfile():
            tree.add(path, files.extractfile(member).read(), member.mode)


def tranche_layer(root):
    tree = Tree()
    of_image = ("bin/", "lib/tranche/", "share/doc/tranche/")
    tree.copy(root / "usr", "usr/", lambda path: path.startswith(of_image))
    return tree.tar()


def bounds(out):
    for file in out.iterdir():
        size = file.stat().st_size
        limit = next((limit for end, limit in LIMITS.items() if file.name.endswith(end)), size)
        if size > limit:
            raise Failed(f"{file.name} has {size} bytes, and may have {limit}: `size -A` shows what grew")


def main(arguments):
    if ARCH not in MACHINES:
        raise Failed(f"cannot pack for the machine {ARCH!r}: set ARCH to {' or '.join(MACHINES)}")
    if arguments == ["base"]:
        debian()
        return
    if len(arguments) == 2 and arguments[0] == "bounds":
        bounds(pathlib.Path(arguments[1]))
        return
    if len(arguments) != 2:
        raise Failed("two folders are needed: the installation, and that of the packages")
    root, out = map(pathlib.Path, arguments)
    kinds = [archive, wheel, chart] + ([] if os.environ.get("IMAGE") == "no" else [image])
    for kind in kinds:
        name, data = kind(root)
        (out / name).write_bytes(data)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failed as failed:
        print(f"pack.py: {failed}", file=sys.stderr)
        sys.exit(1)
