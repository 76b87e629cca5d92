"""Failures, and waiting with a time limit."""

import time

PATIENCE_S = 60


class Failed(Exception):
    """Something in the cluster did not go as it should."""


def until(what, look, patience=PATIENCE_S, pause=0.05):
    """Waits until look() is true and returns its value. A failure names what did not come."""
    deadline = time.monotonic() + patience
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise Failed(f"waited {patience} s in vain for {what}")
        time.sleep(pause)
    return seen


def holds_for(seconds, look):
    """Returns whether look() stays true for this many seconds; ends early if not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not look():
            return False
        time.sleep(0.05)
    return True
