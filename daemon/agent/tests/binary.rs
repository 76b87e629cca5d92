//! The program `tranched`, on a node without a driver.

#![allow(clippy::unwrap_used)] // a failed unwrap names its line

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};

const TRANCHED: &str = env!("CARGO_BIN_EXE_tranched");

fn tranched(place: &std::path::Path) -> Command {
    let mut command = Command::new(TRANCHED);
    command.arg("--runtime-dir").arg(place.join("run")).arg("--state-dir").arg(place.join("state"));
    command.args(["--nvml-library", "/nonexistent/libnvidia-ml.so.1"]);
    command.stderr(Stdio::piped()).stdout(Stdio::piped()).stdin(Stdio::null());
    command
}

/// Starts the daemon and waits until it is ready; returns its output until then.
fn start(place: &std::path::Path) -> (Child, String) {
    wait_until_ready(tranched(place).spawn().unwrap())
}

fn wait_until_ready(mut child: Child) -> (Child, String) {
    let mut said = String::new();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    while !said.contains("ready socket=") {
        assert_ne!(log.read_line(&mut said).unwrap(), 0, "it ended: {said}");
    }
    // Later output must be drained, or the daemon would block.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    (child, said)
}

fn error(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn terminate(mut child: Child) {
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "SIGTERM does not end it");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn start_without_a_gpu_names_the_reason() {
    let place = tempfile::tempdir().unwrap();
    let (child, said) = start(place.path());
    assert!(said.contains("no NVIDIA driver") && said.contains("/nonexistent/"), "{said}");
    terminate(child);
    let (child, _) = start(place.path());
    terminate(child);
}

#[test]
fn stop_signal_works_despite_blocked_signals() {
    let place = tempfile::tempdir().unwrap();
    let blocked: SigSet = [Signal::SIGTERM].into_iter().collect();
    blocked.thread_block().unwrap();
    let (child, _) = start(place.path());
    terminate(child);
}

#[test]
fn second_daemon_is_refused_with_the_first_pid() {
    let place = tempfile::tempdir().unwrap();
    let (child, _) = start(place.path());
    let refused = error(&tranched(place.path()).output().unwrap());
    assert!(refused.contains(&format!("pid {}", child.id())), "{refused}");
    terminate(child);
}

#[test]
fn killed_daemon_does_not_block_the_next() {
    let place = tempfile::tempdir().unwrap();
    let (mut child, _) = start(place.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let (child, _) = start(place.path());
    terminate(child);
}

#[test]
fn misspelt_key_is_refused_without_side_effects() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("c.toml");
    std::fs::write(&config, "runtime_dri = '/x'").unwrap();
    let refused = error(&tranched(place.path()).arg("--config").arg(&config).output().unwrap());
    assert!(refused.contains("did you mean `runtime_dir`?"), "{refused}");
    assert!(!place.path().join("run").exists());
    std::fs::write(&config, "over_cap = 'end'\nslices_per_user = 'few'\nfault_quite_s = 1\ncdi_dir = 'x'")
        .unwrap();
    let refused =
        error(&tranched(place.path()).arg("--check").arg("--config").arg(&config).output().unwrap());
    for said in ["line 1", "line 2", "did you mean `fault_quiet_s`?", "`cdi_dir` is \"x\""] {
        assert!(refused.contains(said), "all that is wrong is said at once: {said}: {refused}");
    }
    std::fs::write(&config, "context_reserve_mib = 300").unwrap();
    let checked = tranched(place.path()).arg("--check").arg("--config").arg(&config).output().unwrap();
    assert!(checked.status.success());
    assert!(String::from_utf8_lossy(&checked.stdout).contains("context_reserve_mib = 300  # "));
    assert!(!place.path().join("run").exists(), "a check touches nothing");
}

/// The supervisor's end of the notification socket.
fn listen_for_words(place: &std::path::Path) -> (UnixDatagram, std::path::PathBuf) {
    let path = place.join("notify");
    let hears = UnixDatagram::bind(&path).unwrap();
    hears.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (hears, path)
}

fn hear(supervisor: &UnixDatagram) -> String {
    let mut words = [0; 256];
    let length = supervisor.recv(&mut words).expect("the daemon says something");
    String::from_utf8_lossy(&words[..length]).into_owned()
}

#[test]
fn supervisor_receives_ready_watchdog_and_stopping() {
    let place = tempfile::tempdir().unwrap();
    let (supervisor, path) = listen_for_words(place.path());
    let mut command = tranched(place.path());
    let child = command.env("NOTIFY_SOCKET", path).env("WATCHDOG_USEC", "600000").spawn().unwrap();
    assert!(hear(&supervisor).starts_with("READY=1\n"));
    for _ in 0..3 {
        assert_eq!(hear(&supervisor), "WATCHDOG=1");
    }
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    while !hear(&supervisor).starts_with("STOPPING=1") {}
    terminate(child);
}

#[test]
fn passed_socket_is_served_and_outlives_the_daemon() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run/tranched.sock");
    std::fs::create_dir(place.path().join("run")).unwrap();
    let socket = UnixListener::bind(&path).unwrap();
    let inode = std::fs::metadata(&path).unwrap().ino();
    for _ in 0..2 {
        let daemon = tranched(place.path());
        let mut command = Command::new("sh");
        command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3<&0 0</dev/null"]);
        command.arg(daemon.get_program()).args(daemon.get_args());
        command.stdin(OwnedFd::from(socket.try_clone().unwrap())).stderr(Stdio::piped());
        // A client that connects before the daemon runs waits in the backlog.
        let mut early = UnixStream::connect(&path).unwrap();
        let (child, _) = wait_until_ready(command.spawn().unwrap());
        early.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        early.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        assert_ne!(early.read(&mut [0; 64]).unwrap(), 0, "it answers");
        drop(early);
        terminate(child);
        assert_eq!(
            std::fs::metadata(&path).unwrap().ino(),
            inode,
            "the socket is the one that was handed over"
        );
    }
}

