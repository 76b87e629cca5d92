"""The RPM package on a machine that boots: installed with its scripts, set up by doctor, used, upgraded, removed.

    rpm.py STAGE PACKAGE

A Debian with `rpm`, so dependencies are not judged. SIMULATED: no GPU is touched, and kernels compute nothing.
"""

import pathlib
import sys

from boot import UNITS, Story
from machine import Failed, Machine

HALF = "tranche run -g 0.5 -- workload --memory 1Gi --seconds 1"


class RpmStory(Story):
    def installs(self):
        self.machine.file("/package.rpm").write_bytes(pathlib.Path(self.package).read_bytes())
        self.machine.run("useradd", "--create-home", "carol")
        self.machine.run("rpm", "--install", "--nodeps", "/package.rpm")
        self.holds("the package installs, and starts nothing", not self.daemon())
        self.machine.run("getent", "group", "tranche")
        self.machine.run("test", "-d", "/run/cdi")
        self.holds("but the group and the folders are there")

    def is_set_up(self):
        uid = self.machine.run("id", "-u", "carol").strip()
        listed = self.machine.run("env", f"SUDO_UID={uid}", "tranche", "doctor", "--setup", check=False, said=True)
        self.holds("`tranche doctor --setup` lists what is left", all(unit in listed for unit in UNITS))
        self.machine.run("env", f"SUDO_UID={uid}", "tranche", "doctor", "--setup", "--apply")
        self.holds("with `--apply` the daemon serves, and starts with the machine",
                   self.daemon() and self.machine.run("systemctl", "is-enabled", *UNITS) == "enabled\n" * 4)
        self.machine.run(*HALF.split(), user="carol")
        self.holds("a user runs half a GPU")

    def it_is_replaced(self):
        before = self.daemon()
        self.machine.run("tranche", "slice", "create", "stays", "-g", "0.3")
        self.machine.run("rpm", "--upgrade", "--force", "--nodeps", "/package.rpm")
        self.holds("an upgrade replaces the daemon, and slices stay",
                   self.daemon() not in (None, before) and "stays" in self.slices())

    def it_goes(self):
        self.machine.run("tranche", "slice", "delete", "stays")
        self.machine.run("rpm", "--erase", "tranche")
        self.holds("removed, nothing of it runs", self.machine.run("pgrep", "-f", "tranche", check=False) is None)
        self.holds("and its files are gone", not self.machine.file("/usr/bin/tranched").exists())

    def tell(self):
        self.machine.boot()
        self.installs()
        self.is_set_up()
        self.it_is_replaced()
        self.it_goes()


def main(stage, package):
    with Machine(stage, also=("rpm",)) as machine:
        story = RpmStory(machine, ())
        story.package = package
        try:
            story.tell()
        except Failed as failed:
            print(f"FAILED: {failed}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
