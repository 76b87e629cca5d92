//! With `only_slices`, the kernel lets processes of slices open the GPUs, and no others.
//!
//! A device with a number that no driver has stands for a GPU: the kernel decides before it searches for a driver.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use e2e::{Node, Process, eventually, hierarchy, holds_for, leaf_of, skip};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use tranche_domain::units::Bytes;

/// The kernel's answer to a process that opens the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Denied,
    /// The rule permits it, and there is no driver.
    Open,
}
use Answer::{Denied, Open};

/// A machine with a device, which its daemon opens to slices only.
struct Kept {
    node: Node,
    device: PathBuf,
}

/// A major number that no driver can have and no other test here has.
fn major() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let test = NEXT.fetch_add(1, Ordering::Relaxed);
    (512 + (std::process::id() * 8 + test) % 3584).to_string()
}

impl Kept {
    /// A machine with this value of the key; `None`, with a skip, if that is not permitted here.
    fn configured(only_slices: &str) -> Option<Self> {
        if !geteuid().is_root() {
            skip("only root makes devices, and closes them to others");
            return None;
        }
        if hierarchy().is_none() {
            skip("there is no cgroup hierarchy of version 2 here, or not its root");
            return None;
        }
        let mut node = Node::without_daemon("h200x1");
        let (device, major) = (node.dir().join("gpu"), major());
        node.run(node.command("mknod").arg(&device).args(["-m", "666", "c", &major, "0"])).success();
        node.set_daemon(node.stage().daemon(), vec![("SIMGPU_MAJOR", major.into())]);
        node.configure(&format!("only_slices = {only_slices}"));
        let mut kept = Self { node, device };
        assert_eq!(kept.outside(), Open, "no rule yet");
        if let Err(complaint) = kept.node.try_start_daemon() {
            let log = kept.node.daemon_log();
            assert!(
                log.contains("`only_slices` cannot be kept") && kept.outside() == Open,
                "{complaint}\n{log}"
            );
            skip("the kernel takes no device programs for cgroups here");
            return None;
        }
        Some(kept)
    }

    fn open(&self) -> Vec<String> {
        vec!["sh".into(), "-c".into(), format!("LC_ALL=C cat {}", self.device.display())]
    }

    #[track_caller]
    fn answer(&self, command: &mut Command) -> Answer {
        let outcome = self.node.run(command);
        parsed(&outcome.stderr).unwrap_or_else(|| panic!("{outcome}"))
    }

    /// Answer to a process outside all slices.
    #[track_caller]
    fn outside(&self) -> Answer {
        let open = self.open();
        self.answer(self.node.command(&open[0]).args(&open[1..]))
    }

    /// Answer to a program in a slice of its own.
    #[track_caller]
    fn inside(&self) -> Answer {
        self.answer(&mut self.node.run_in_slice(&["-g", "0.1"], &self.open()))
    }

    /// Starts a shell in a slice that opens the device at each line that it reads, and prints the answer.
    fn shell(&self, slice: &str) -> Process {
        self.shell_in(slice, hierarchy().expect("it is there"))
    }

    /// As [`Kept::shell`], started from a cgroup.
    fn shell_in(&self, slice: &str, cgroup: &Path) -> Process {
        let script = format!("while read line; do LC_ALL=C cat {} 2>&1; done", self.device.display());
        let options: &[&str] = &["--name", slice, "-g", "0.1"];
        let run = self.node.run_in_slice(options, &["sh", "-c", &script]);
        let mut enter = self.node.command("sh");
        let first = "echo $$ >\"$0\"/cgroup.procs && exec \"$@\"";
        enter.args(["-c", first]).arg(cgroup).arg(run.get_program()).args(run.get_args());
        let mut shell = Process::start(&mut enter);
        assert_eq!(tries(&mut shell), Open);
        shell
    }
}

fn parsed(text: &str) -> Option<Answer> {
    match text {
        denied if denied.contains("Operation not permitted") => Some(Denied),
        open if open.contains("No such device") => Some(Open),
        _ => None,
    }
}

#[track_caller]
fn tries(shell: &mut Process) -> Answer {
    assert!(shell.say("open"));
    let line = shell.line().expect("the shell runs");
    parsed(&line).unwrap_or_else(|| panic!("{line}"))
}