#[test]
fn passed_descriptor_must_be_a_listening_socket() {
    let place = tempfile::tempdir().unwrap();
    let daemon = tranched(place.path());
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\" 3</dev/null"]);
    let refused = error(&command.arg(daemon.get_program()).args(daemon.get_args()).output().unwrap());
    assert!(refused.contains("the socket that was handed to us"), "{refused}");
}

/// A status line of a process's threads, which must be the same for all.
fn of_all_threads(pid: u32, line: &str) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let value = |task: std::io::Result<std::fs::DirEntry>| {
        // Threads may end while they are listed, and have no status then.
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(":\t"));
        Some(found.unwrap_or_else(|| panic!("no {line} in {status}")).to_owned())
    };
    let values: BTreeSet<String> = tasks.filter_map(value).collect();
    assert_eq!(values.len(), 1, "the threads differ in {line}: {values:?}");
    values.into_iter().next().unwrap()
}

fn mask(pid: u32, line: &str) -> u64 {
    u64::from_str_radix(&of_all_threads(pid, line), 16).unwrap()
}

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("SKIP: only root has privileges to separate");
    }
    root
}

/// The only child of a running daemon.
fn helper_of(daemon: &Child) -> u32 {
    let pid = daemon.id();
    let children = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let of_task = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("children")).ok()
        };
        tasks.filter_map(of_task).collect::<String>()
    };
    let is_helper = |child: &&str| {
        std::fs::read(format!("/proc/{child}/cmdline"))
            .is_ok_and(|words| words.windows(17).any(|part| part == b"privileged-helper"))
    };
    let children = children();
    let helpers: Vec<_> = children.split_whitespace().filter(is_helper).collect();
    assert_eq!(helpers.len(), 1, "children: {children}");
    helpers[0].parse().unwrap()
}

fn wait_for_end(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::path::Path::new(&format!("/proc/{pid}")).exists() {
        assert!(Instant::now() < deadline, "process {pid} does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn roots_main_process_holds_no_capability() {
    if !is_root() {
        return;
    }
    let own = caps::read(None, caps::CapSet::Permitted).unwrap();
    let place = tempfile::tempdir().unwrap();
    let (child, _) = start(place.path());
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(mask(child.id(), set), 0, "{set}");
    }
    assert_eq!(of_all_threads(child.id(), "NoNewPrivs"), "1");
    if own.contains(&caps::Capability::CAP_SETPCAP) {
        assert_eq!(mask(child.id(), "CapBnd"), 0);
    } else {
        println!("SKIP: without CAP_SETPCAP the bounds are not the daemon's to set");
    }
    terminate(child);
}

#[test]
fn kept_capabilities_are_documented_with_their_purposes() {
    let table = include_str!("../../../docs/security.md").replace('`', "");
    for (power, purpose) in tranche_privileged::KEPT {
        let row = format!("| {power} | {purpose} |");
        assert!(table.contains(&row), "docs/security.md lacks the row {row}");
    }
}

#[test]
fn helper_holds_the_documented_capabilities_only() {
    if !is_root() {
        return;
    }
    let own = caps::read(None, caps::CapSet::Permitted).unwrap();
    let kept = tranche_privileged::KEPT.iter().map(|(power, _)| power);
    let documented = kept.filter(|power| own.contains(power)).fold(0, |all, power| all | power.bitmask());
    let place = tempfile::tempdir().unwrap();
    let (child, _) = start(place.path());
    let helper = helper_of(&child);
    assert_eq!((mask(helper, "CapEff"), mask(helper, "CapPrm")), (documented, documented));
    assert_eq!((mask(helper, "CapInh"), mask(helper, "CapAmb")), (0, 0));
    assert_eq!(of_all_threads(helper, "NoNewPrivs"), "1");
    let descriptors = std::fs::read_dir(format!("/proc/{helper}/fd")).unwrap();
    let open: Vec<_> = descriptors.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap()).collect();
    assert!(open.len() <= 4, "its socket twice, and the log: {open:?}");
    terminate(child);
    wait_for_end(helper);
}

