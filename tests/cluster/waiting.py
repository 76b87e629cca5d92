"""What fails, and how to wait for what takes a while."""

import time

PATIENCE_S = 60


class Failed(Exception):
    """Something in the cluster did not go as it should."""


def until(what, look, patience=PATIENCE_S, pause=0.05):
    """Waits until look() is true and returns what it is; what was waited for in vain is named."""
    deadline = time.monotonic() + patience
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise Failed(f"waited {patience} s in vain for {what}")
        time.sleep(pause)
    return seen


def holds_for(seconds, look):
    """Whether look() is true each time it is asked within so many seconds; ends with the first that is not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not look():
            return False
        time.sleep(0.05)
    return True
