"""A package on a machine that boots: installed, used by an ordinary user, restarted, killed, upgraded, stuck, purged.

    boot.py STAGE PACKAGE NEWER-PACKAGE

Each claim is a line; the first that does not hold ends it. SIMULATED: no GPU is touched, and kernels compute nothing.
"""

import json
import pathlib
import sys
import time

from machine import Failed, Machine, until

# Tenants: of the same GPU, and never more than their share, so that what they get can be compared.
ALICE = "tranche run -g 0.5 --gpu 0 --mode strict --name alice -- workload --memory 4Gi --seconds 3600 --sync 4"
HALF = "tranche slice create half -g 0.3 --gpu 0 --mode strict"
TEAM = "tranche project create team --quota 1 --training-gpus 1 --member alice"
TRAIN = "tranche submit train -p team -g 0.5 --workdir /home/alice -- workload --memory 1Gi --seconds 3600 --sync 4"
JOB = """[Service]
ExecStart=/usr/local/bin/workload --memory 2Gi --seconds 3600 --sync 4
StandardOutput=null
[Install]
WantedBy=multi-user.target
"""
LIMITED = "tranche submit {} -p team -g 0.1 --cpus 1.5 --mem 64Mi --workdir /home/alice --"
# More than 64 MiB in one process; the shell behind it does not print if the whole job ends.
EATS = "head -c 200000000 /dev/zero | tail -c 150000000 | wc -c; echo survived"
LOOKS = """
cd /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)
cat memory.max memory.swap.max cpu.max
echo max >memory.max || echo cannot raise
echo 0 >../runner/cgroup.procs || echo cannot leave
"""
UNITS = ("tranched.service", "tranched.socket", "tranche-attest.socket", "tranche-job.socket")
SHARES = {"alice": 0.5, "half": 0.3}
TOLERANCE = 0.05
# A daemon that is stuck is found out after so long here; the unit says 30 s.
IMPATIENT = "[Service]\nWatchdogSec=2\n"
# Their numbers, from linux/capability.h.
CAPABILITIES = {"CAP_DAC_READ_SEARCH": 2, "CAP_KILL": 5, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21}
PLUGIN = '[[profile]]\nname = "gpu-50"\nfraction = 0.5\n[[layout]]\nprofiles = ["gpu-50", "gpu-50"]\n'