#[test]
fn daemon_and_helper_end_together() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let signal =
        |pid: u32, signal| kill(nix::unistd::Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
    let (mut child, _) = start(place.path());
    let helper = helper_of(&child);
    signal(helper, Signal::SIGTERM);
    signal(helper, Signal::SIGINT);
    std::thread::sleep(Duration::from_millis(50));
    assert!(child.try_wait().unwrap().is_none(), "signals that both get at a terminal end neither");
    signal(helper, Signal::SIGKILL);
    assert_eq!(child.wait().unwrap().code(), Some(1), "it fails, so that it is started again");
    let (mut child, _) = start(place.path());
    let helper = helper_of(&child);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for_end(helper);
}

#[test]
fn stopped_helper_is_ended_by_the_next_daemon() {
    if !is_root() {
        return;
    }
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [(mut child, _), (other, _)] = places.each_ref().map(|place| start(place.path()));
    let (helper, others) = (helper_of(&child), helper_of(&other));
    kill(nix::unistd::Pid::from_raw(helper.try_into().unwrap()), Signal::SIGSTOP).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(std::path::Path::new(&format!("/proc/{helper}")).exists());
    let (child, _) = start(places[0].path());
    wait_for_end(helper);
    assert_eq!(helper_of(&other), others, "another daemon's is left alone");
    terminate(child);
    terminate(other);
}

/// A directory that any user can enter.
fn open_place() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    place
}

#[test]
fn roots_main_process_becomes_the_configured_user() {
    if !is_root() {
        return;
    }
    let place = open_place();
    let config = place.path().join("c.toml");
    std::fs::write(&config, "user = 'nobody'").unwrap();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let ids = |id: u32| [id.to_string(), id.to_string(), id.to_string(), id.to_string()].join("\t");
    let secret = place.path().join("secret");
    std::fs::write(&secret, "x").unwrap();
    // As an earlier release left it, and as this one does.
    for name in ["state", "run"] {
        std::fs::create_dir(place.path().join(name)).unwrap();
        std::fs::write(place.path().join(name).join("left"), "x").unwrap();
    }
    for _ in 0..2 {
        let (child, said) =
            wait_until_ready(tranched(place.path()).arg("--config").arg(&config).spawn().unwrap());
        assert_eq!(of_all_threads(child.id(), "Uid"), ids(nobody.uid.as_raw()), "{said}");
        assert_eq!(of_all_threads(child.id(), "Gid"), ids(nobody.gid.as_raw()));
        assert_eq!(of_all_threads(child.id(), "Groups").trim(), "");
        assert_eq!(mask(child.id(), "CapEff") | mask(child.id(), "CapPrm"), 0);
        assert_eq!(of_all_threads(helper_of(&child), "Uid"), ids(0));
        let owner = |path: &str| std::fs::metadata(place.path().join(path)).unwrap().uid();
        let theirs = ["run/left", "run/slices", "run/metrics.sock", "state/left", "state/state.json"];
        for path in theirs {
            assert_eq!(owner(path), nobody.uid.as_raw(), "{path}");
        }
        for path in ["run", "run/lock", "run/mounts", "run/tranched.sock", "state", "state/lock", "secret"] {
            assert_eq!(owner(path), 0, "{path}");
        }
        UnixStream::connect(place.path().join("run/tranched.sock")).unwrap();
        terminate(child);
    }
    std::fs::write(&config, "user = 'no-such-user'").unwrap();
    let refused = error(&tranched(place.path()).arg("--config").arg(&config).output().unwrap());
    assert!(refused.contains("there is no user no-such-user"), "{refused}");
}