fn move_to(cgroup: &Path, pid: u32) {
    fs::write(cgroup.join("cgroup.procs"), pid.to_string()).expect("root moves processes");
}

#[test]
fn device_opens_in_slices_alone() {
    let Some(kept) = Kept::configured("true") else { return };
    assert_eq!((kept.outside(), kept.inside(), kept.outside()), (Denied, Open, Denied));
    let shell = kept.shell("a");
    let leaf =
        hierarchy().zip(leaf_of(shell.pid())).map(|(root, leaf)| root.join(leaf)).expect("it is in one");
    assert!(leaf.is_dir());
    shell.end();
    eventually("the cgroup goes with its slice", || {
        if leaf.exists() { Err(leaf.display().to_string()) } else { Ok(()) }
    });
}

#[test]
fn child_without_library_stays_within_and_is_seen() {
    let Some(kept) = Kept::configured("true") else { return };
    let go = kept.node.dir().join("go");
    // Twice forked, in a session of its own and without the library.
    let orphan = format!(
        "echo $$; while [ ! -e {} ]; do sleep 0.05; done; LC_ALL=C cat {} 2>&1; sleep 1000",
        go.display(),
        kept.device.display()
    );
    let script = format!("(env -i setsid sh -c '{orphan}' &) & wait; sleep 1000");
    let options: &[&str] = &["--name", "a", "-g", "0.5"];
    let mut process = Process::start(&mut kept.node.run_in_slice(options, &["sh", "-c", &script]));
    let pid: u32 = process.line().and_then(|line| line.parse().ok()).expect("it prints its pid");
    fs::write(go, "").expect("the directory can be written");
    assert_eq!(parsed(&process.line().expect("it tries")), Some(Open));
    kept.node.own_driver_takes(0, pid, Bytes::mib(1024));
    eventually("it is seen with its slice", || {
        let events = kept.node.events();
        let is_seen = |event: &e2e::Event| {
            event.kind == "unshimmed-process" && event.slice.as_deref() == Some("a") && event.pid == Some(pid)
        };
        if events.iter().any(is_seen) { Ok(()) } else { Err(format!("{events:?}")) }
    });
}

#[test]
fn process_that_leaves_or_outlives_its_slice_is_denied() {
    let Some(kept) = Kept::configured("true") else { return };
    // The program ends with its runner; its orphan continues, in no slice.
    let go = kept.node.dir().join("go");
    let orphan = format!(
        "echo $$; while [ ! -e {} ]; do sleep 0.05; done; LC_ALL=C cat {} 2>&1",
        go.display(),
        kept.device.display()
    );
    let script = format!("env -i setsid sh -c '{orphan}' & wait");
    let options: &[&str] = &["--name", "a", "-g", "0.1"];
    let mut process = Process::start(&mut kept.node.run_in_slice(options, &["sh", "-c", &script]));
    assert!(process.line().is_some());
    process.signal(Signal::SIGKILL);
    eventually("the slice has ended", || match kept.node.smi().find("a") {
        None => Ok(()),
        Some(slice) => Err(format!("{slice:?}")),
    });
    fs::write(go, "").expect("the directory can be written");
    assert_eq!(parsed(&process.line().expect("it tries")), Some(Denied));

    let mut shell = kept.shell("b");
    let program = fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.pid())).expect("it runs");
    let program: u32 = program.trim().parse().expect("it has one child");
    move_to(hierarchy().expect("it is there"), program);
    assert_eq!(tries(&mut shell), Denied);
}

/// Builds an NVML that opens the device when it is loaded; returns its path and that of its record.
///
/// The record contains the kernel's answers; otherwise the library is the simulated one.
#[track_caller]
fn curious_nvml(kept: &Kept) -> (PathBuf, PathBuf) {
    let (library, answers) = (kept.node.dir().join("libcurious.so"), kept.node.dir().join("answers"));
    let source = kept.node.dir().join("curious.c");
    let code = "#include <errno.h>\n#include <fcntl.h>\n#include <stdio.h>\n#include <string.h>\n\
        __attribute__((constructor)) static void look(void) {\n\
            FILE *answers = fopen(ANSWERS, \"a\");\n\
            if (answers && open(DEVICE, O_RDWR) < 0) fprintf(answers, \"%s\\n\", strerror(errno));\n\
            if (answers) fclose(answers);\n\
        }\n";
    fs::write(&source, code).expect("the directory can be written");
    let mut cc = kept.node.command("cc");
    cc.args(["-shared", "-fPIC", "-Wl,--no-as-needed"])
        .arg(format!("-DANSWERS=\"{}\"", answers.display()))
        .arg(format!("-DDEVICE=\"{}\"", kept.device.display()))
        .arg("-o")
        .args([&library, &source, &kept.node.stage().libraries().join("libnvidia-ml.so.1")]);
    kept.node.run(&mut cc).success();
    (library, answers)
}

