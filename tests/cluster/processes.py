"""Programs that run as long as the cluster, each with a log."""

import os
import subprocess

from waiting import Failed

PATHS = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


class Program:
    """A started program. It ends with the namespaces at the latest."""

    def __init__(self, name, command, log, prefix=()):
        self.name, self.log = name, log
        output = open(log, "ab")
        # In a session of its own, so that a terminal's interrupt reaches this program alone.
        self.process = subprocess.Popen([*prefix, *map(str, command)], stdin=subprocess.DEVNULL, stdout=output,
                                        stderr=output, env={"PATH": PATHS, "HOME": "/root"}, start_new_session=True)
        output.close()

    def check(self):
        """True, or a failure with the end of its log if the program has ended."""
        if self.process.poll() is not None:
            raise Failed(f"{self.name} ended ({self.process.returncode}):\n{tail(self.log)}")
        return True

    def kill(self):
        self.process.kill()
        self.process.wait()


def tail(log, lines=25):
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-lines:])


def run(*command, check=True, within=(), timeout=120):
    """Standard output of a command. A failure contains standard error, too."""
    done = subprocess.run([*within, *map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout, env={"PATH": PATHS, "HOME": os.environ.get("HOME", "/root")})
    if check and done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout
