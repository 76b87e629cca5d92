#![allow(clippy::unwrap_used)] // a failed unwrap names its line

mod containers;

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::geteuid;

use crate::protocol::{REPLY, Reply};
use crate::serve::serve;
use crate::*;

/// A helper in a thread, with its runtime directory.
struct Scene {
    helper: Option<Helper>,
    serving: Option<JoinHandle<io::Result<()>>>,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(description: Option<Description>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bounds = Bounds {
            user: geteuid().as_raw(),
            runtime: folder.path().to_owned(),
            job_runner: folder.path().join("job-runner"),
            simulated_node: Some(folder.path().join("gpus")),
            simulated_major: None,
            library_path: None,
            documents: Some(folder.path().join("cdi")),
            only_slices: None,
        };
        let (ours, theirs) = pair();
        // Capabilities belong to threads; this one gets those of a helper.
        let serving = spawn(move || {
            powers::drop_unneeded().unwrap();
            serve(&theirs, &bounds, description)
        });
        Self { helper: Some(Helper::over(ours, 0)), serving: Some(serving), folder }
    }

    fn helper(&self) -> &Helper {
        self.helper.as_ref().unwrap()
    }

    fn file(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, "words").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    #[track_caller]
    fn is_killed(&self, mut child: Child) {
        let pidfd = pidfd_open(child.id()).unwrap();
        // A program that has just started may not show its evidence yet.
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Err(error) = self.helper().signal(pidfd.as_fd(), Signal::SIGKILL) {
            if Instant::now() > deadline {
                child.kill().unwrap();
                panic!("{error}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop(self.helper.take());
        self.serving.take().unwrap().join().unwrap().unwrap();
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
}

/// A process of another user, where the test may start one.
fn others_sleeper() -> Command {
    let mut command = sleeper();
    if geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    command
}

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("60").env_remove("TRANCHE_SLICE_SOCKET");
    command
}

fn refusal(result: Result<impl Sized, HelperError>) -> Refusal {
    match result {
        Err(HelperError::Refused(refusal)) => refusal,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was done"),
    }
}

fn reopened(file: &impl AsRawFd, write: bool) -> io::Result<File> {
    File::options().read(true).write(write).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[test]
fn region_cannot_be_reopened_for_writing() {
    let scene = Scene::new();
    let region = File::options().read(true).write(true).open(scene.file("control", 0o600)).unwrap();
    let tree = match scene.helper().read_only_mount(region.as_fd()) {
        Err(HelperError::Failed(error)) if error.raw_os_error() == Some(libc::EPERM) => {
            println!("SKIP: detached mounts need CAP_SYS_ADMIN");
            assert!(std::env::var_os("TRANCHE_REQUIRE").is_none() || !geteuid().is_root());
            return;
        }
        tree => tree.unwrap(),
    };
    assert_eq!(reopened(&tree, true).unwrap_err().raw_os_error(), Some(libc::EROFS));
    let mut file = reopened(&tree, false).unwrap();
    drop(tree);
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "words");
    assert_eq!(reopened(&file, true).unwrap_err().raw_os_error(), Some(libc::EROFS));
}

#[test]
fn other_files_get_no_mount() {
    let scene = Scene::new();
    let elsewhere = File::open("/proc/version").unwrap();
    let open = File::open(scene.file("open", 0o644)).unwrap();
    let folder = File::open(scene.folder.path()).unwrap();
    let socket = pair().0;
    for file in [elsewhere.as_fd(), open.as_fd(), folder.as_fd(), socket.as_fd()] {
        assert_eq!(refusal(scene.helper().read_only_mount(file)), Refusal::NotTheDaemonsFile);
    }
    if geteuid().is_root() {
        let theirs = scene.file("theirs", 0o600);
        std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
        let theirs = File::open(theirs).unwrap();
        assert_eq!(refusal(scene.helper().read_only_mount(theirs.as_fd())), Refusal::NotTheDaemonsFile);
    }
}

#[test]
fn process_of_no_slice_is_not_signalled() {
    let scene = Scene::new();
    let mut child = sleeper().spawn().unwrap();
    let pidfd = pidfd_open(child.id()).unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        assert_eq!(refusal(scene.helper().signal(pidfd.as_fd(), signal)), Refusal::NotOfASlice);
    }
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(refusal(scene.helper().signal(pidfd.as_fd(), Signal::SIGKILL)), Refusal::NotAProcess);
}

#[test]
fn init_and_invalid_pidfds_are_not_signalled() {
    let scene = Scene::new();
    let first = pidfd_open(1).unwrap();
    assert_eq!(refusal(scene.helper().signal(first.as_fd(), Signal::SIGTERM)), Refusal::FirstProcess);
    let folder = File::open("/proc/self").unwrap();
    let null = File::open("/dev/null").unwrap();
    for other in [folder, null] {
        assert_eq!(refusal(scene.helper().signal(other.as_fd(), Signal::SIGTERM)), Refusal::NotAProcess);
    }
    let me = pidfd_open(std::process::id()).unwrap();
    assert_eq!(refusal(scene.helper().signal(me.as_fd(), Signal::SIGSTOP)), Refusal::Malformed);
}

#[test]
fn process_started_for_a_slice_is_signalled() {
    let scene = Scene::new();
    for mut sleeper in [sleeper(), others_sleeper()] {
        scene.is_killed(sleeper.env("TRANCHE_SLICE_SOCKET", "/run/x/attach.sock").spawn().unwrap());
    }
}

#[test]
fn process_that_maps_a_region_is_signalled() {
    if !geteuid().is_root() {
        println!("SKIP: what another process maps is root's to see");
        return;
    }
    let scene = Scene::new();
    let library = fs::read_to_string("/proc/self/maps").unwrap();
    let library = library.split_whitespace().find(|word| word.contains("libc.so")).unwrap().to_owned();
    let region = scene.folder.path().join("usage");
    fs::copy(library, &region).unwrap();
    fs::set_permissions(&region, Permissions::from_mode(0o600)).unwrap();
    scene.is_killed(sleeper().env("LD_PRELOAD", region).spawn().unwrap());
}

#[test]
fn mapped_memory_of_the_daemon_is_found() {
    if !geteuid().is_root() {
        println!("SKIP: what another process maps is root's to open");
        return;
    }
    let scene = Scene::new();
    let library = fs::read_to_string("/proc/self/maps").unwrap();
    let library = library.split_whitespace().find(|word| word.contains("libc.so")).unwrap().to_owned();
    // A memfd with a program's content is mapped as soon as the program runs.
    let make = |mode: u32, content: &[u8]| {
        let memory = memfd_create(c"region", MFdFlags::empty()).unwrap();
        let mut memory = File::from(memory);
        memory.write_all(content).unwrap();
        memory.set_permissions(Permissions::from_mode(mode)).unwrap();
        memory
    };
    let content = fs::read(library).unwrap();
    let (region, open) = (make(0o600, &content), make(0o644, &content));
    let path = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut child =
        sleeper().env("LD_PRELOAD", format!("{}:{}", path(&region), path(&open))).spawn().unwrap();
    let pidfd = pidfd_open(child.id()).unwrap();
    let inode = region.metadata().unwrap().ino();
    let deadline = Instant::now() + Duration::from_secs(10);
    let named = loop {
        match scene.helper().memory(pidfd.as_fd(), inode) {
            Err(HelperError::Failed(error)) if error.kind() == io::ErrorKind::NotFound => {
                assert!(Instant::now() < deadline, "the program does not map it");
                std::thread::sleep(Duration::from_millis(5));
            }
            named => break named.unwrap(),
        }
    };
    assert!(reopened(&named, true).unwrap().metadata().unwrap().ino() == inode);
    assert!(File::from(named).read(&mut [0]).is_err(), "it names memory and opens nothing");
    let libc = fs::metadata("/proc/self/exe").unwrap().ino();
    for other in [open.metadata().unwrap().ino(), libc, 0, u64::MAX] {
        let refused = scene.helper().memory(pidfd.as_fd(), other);
        assert!(
            matches!(refused, Err(HelperError::Failed(error)) if error.kind() == io::ErrorKind::NotFound)
        );
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(scene.helper().memory(pidfd.as_fd(), inode).is_err());
}

#[test]
fn process_that_has_a_gpu_open_is_signalled() {
    let scene = Scene::new();
    let node = scene.file("gpus", 0o644);
    let shell = format!("exec 9<{}; exec sleep 60", node.display());
    scene.is_killed(Command::new("sh").args(["-c", &shell]).spawn().unwrap());
}

#[test]
fn job_runner_is_signalled_also_when_replaced() {
    let scene = Scene::new();
    let runner = scene.folder.path().join("job-runner");
    let which = |name: &str| {
        ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(name)).into_iter().find(|path| path.exists())
    };
    fs::copy(which("sleep").unwrap(), &runner).unwrap();
    let start = || Command::new(&runner).arg("60").spawn().unwrap();
    scene.is_killed(start());
    let old = start();
    let newer = scene.folder.path().join("newer");
    fs::copy(&runner, &newer).unwrap();
    fs::rename(newer, &runner).unwrap();
    scene.is_killed(old);
}

#[test]
fn process_file_is_passed_as_descriptor() {
    let scene = Scene::new();
    let pid = std::process::id();
    for file in [ProcessFile::Stat, ProcessFile::Status, ProcessFile::Cgroup, ProcessFile::Cmdline] {
        let mut text = Vec::new();
        scene.helper().process_file(pid, file).unwrap().read_to_end(&mut text).unwrap();
        assert!(!text.is_empty(), "{file:?}");
    }
    let gone = scene.helper().process_file(u32::MAX, ProcessFile::Stat);
    assert!(matches!(gone, Err(HelperError::Failed(error)) if error.kind() == io::ErrorKind::NotFound));
}

#[test]
fn invalid_packet_is_refused_and_next_served() {
    let scene = Scene::new();
    let socket = &scene.helper().socket;
    let descriptor: OwnedFd = File::open("/dev/null").unwrap().into();
    let stat = protocol::Request::ProcessFile(std::process::id(), ProcessFile::Stat).encode(5).unwrap();
    let mount = protocol::Request::ReadOnlyMount.encode(5).unwrap();
    let cases: [(&[u8], _); 5] =
        [(b"x", None), (&[0; 4096], None), (&[0xff; 16], None), (&mount, None), (&stat, Some(&descriptor))];
    for (packet, passed) in cases {
        sys::send(socket, packet, passed).unwrap();
        let mut buffer = [0; REPLY];
        let (length, descriptors) = sys::receive(socket.as_fd(), &mut buffer).unwrap().unwrap();
        let (_, reply) = Reply::decode(&buffer[..length]).unwrap();
        assert_eq!((reply, descriptors.len()), (Reply::Refused(Refusal::Malformed), 0));
    }
    assert!(scene.helper().process_file(std::process::id(), ProcessFile::Stat).is_ok());
}

#[test]
fn unconfigured_device_rule_is_refused() {
    let scene = Scene::new();
    let me = pidfd_open(std::process::id()).unwrap();
    let before = fs::read_to_string("/proc/self/cgroup").unwrap();
    let helper = scene.helper();
    for refused in [
        helper.prepare_device_rule(),
        helper.enforce_device_rule(),
        helper.admit(me.as_fd(), 7),
        helper.dismiss_slice(7),
    ] {
        assert_eq!(refusal(refused), Refusal::NoDeviceRule);
    }
    assert_eq!(fs::read_to_string("/proc/self/cgroup").unwrap(), before);
}

#[test]
fn ended_helper_gives_an_error_at_once() {
    let (ours, theirs) = pair();
    let helper = Helper::over(ours, 0);
    drop(theirs);
    let gone = helper.process_file(1, ProcessFile::Stat);
    assert!(matches!(gone, Err(HelperError::Gone(_))), "{gone:?}");
}