#[test]
fn next_daemon_opens_the_driver_under_the_rule_of_the_one_before() {
    let Some(mut kept) = Kept::configured("true") else { return };
    let (library, answers) = curious_nvml(&kept);
    // As systemd makes a unit's cgroup anew at each start, the next daemon begins in one outside the rule.
    for only_slices in ["true", "false"] {
        kept.node.kill_daemon();
        assert_eq!(kept.outside(), Denied);
        kept.node.configure(&format!("only_slices = {only_slices}\nnvml_library = {library:?}"));
        kept.node.start_daemon();
        let answers = fs::read_to_string(&answers).expect("the library was loaded");
        let answered: Vec<_> = answers.lines().map(parsed).collect();
        assert!(!answered.is_empty() && answered.iter().all(|answer| *answer == Some(Open)), "{answers}");
    }
    assert_eq!(kept.outside(), Open);
}

#[test]
fn rule_outlives_a_killed_daemon_and_the_next_takes_it_over() {
    let Some(mut kept) = Kept::configured("true") else { return };
    let mut shell = kept.shell("a");
    kept.node.kill_daemon();
    assert_eq!((kept.outside(), tries(&mut shell)), (Denied, Open));
    kept.node.start_daemon();
    assert_eq!((kept.outside(), tries(&mut shell), kept.inside()), (Denied, Open, Open));
    shell.end();
    assert_eq!(kept.outside(), Denied);
    kept.node.kill_daemon();
    kept.node.configure("only_slices = false");
    kept.node.start_daemon();
    assert_eq!((kept.outside(), kept.inside()), (Open, Open), "the rule went with the key");
}

#[test]
fn operator_opens_gpus_again_without_a_daemon() {
    let Some(mut kept) = Kept::configured("true") else { return };
    kept.node.stop_daemon();
    assert_eq!(kept.outside(), Denied);
    kept.node.run(&mut kept.node.open_gpus()).success();
    assert_eq!(kept.outside(), Open);
}

#[test]
fn processes_attached_before_the_key_was_set_are_admitted() {
    let Some(mut kept) = Kept::configured("false") else { return };
    let _tenant = kept.node.tenant(&["-g", "0.1", "--name", "a"]).ready();
    kept.node.kill_daemon();
    kept.node.configure("only_slices = true");
    kept.node.start_daemon();
    assert_eq!(kept.outside(), Denied);
    let pids = kept.node.slice("a").pids();
    assert_eq!(pids.len(), 1);
    let (daemon, tenant) = (leaf_of(kept.node.daemon_pid()), leaf_of(pids[0]));
    assert!(tenant.is_some() && tenant != daemon, "{tenant:?}, {daemon:?}");
}

#[test]
fn job_opens_gpus() {
    let Some(kept) = Kept::configured("true") else { return };
    kept.node.tranche(&["project", "create", "a", "--quota", "1"]).success();
    let open = format!("LC_ALL=C cat {} 2>&1; true", kept.device.display());
    kept.node.tranche(&["submit", "j", "-g", "0.5", "--", "sh", "-c", &open]).success();
    eventually("it was permitted", || {
        let log = kept.node.tranche(&["logs", "j"]);
        if parsed(&log.stdout) == Some(Open) { Ok(()) } else { Err(log.to_string()) }
    });
    assert_eq!(kept.outside(), Denied);
}

