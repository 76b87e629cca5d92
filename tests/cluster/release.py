"""The image and the chart of a release, packed from what `make build` built."""

import json
import os
import subprocess
import sys
import tarfile

from cluster import TREE
from waiting import Failed

sys.path.insert(0, str(TREE / "systemd/dist"))
import pack

# Any date gives a package, and this one the same each time.
DATE = "1000000000"


class Lacking(Failed):
    """Something that a release is packed from is not on this machine."""


def packed(folder):
    """The archive of the image and the package of the chart, in a folder."""
    if not any(pack.DEBIAN.glob("*.deb")):
        # A cell has no network to fetch them by.
        raise Lacking("Debian's packages for the image are not here: `make cluster-build` fetches them")
    root = folder / "installation"
    installed(root)
    os.environ["SOURCE_DATE_EPOCH"] = DATE
    # Level 9 takes half a minute. The files are the same with any.
    pack.LEVEL = 1
    places = []
    for kind in (pack.image, pack.chart):
        name, data = kind(root)
        places.append(folder / name)
        places[-1].write_bytes(data)
    return places


def installed(root):
    """What `make build` built, below a folder, as tests/dist/installed.sh puts it there."""
    script = TREE / "tests/dist/installed.sh"
    done = subprocess.run([script, root], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise Lacking(f"{script.name} cannot install what was built: {done.stderr}`make build third-party` builds it; "
                      "BUILT, SHIMS and THIRD_PARTY name other folders")


def identity(archive):
    """Name and id of the image in an archive. The id is the digest of its configuration."""
    with tarfile.open(archive) as files:
        read = lambda path: json.load(files.extractfile(path))
        [entry] = read("index.json")["manifests"]
        manifest = read(f"blobs/{entry['digest'].replace(':', '/')}")
    return entry["annotations"]["org.opencontainers.image.ref.name"], manifest["config"]["digest"]
