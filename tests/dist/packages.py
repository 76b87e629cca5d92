"""Archive and wheel of what `make build` built: packed twice alike, unpacked anywhere, played with.

    packages.py ROOT     what `make install` put below a folder, stripped

The short form of dist.py: it needs no release build and no other distribution. SIMULATED: kernels compute nothing.
"""

import os
import pathlib
import sys
import tempfile
import time

from dist import SESSION, judge
from roots import Failed, output

PACK = pathlib.Path(__file__).resolve().parents[2] / "systemd/dist/pack.py"


def packed(root, out):
    """Contents of the packages by name."""
    out.mkdir()
    output(sys.executable, str(PACK), str(root), str(out), environment={**os.environ, "IMAGE": "no", "SOURCE_DATE_EPOCH": "1000000000"})
    return {file.name: file.read_bytes() for file in out.iterdir()}


def play(command, home):
    session = home / "session"
    session.write_text(SESSION)
    session.chmod(0o755)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "SHELL": str(session)}
    judge(output(str(command), "play", environment=environment))


def only(folder, pattern):
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise Failed(f"one {pattern} is expected in {folder}, not {found}")
    return found[0]


def archive(out, home):
    output("tar", "xzf", str(only(out, "*-linux.tar.gz")), "-C", str(home))
    play(only(home, "tranche-*/bin/tranche"), home)


def wheel(out, home):
    output(sys.executable, "-m", "venv", str(home / "venv"))
    # A tool for pipelines puts links into a folder of its own, which must do as well.
    output(str(home / "venv/bin/pip"), "install", "-q", "--disable-pip-version-check", "--no-index", str(only(out, "*.whl")))
    (home / "bin").mkdir()
    (home / "bin/tranche").symlink_to(home / "venv/bin/tranche")
    play(home / "bin/tranche", home)


def main(root):
    with tempfile.TemporaryDirectory(prefix="packages-") as folder:
        here = pathlib.Path(folder)
        first, again = packed(root, here / "first"), packed(root, here / "again")
        if first != again:
            raise Failed(f"packed twice, these differ: {[name for name in first if first[name] != again.get(name)]}")
        print(f"packed twice alike: {', '.join(sorted(first))}", flush=True)
        for kind in (archive, wheel):
            home = here / kind.__name__
            home.mkdir()
            begun = time.monotonic()
            kind(here / "first", home)
            print(f"{kind.__name__:8} {time.monotonic() - begun:5.1f} s to a program that saw its cap in `tranche play`", flush=True)


if __name__ == "__main__":
    try:
        main(pathlib.Path(sys.argv[1]))
    except Failed as failed:
        print(f"packages.py: {failed}", file=sys.stderr)
        sys.exit(1)