#[test]
fn user_moves_no_process_into_a_leaf() {
    let Some(kept) = Kept::configured("true") else { return };
    fs::set_permissions(kept.node.dir(), Permissions::from_mode(0o755))
        .expect("its owner may change its mode");
    // A part of the hierarchy that belongs to a user, as systemd delegates it.
    let theirs = hierarchy().expect("it is there").join(format!("e2e-theirs-{}", std::process::id()));
    fs::create_dir(&theirs).expect("root makes cgroups");
    for path in [theirs.clone(), theirs.join("cgroup.procs")] {
        chown(path, Some(65534), Some(65534)).expect("root gives it away");
    }
    let mut shell = kept.shell_in("a", &theirs);
    let leaf = leaf_of(shell.pid()).expect("it is in one");
    let leaf = hierarchy().map(|root| root.join(leaf)).expect("it is there");
    assert!(!leaf.starts_with(&theirs), "{}", leaf.display());
    let script = format!("echo $$ >{}/cgroup.procs; {}", leaf.display(), kept.open()[2]);
    let mut intruder = kept.node.command("setpriv");
    intruder.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script]);
    let outcome = kept.node.run(&mut intruder);
    assert!(outcome.stderr.contains("Permission denied"), "{outcome}");
    assert_eq!((parsed(&outcome.stderr), tries(&mut shell)), (Some(Denied), Open), "{outcome}");
    shell.end();
    fs::remove_dir(theirs).expect("no process is in it");
}

#[test]
fn listed_cgroup_opens_gpus_also_when_it_was_made_anew() {
    let Some(hierarchy) = hierarchy().filter(|_| geteuid().is_root()) else {
        return skip("only root makes cgroups, in a hierarchy of version 2");
    };
    let name = format!("e2e-only-slices-{}", std::process::id());
    let cgroup = hierarchy.join(&name);
    let Some(kept) = Kept::configured(&format!("[\"/{name}\"]")) else { return };
    let open = format!("echo $$ >{}/cgroup.procs; {}", cgroup.display(), kept.open()[2]);
    let there = || kept.answer(kept.node.command("sh").args(["-c", &open]));
    for _ in 0..2 {
        fs::create_dir(&cgroup).expect("root makes cgroups");
        eventually("it may open them", || if there() == Open { Ok(()) } else { Err("denied".into()) });
        assert_eq!(kept.outside(), Denied);
        eventually("it can be removed", || fs::remove_dir(&cgroup).map_err(|error| error.to_string()));
    }
}

#[test]
fn empty_cgroups_of_a_killed_daemon_are_removed_at_the_next_start() {
    let Some(mut kept) = Kept::configured("true") else { return };
    let own = leaf_of(kept.node.daemon_pid()).expect("the daemon is in a leaf");
    let own = hierarchy().map(|root| root.join(own)).expect("it is there");
    let (above, name) = (own.parent().unwrap(), own.file_name().unwrap().to_string_lossy().into_owned());
    let (left, other) = (above.join(name.replace(".0", ".4242")), above.join("tranche_0000000.4242"));
    let mut shell = kept.shell("a");
    let used = hierarchy().unwrap().join(leaf_of(shell.pid()).expect("it is in one"));
    // As a daemon leaves them that is killed before the slice's processes have ended.
    for cgroup in [&left, &other] {
        fs::create_dir(cgroup).expect("root makes cgroups");
    }
    kept.node.kill_daemon();
    kept.node.start_daemon();
    assert!(!left.exists() && other.exists(), "another daemon's stays");
    fs::remove_dir(other).expect("no process is in it");
    assert!(used.exists() && tries(&mut shell) == Open);
    shell.end();
    eventually("the slice's goes with the slice", || {
        if used.exists() { Err("it is there".into()) } else { Ok(()) }
    });
}

#[test]
fn daemon_that_cannot_keep_the_rule_does_not_start() {
    let Some(mut kept) = Kept::configured("true") else { return };
    kept.node.stop_daemon();
    let script = kept.node.dir().join("without-powers");
    let daemon = kept.node.stage().daemon();
    let text = format!("#!/bin/sh\nexec setpriv --bounding-set=-sys_admin {} \"$@\"\n", daemon.display());
    fs::write(&script, text).expect("the directory can be written");
    kept.node.run(kept.node.command("chmod").arg("755").arg(&script)).success();
    kept.node.set_daemon(script, Vec::new());
    kept.node.try_start_daemon().expect_err("it lacks a capability");
    let log = kept.node.daemon_log();
    assert!(log.contains("`only_slices` cannot be kept") && log.contains("CAP_SYS_ADMIN"), "{log}");
    holds_for("the earlier rule remains", Duration::from_millis(100), || match kept.outside() {
        Denied => Ok(()),
        Open => Err("open".into()),
    });
}
