"""Images as OCI archives: that of the daemon, the plugin and their tenants, of what `make build` built, and others.

The former holds what the image of deviceplugin/Containerfile does, a shell, and the programs that play tenants.
"""

import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

from waiting import Failed

# Programs of the stage: those required, and those packed where the stage has them.
PROGRAMS = ("tranched", "tranche", "tranche-deviceplugin", "workload")
OPTIONAL = ("tranche-dradriver", "tranche-nriplugin")
PASSWD = "root:x:0:0::/:/bin/sh\ntranched:x:60878:60878::/:/bin/false\n"
GROUP = "root:x:0:\ntranched:x:60878:\n"
FOLDERS = ("usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "etc", "dev", "proc", "sys", "run", "tmp", "var")


def archive(stage, folder, images):
    """The archive of images of the same files, each with further variables by its name."""
    # The default command sleeps, so that the image also serves as that of pod sandboxes.
    command = ["/usr/bin/busybox", "sleep", "2147483647"]
    configs = {name: {"Cmd": command, "Env": ["PATH=/usr/bin", *more]} for name, more in images.items()}
    return kept("image", folder, list(contents(stage)), configs, finish)


def kept(kind, folder, parts, configs, finish=lambda root: None):
    """The archive of files, given with their paths in the images. It is kept, and made again when one has changed."""
    made = hashlib.sha256(repr(([(to, source.stat().st_mtime_ns) for source, to in parts], configs)).encode())
    made.update(pathlib.Path(__file__).read_bytes())
    place = folder / f"{kind}-{made.hexdigest()[:16]}.tar"
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for older in folder.glob(f"{kind}-*.tar"):
            older.unlink()
        with tempfile.TemporaryDirectory(dir=folder) as work:
            root = pathlib.Path(work, "root")
            fill(root, parts)
            finish(root)
            pack(root, pathlib.Path(work, "archive"), configs)
            pathlib.Path(work, "archive").rename(place)
    return place


def contents(stage):
    """Sources of the files of the image, with their paths in it."""
    programs = [stage / "bin" / name for name in PROGRAMS + tuple(it for it in OPTIONAL if (stage / "bin" / it).exists())]
    for program in programs:
        yield program, f"usr/bin/{program.name}"
    for path in sorted((stage / "lib/tranche").rglob("*")):
        if path.is_file():
            yield path, f"usr/lib/tranche/{path.relative_to(stage / 'lib/tranche')}"
    yield busybox(), "usr/bin/busybox"
    for library in libraries([*programs, stage / "sim/libcuda.so.1"]):
        yield library.resolve(), f"usr/{str(library).removeprefix('/usr').lstrip('/')}"


def busybox():
    """A busybox that needs no libraries."""
    for place in ("/bin/busybox", "/usr/bin/busybox"):
        if subprocess.run(["ldd", place], capture_output=True).returncode != 0 and pathlib.Path(place).exists():
            return pathlib.Path(place)
    raise Failed("there is no static busybox here (Debian: busybox-static)")


def libraries(programs):
    """What the programs are linked with, by the paths that it has on this machine."""
    said = subprocess.run(["ldd", *programs], check=True, capture_output=True, text=True).stdout
    return sorted({pathlib.Path(word) for line in said.splitlines() if line.startswith("\t")
                   for word in line.split() if word.startswith("/")})


def fill(root, parts):
    for name in FOLDERS:
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text(GROUP)
    (root / "tmp").chmod(0o1777)
    for source, to in parts:
        place = root / to
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
        place.chmod(0o755)


def finish(root):
    # Debug information is most of the size.
    programs = [root / f"usr/bin/{name}" for name in PROGRAMS + OPTIONAL] + [root / "usr/lib/tranche/tranche-shepherd"]
    subprocess.run(["strip", "--strip-debug", *(program for program in programs if program.exists())], check=True)
    for name in subprocess.run([root / "usr/bin/busybox", "--list"], check=True, capture_output=True, text=True).stdout.split():
        if not (root / "usr/bin" / name).exists():
            (root / "usr/bin" / name).symlink_to("busybox")


def pack(root, place, configs):
    """One layer, a configuration and a manifest for each name, and an index of the manifests."""
    layer = place.with_name("layer")
    with tarfile.open(layer, "w") as tar:
        tar.add(root, arcname=".", filter=owned_by_root)
    blobs = {}

    def blob(media, data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{media}", "digest": f"sha256:{digest}", "size": len(data)}

    layer_blob = blob("layer.v1.tar", layer.read_bytes())

    def manifest(config):
        config = {"architecture": "amd64", "os": "linux", "config": config,
                  "rootfs": {"type": "layers", "diff_ids": [layer_blob["digest"]]}}
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                    "config": blob("config.v1+json", json.dumps(config).encode()), "layers": [layer_blob]}
        return blob("manifest.v1+json", json.dumps(manifest).encode())

    index = {"schemaVersion": 2, "manifests": [
        {**manifest(config), "annotations": {"io.containerd.image.name": name}} for name, config in configs.items()]}
    with tarfile.open(place, "w") as tar:
        for digest, data in blobs.items():
            add(tar, f"blobs/sha256/{digest}", data)
        add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        add(tar, "index.json", json.dumps(index).encode())


def owned_by_root(entry):
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def add(tar, name, data):
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))
