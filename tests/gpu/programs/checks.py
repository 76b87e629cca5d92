"""What the checks of programs share.

A check tries one program and prints facts, one a line: a name, a tab, a value.

    version    of the program
    memory     bytes of the GPU as the program states them, then `exact`, or `about` where it rounds
    beyond     the program's own error for more memory than there is
    contents   `right` or `wrong`: bytes that went to the GPU and came back
    computed   `right` or `wrong`: results of kernels, which a simulated GPU does not compute
    same       what a slice must not change, as often as there is something
    why        one line about a failure or a skip

A check exits with 0, with ABSENT where the program is not installed, or with SKIPPED where it is and cannot be
tried here. It does not find out whether it is in a slice: `programs.py` compares the facts of both runs.
"""

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ABSENT, SKIPPED = 77, 78
MIB = 1 << 20
TESTS = Path(os.environ.get("TRANCHE_TESTS", Path(__file__).resolve().parent.parent))


def fact(name, *values):
    print(name, *values, sep="\t", flush=True)


def leave(status, why):
    fact("why", " ".join(str(why).split())[:300])
    sys.stdout.flush()
    os._exit(status)


def absent(why):
    leave(ABSENT, why)


def skip(why):
    leave(SKIPPED, why)


def fail(why):
    leave(1, why)


def module(name):
    """The module, or the end of this check where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if getattr(error, "name", None) in (name, name.split(".")[0]):
            absent(f"no module {name}")
        skip(f"{name} cannot be imported: {error}")


def command(*names):
    """The first of these commands that is installed, or the end of this check."""
    found = next(filter(None, map(shutil.which, names)), None)
    return found or absent(f"no command {' or '.join(names)}")


def output(*arguments, seconds=60, **options):
    """What a command prints; it has to succeed."""
    name = Path(str(arguments[0])).name
    try:
        done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=seconds, **options)
    except subprocess.TimeoutExpired:
        fail(f"{name} did not end within {seconds} s")
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        fail(f"{name} ended with {done.returncode}: {lines[-1] if lines else ''}")
    return done.stdout


def folder():
    """A folder that is gone with this check."""
    made = tempfile.TemporaryDirectory(prefix="tranche-check.")
    return made, Path(made.name)


def verdict(name, right):
    fact(name, "right" if right else "wrong")


def beyond(ask, error, name=None):
    """Requests more than there is, which has to end in this error; `name` where its class is a check's own."""
    try:
        ask()
    except error as refusal:
        fact("beyond", name or type(refusal).__name__)
        return
    except Exception as other:  # whichever it is
        fail(f"more memory than there is: {type(other).__name__}: {other}")
    fail("more memory than there is was granted")


def more_than(total):
    """A size that does not fit, and would fit in a GPU of twice the memory."""
    return (total + total // 20) // (2 * MIB) * 2 * MIB