class Story:
    """What is told, and the machine that it is told of."""

    def __init__(self, machine, packages):
        self.machine = machine
        self.packages = dict(zip(("/package.deb", "/newer.deb"), packages))
        self.begun = time.monotonic()

    def holds(self, claim, truth=True):
        """Says that a claim holds, or ends everything."""
        if not truth:
            raise Failed(f"this does not hold: {claim}")
        print(f"[{time.monotonic() - self.begun:5.1f} s] {claim}", flush=True)

    # What there is to see.

    def slices(self):
        """Of each slice what must not change while it is in use."""
        view = json.loads(self.machine.run("tranche", "smi", "--json"))
        return {
            slice["name"]: {
                "share": slice["share"],
                "memory": [(part["gpu_uuid"], part["cap"], part["used"]) for part in slice["devices"]],
                "processes": sorted(process["pid"] for process in slice["processes"]),
            }
            for slice in view["slices"]
        }

    def shown(self, unit, what):
        return self.machine.run("systemctl", "show", "-P", what, unit).strip()

    def daemon(self):
        """The daemon's pid, once it serves; nothing before."""
        serves = self.shown("tranched", "ActiveState") == "active"
        return int(self.shown("tranched", "MainPID")) if serves else None

    def gpu_time(self, slices):
        """Which part of a second each slice's processes really had the GPU."""
        self.machine.run("sleep", "1.2")
        log = [line.split("\t") for line in self.machine.run("simgpu", "log", "--gpu", "0", "/dev/simgpu").splitlines()]
        end = max(int(until) for *_, until in log)
        spent = {name: 0 for name in slices if name in SHARES}
        for _, pid, _, since, until_ns in log:
            for name in spent:
                if int(pid) in slices[name]["processes"]:
                    spent[name] += max(0, int(until_ns) - max(int(since), end - 10**9))
        return {name: ns / 1e9 for name, ns in spent.items()}

    def survives(self, what, happens):
        """Something happens, and the tenants do not notice."""
        before, daemon = self.slices(), self.daemon()
        happens()
        until("the next daemon", lambda: (self.daemon() or daemon) != daemon)
        after = self.slices()
        self.holds(f"{what}: tenants go on with the memory and the processes that they had", before == after)
        # How much less than its share a tenant uses is this machine's affair: it may be busy.
        spent = self.gpu_time(after)
        said = ", ".join(f"{name} {part:.0%} of its {SHARES[name]:.0%}" for name, part in spent.items())
        within = all(0 < part <= SHARES[name] + TOLERANCE for name, part in spent.items())
        self.holds(f"{what}: they run, within their shares: {said} of the GPU's time in the second after", within)

    # What happens, in this order.

    def arrives(self):
        for name, package in self.packages.items():
            self.machine.file(name).write_bytes(pathlib.Path(package).read_bytes())
        for user in ("alice", "bob", "carol"):
            self.machine.run("useradd", "--create-home", user)
        # What a kubelet makes.
        self.machine.run("mkdir", "-p", "/var/lib/kubelet/device-plugins")

    def installs(self):
        self.machine.run("dpkg", "--install", "/package.deb")
        self.holds("the package installs, and the daemon serves", self.daemon())
        self.holds("it is enabled", self.machine.run("systemctl", "is-enabled", *UNITS) == "enabled\n" * 4)
        self.machine.run("systemd-analyze", "verify", "--man=no", "--recursive-errors=yes", *UNITS,
                         "tranche-page.service", "tranche-deviceplugin.service", "tranche-slice@half.service")
        self.holds("`systemd-analyze verify` has nothing to say")

    def is_set_up(self):
        """What the package does is what `doctor --setup` finds done; what is taken away, it brings back."""
        self.machine.run("tranche", "doctor", "--setup")
        self.holds("`tranche doctor --setup` finds nothing left to do")
        self.machine.run("systemctl", "disable", "--now", *UNITS)
        self.machine.run("rm", "-r", "/run/cdi")
        listed = self.machine.run("tranche", "doctor", "--setup", user="carol", check=False, said=True)
        commands = ("systemd-tmpfiles --create tranche.conf", "systemctl enable --now", "usermod -aG tranche carol")
        self.holds("it lists the commands for what was taken away", all(f"$ {command}" in listed for command in commands))
        refused = self.machine.run("tranche", "doctor", "--setup", "--apply", user="carol", check=False, said=True)
        self.holds("and runs them for root alone", "sudo tranche doctor --setup --apply" in refused and not self.daemon())
        uid = self.machine.run("id", "-u", "carol").strip()
        self.machine.run("env", f"SUDO_UID={uid}", "tranche", "doctor", "--setup", "--apply")
        member = "tranche" in self.machine.run("id", "-nG", "carol").split()
        self.holds("with `--apply` the daemon serves, and who called it may have slices", self.daemon() and member)

    def is_confined(self):
        """What the daemon's processes hold, by the kernel's word: the one that parses nothing, its helper what is documented."""
        main = self.daemon()
        status = lambda pid, line: self.machine.run("grep", f"^{line}:", f"/proc/{pid}/status").split()[1]
        user = self.machine.run("id", "-u", "tranched").strip()
        self.holds(f"the daemon's main process is user tranched ({user}) and holds no capability",
                   status(main, "Uid") == user != "0" and int(status(main, "CapPrm"), 16) == 0)
        helper = self.machine.run("pgrep", "-P", str(main), "-f", "privileged-helper").strip()
        self.holds(f"its helper holds {' '.join(sorted(CAPABILITIES))} and nothing else",
                   int(status(helper, "CapPrm"), 16) == sum(1 << number for number in CAPABILITIES.values()))
        told = self.machine.run("tranche", "doctor", check=False, said=True)
        self.holds("doctor says so", f"tranched (uid {user}) holds no capabilities" in told)
        written = self.machine.run("find", "/", "-xdev", "-path", "/proc", "-prune", "-o", "-user", "tranched", "-print")
        tree = ("/run/tranche/", "/var/lib/tranche/")
        strays = [path for path in written.splitlines() if not path.startswith(tree)]
        self.holds(f"no file elsewhere is that user's: {strays}", not strays)
        self.cannot("replace what root keeps in its directories",
                    "mv /run/tranche/lock /run/tranche/x", "mv /var/lib/tranche/lib /var/lib/tranche/x")

    def cannot(self, what, *commands):
        """None of these commands works for the user of the daemon's main process."""
        done = self.machine.run("runuser", "-u", "tranched", "--", "sh", "-c", " || ".join(commands), check=False)
        self.holds(f"user tranched cannot {what}", done is None)

    def containers_are_told_by_root(self, when):
        """What container runtimes follow as root is out of the main process's reach."""
        document, folder = "/run/cdi/tranche.dev-slice-half.json", "/run/tranche/mounts/half"
        self.machine.run("test", "-S", f"{folder}/attach.sock")
        theirs = self.machine.run("find", "/run/cdi", "/run/tranche/mounts", "-user", "tranched").split()
        self.holds(f"{when}: documents and folders for containers are root's: {theirs}", not theirs)
        mounts = json.loads(self.machine.run("cat", document))["devices"][0]["containerEdits"]["mounts"]
        self.holds("the document mounts the folder", folder in [mount["hostPath"] for mount in mounts])
        self.cannot("exchange them", "mv /run/tranche/mounts /run/tranche/x", f"mv {folder} {folder}.old", f"touch {folder}/x",
                    f"ln -s / {folder}.new", f"rm {document}", f"touch {document}", "touch /run/cdi/other.json")

    def upgrades(self):
        """From a release in which documents and folders were the main process's, and that process was taken over."""
        self.machine.run("sh", "-ec", """
            mkdir -p /run/tranche/mounts/half/x/y && chown -R tranched:tranched /run/tranche/mounts && chown tranched: /run/cdi/tranche.dev-*.json
            chgrp tranched /run/cdi && chmod 1775 /run/cdi
            echo '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu"}' >/run/cdi/nvidia.json && chown tranched /run/cdi/nvidia.json
        """)
        folder = self.machine.run("stat", "--format=%i", "/run/tranche/mounts/half")
        self.machine.run("dpkg", "--install", "/newer.deb")
        until("the next daemon's document", lambda: self.daemon() and self.machine.run(
            "ls", "/run/cdi/tranche.dev-slice-half.json", check=False))
        same = self.machine.run("stat", "--format=%i", "/run/tranche/mounts/half") == folder
        self.holds("the folder that a container has mounted is the same", same)
        planted = self.machine.run("ls", "/run/cdi/nvidia.json", check=False)
        inside = self.machine.run("ls", "/run/tranche/mounts/half").split()
        self.holds("what the main process before could have written is gone", planted is None and inside == ["attach.sock"])

    def its_user_is_missing(self):
        """A daemon that is started by hand where `systemd-sysusers` never ran, and its unit where it did."""
        units = ("tranched.socket", "tranche-attest.socket", "tranche-job.socket", "tranched.service")
        self.machine.run("systemctl", "stop", *units)
        self.machine.run("sh", "-c", "userdel tranched && rm -rf /run/cdi/tranche.* && find /var/lib/tranche /run/tranche -mindepth 1 -delete")
        self.machine.run("systemd-run", "--quiet", "--unit=bare", "-p", "Type=notify", "tranched")
        main = self.shown("bare", "MainPID")
        held = self.machine.run("grep", "-E", "^(Uid|CapPrm):", f"/proc/{main}/status").split()
        self.holds("without its user the daemon is uid 0 without capabilities",
                   (held[1], int(held[held.index("CapPrm:") + 1], 16)) == ("0", 0))
        notes = json.loads(self.machine.run("tranche", "smi", "--json"))["notes"]
        self.holds("and a note of smi says so", any("there is no user tranched" in note for note in notes))
        self.machine.run("systemctl", "stop", "bare")
        self.machine.run("sh", "-c", "systemd-sysusers && systemd-tmpfiles --create tranche.conf")
        self.machine.run("systemctl", "start", *units)
        main = until("a daemon with its user", self.daemon)
        uid = self.machine.run("grep", "^Uid:", f"/proc/{main}/status").split()[1]
        self.holds("once `systemd-sysusers` has made it, the next daemon is that user",
                   uid == self.machine.run("id", "-u", "tranched").strip())
        notes = json.loads(self.machine.run("tranche", "smi", "--json"))["notes"]
        self.holds("and the note is gone", not any("there is no user" in note for note in notes))

    def gpus_cannot_be_kept_here(self):
        """The machine's root of cgroups is not the kernel's: nothing outside would be denied, so the daemon refuses."""
        configuration = self.machine.file("/etc/tranche/tranched.toml")
        before = configuration.read_text()
        configuration.write_text(before + "\nonly_slices = true\n")
        refused = self.machine.run("systemctl", "restart", "tranched", check=False) is None
        log = self.machine.run("journalctl", "--quiet", "--unit=tranched")
        configuration.write_text(before)
        self.machine.run("systemctl", "restart", "tranched")
        self.holds("with `only_slices` the daemon does not start in a container, and the journal has why",
                   refused and "`only_slices` cannot be kept" in log and self.daemon())

    def users_come(self):
        self.machine.run("usermod", "-aG", "tranche", "alice")
        self.holds("bob, in no group, may look", self.machine.run("tranche", "slice", "list", user="bob"))
        refused = self.machine.run("sh", "-c", "tranche run -g 0.1 -- true; test $? != 0", user="bob")
        self.holds(f"but no more, and is told why: {refused.strip()!r}", "usermod -aG tranche" in refused)
        self.machine.run("systemd-run", "--quiet", "--uid=alice", "--unit=alice", "-p", "StandardOutput=null",
                         *ALICE.split())
        alice = until("alice's program", lambda: self.slices().get("alice", {}).get("processes"))
        uid = self.machine.run("ps", "-o", "user=", "-p", str(alice[0])).strip()
        self.holds("alice, in the group `tranche`, runs half a GPU", uid == "alice")

    def a_service_has_a_slice(self):
        self.machine.run(*HALF.split())
        self.machine.file("/etc/systemd/system/job.service").write_text(JOB)
        self.machine.run("install", "-D", "--mode=644", "/usr/share/doc/tranche/examples/slice.conf",
                         "/etc/systemd/system/job.service.d/slice.conf")
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "enable", "--now", "job")
        self.job_is_in_its_slice("a service is in a slice by a drop-in alone")
        self.containers_are_told_by_root("a slice that stays")

    def a_team_has_jobs(self):
        self.machine.run(*TEAM.split())
        self.machine.run(*TRAIN.split(), user="alice")
        self.training_runs("alice's job runs as alice, in a slice and a cgroup of its own")
        powers = self.machine.run("sh", "-c", "grep -h -e ^Cap -e ^NoNewPrivs /proc/$(pgrep -u alice -f memory.1Gi | head -1)/status")
        held = [line.split()[1] for line in powers.splitlines() if not line.startswith("CapBnd")]
        self.holds("without capabilities, and gains none", held == ["0" * 16] * 4 + ["1"])
        folder = self.machine.run("stat", "--format=%U %a", "/var/lib/tranche-jobs").strip()
        self.holds(f"what she attested is kept where neither she nor the daemon can write: {folder}",
                   folder == "tranche-jobs 700")
        refused = self.machine.run("sh", "-c", "tranche logs -p team train; test $? != 0", user="bob")
        self.holds(f"bob, who is no member, does not see what it prints: {refused.strip()!r}", "team" in refused)

    def jobs_are_limited(self):
        """By a cgroup that their user cannot change, or not at all: then they are refused."""
        controllers = self.machine.run("cat", "/sys/fs/cgroup/cgroup.controllers", check=False) or ""
        if not {"cpu", "memory"} <= set(controllers.split()):
            refused = self.machine.run(*LIMITED.format("looks").split(), "true", user="alice", check=False, said=True)
            return self.holds("without cgroups of version 2 a job with limits is refused, with the reason",
                              "cannot limit processors or memory" in refused)
        for name, script in (("looks", LOOKS), ("eats", EATS)):
            self.machine.run(*LIMITED.format(name).split(), "sh", "-c", script, user="alice")
        job = lambda name: json.loads(self.machine.run("tranche", "describe", "-p", "team", "--json", name))
        ended = lambda name: until(f"the end of {name}", lambda: job(name)["state"] in ("succeeded", "failed") and job(name))
        ended("looks")
        log = self.machine.run("tranche", "logs", "-p", "team", "looks")
        self.holds("a job with limits has them", log.startswith("67108864\n0\n150000 100000\n"))
        self.holds("and its user cannot change them", "cannot raise" in log and "cannot leave" in log)
        reason = ended("eats")["reason"]
        self.holds(f"one that needs more memory ends as a whole: {reason!r}", "64 MiB of memory" in reason)
        log = self.machine.run("tranche", "logs", "-p", "team", "eats")
        self.holds("none of it continues", "survived" not in log)
        self.machine.run("tranche", "delete", "-p", "team", "looks", "eats")

    def training_runs(self, claim):
        pid = until("the job's program", lambda: self.slices().get("team.train.0", {}).get("processes"))[0]
        uid = self.machine.run("ps", "-o", "user=", "-p", str(pid)).strip()
        self.holds(claim, uid == "alice" and "/tranche-job@" in self.machine.run("cat", f"/proc/{pid}/cgroup"))

    def job_is_in_its_slice(self, claim):
        seen = until("the job in its slice", lambda: self.slices()["half"]["processes"])
        self.holds(claim, seen == [int(self.shown("job", "MainPID"))])

    def daemons_come_and_go(self):
        systemctl = lambda *words: lambda: self.machine.run("systemctl", *words)
        self.survives("systemctl restart", systemctl("restart", "tranched"))
        self.survives("kill -9 of all that is the daemon's", systemctl("kill", "--signal=KILL", "tranched"))
        self.survives("an upgrade", self.upgrades)
        self.containers_are_told_by_root("after an upgrade")
        self.survives("a downgrade", lambda: self.machine.run("dpkg", "--force-downgrade", "--install", "/package.deb"))
        self.containers_are_told_by_root("after a downgrade")
        self.holds("it is the older package", "0.0.1" in self.machine.run("dpkg-query", "--show", "tranche"))
        self.survives("another upgrade", lambda: self.machine.run("dpkg", "--install", "/newer.deb"))
        daemon = self.daemon()
        self.machine.run("systemctl", "reload", "tranched")
        self.holds("a reload replaces nobody", self.daemon() == daemon and self.slices())
        configuration = self.machine.file("/etc/tranche/tranched.toml")
        before = configuration.read_text()
        configuration.write_text(before + "\nslices_per_usr = 3\n")
        failed = self.machine.run("systemctl", "reload", "tranched", check=False) is None
        log = lambda: self.machine.run("journalctl", "--quiet", "--unit=tranched", "--identifier=tranche")
        until("the journal to have what is wrong", lambda: "did you mean `slices_per_user`" in log())
        self.holds("a reload of a bad file fails, the journal has what is wrong, and the daemon goes on",
                   failed and self.daemon() == daemon)
        configuration.write_text(before)
        self.machine.run("systemctl", "reload", "tranched")
        self.machine.run("systemctl", "stop", "tranched.service")
        self.holds("a call to a daemon that is away waits for it", self.machine.run("tranche", "slice", "list"))

    def it_is_stuck(self):
        drop_in = self.machine.file("/etc/systemd/system/tranched.service.d")
        drop_in.mkdir()
        (drop_in / "impatient.conf").write_text(IMPATIENT)
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "restart", "tranched")
        self.machine.run("sleep", "3")
        self.holds("a daemon that gets on is left alone", self.shown("tranched", "NRestarts") == "0")
        self.survives("SIGSTOP to all that is the daemon's, until the watchdog ends it",
                      lambda: self.machine.run("systemctl", "kill", "--signal=STOP", "tranched"))
        helpers = self.machine.run("pgrep", "-c", "-f", "privileged-helper").strip()
        self.holds("and its helper with it", helpers == "1")
        self.holds("it was the watchdog", self.shown("tranched", "NRestarts") == "1")

    def it_reboots(self):
        self.machine.power_off()
        self.machine.boot()
        self.job_is_in_its_slice("after a reboot the service is in its slice again")
        self.training_runs("her job is begun again, as alice")
        self.holds("and her own slice is gone with her program",
                   until("the end of her slice", lambda: sorted(self.slices()) == ["half", "team.train.0"]))

    def a_kubelet_may_come(self):
        self.machine.file("/etc/tranche/deviceplugin.toml").write_text(PLUGIN)
        self.machine.run("systemctl", "start", "tranche-deviceplugin")
        sockets = lambda: self.machine.run("ls", "/var/lib/kubelet/device-plugins")
        log = lambda: self.machine.run("journalctl", "--quiet", "--unit=tranche-deviceplugin")
        until("the plugin at the kubelet's directory", lambda: sockets() or "kubelet" in log())
        self.holds("the device plugin waits for a kubelet", self.shown("tranche-deviceplugin", "NRestarts") == "0")

    def it_goes(self):
        main = self.shown("job", "MainPID")
        self.machine.run("tranche", "slice", "delete", "--force", "half")
        gone = self.machine.run("test", "-e", f"/proc/{main}", check=False) is None
        self.holds("a daemon that is no root's ends a process of root's, by its helper", gone)
        self.machine.run("systemd-run", "--quiet", "--uid=alice", "--unit=alice", "-p", "StandardOutput=null",
                         *ALICE.split())
        alice = until("alice's program", lambda: self.slices().get("alice", {}).get("processes"))[0]
        self.machine.run("tranche", "slice", "delete", "--force", "alice")
        gone = self.machine.run("test", "-e", f"/proc/{alice}", check=False) is None
        self.holds("and one of alice's", gone)
        self.machine.run("systemctl", "disable", "--now", "job")
        self.machine.run("dpkg", "--remove", "tranche")
        self.holds("removed, nothing of it runs", self.machine.run("pgrep", "-f", "tranche", check=False) is None)
        self.holds("but what belongs to slices is kept", self.machine.file("/var/lib/tranche/state.json").exists())
        self.machine.run("dpkg", "--purge", "tranche")
        for path in ("job.service", "job.service.d/slice.conf", "tranched.service.d/impatient.conf"):
            self.machine.file(f"/etc/systemd/system/{path}").unlink()
        for folder in ("job.service.d", "tranched.service.d"):
            self.machine.file(f"/etc/systemd/system/{folder}").rmdir()

    def tell(self):
        self.machine.boot()
        self.arrives()
        before = self.machine.files()
        self.installs()
        self.is_set_up()
        self.is_confined()
        self.its_user_is_missing()
        self.gpus_cannot_be_kept_here()
        self.users_come()
        self.a_service_has_a_slice()
        self.a_team_has_jobs()
        self.jobs_are_limited()
        self.daemons_come_and_go()
        self.it_is_stuck()
        self.it_reboots()
        self.a_kubelet_may_come()
        self.it_goes()
        after = self.machine.files()
        self.holds(f"purged, it leaves nothing: {sorted(after - before)}, and takes nothing: {sorted(before - after)}",
                   after == before)
        gone = self.machine.run("getent", "group", "tranche", check=False) is None
        self.holds("and no group", gone)
        gone = self.machine.run("getent", "passwd", "tranched", check=False) is None
        self.holds("and no user", gone)


def main(stage, *packages):
    with Machine(stage) as machine:
        try:
            Story(machine, packages).tell()
        except Failed as failed:
            print(f"FAILED: {failed}", file=sys.stderr)
            log = machine.run("journalctl", "--quiet", "--no-pager", "--boot", "--lines=40", check=False, said=True)
            print(log, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
