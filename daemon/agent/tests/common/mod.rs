//! A daemon with a scripted driver on a runtime of its own, and tenants that are real processes.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use tokio::sync::oneshot;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tranche_agent::{Access, Config, Contexts, DaemonPaths, DaemonScope, Locks, Settings, serve};
use tranche_domain::id::HostPid;
use tranche_domain::units::Bytes;
use tranche_inventory::scripted::ScriptedDriver;
use tranche_rpc::v1::{self, node_client::NodeClient};
use tranche_shm::control::{self, Control, DEPARTURE_PATIENCE_NS};
use tranche_shm::credit::Units;
use tranche_shm::message::{DaemonReply, FRAME_BYTES, ProcessRequest, ShareKey};
use tranche_shm::usage::{self, Counter, Usage};
use tranche_shm::{DeviceSlot, Slot};

/// Longest wait for things that should happen at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Time for which a GPU has to be healthy until its faults are over, in these tests.
pub(crate) const FAULT_QUIET: Duration = Duration::from_secs(2);

/// Directories of a daemon, which outlive it.
pub(crate) struct DaemonDirectories {
    directory: tempfile::TempDir,
}

impl DaemonDirectories {
    pub(crate) fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        std::fs::write(place.shim(), "").unwrap();
        place
    }

    pub(crate) fn runtime(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Path of a slice's usage region: a file, or memory that the daemon in this process has open.
    /// A link in the slice's directory then holds the memory's inode number.
    pub(crate) fn usage(&self, slice: &str) -> PathBuf {
        let path = self.runtime().join("slices").join(slice).join("usage");
        let Ok(link) = std::fs::read_link(&path) else { return path };
        let named = |entry: &PathBuf| {
            let inode = std::fs::metadata(entry).map(|file| file.ino()).unwrap_or_default();
            link == Path::new(&format!("memory:[{inode}]"))
        };
        let mut open = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
        open.find(named).unwrap()
    }

    pub(crate) fn shim(&self) -> PathBuf {
        self.directory.path().join("shim.so")
    }

    /// Starts a daemon in these directories.
    pub(crate) fn start(&self, driver: &ScriptedDriver) -> RunningDaemon {
        self.start_with(driver, Config::default())
    }

    /// Starts a daemon with this configuration, in which faults are over sooner.
    pub(crate) fn start_with(&self, driver: &ScriptedDriver, config: Config) -> RunningDaemon {
        let layout = DaemonPaths {
            runtime: self.runtime(),
            state: self.state(),
            reach: DaemonScope::of_this_process(),
        };
        let locks = layout.occupy().unwrap();
        let door = layout.open_door().unwrap();
        let settings = Settings {
            lacks_user: false,
            layout,
            access: Access::default(),
            configured: None,
            shim: self.shim(),
            driver: Arc::new(driver.clone()),
            contexts: Contexts::assumed(Bytes::mib(308)),
            seals_regions: true,
            config: Config { fault_quiet_s: FAULT_QUIET.as_secs(), ..config },
            described: None,
            metrics: None,
            outstanding: None,
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let stop = async move { drop(stopped.await) };
            runtime.block_on(serve(settings, door, stop)).unwrap();
            runtime.shutdown_timeout(Duration::from_secs(5));
        });
        RunningDaemon::new(self.runtime().join("tranched.sock"), stop, thread, locks)
    }
}

/// A running daemon and a connection to it.
pub(crate) struct RunningDaemon {
    pub(crate) calls: Calls,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _locks: Locks,
}

impl RunningDaemon {
    fn new(socket: PathBuf, stop: oneshot::Sender<()>, thread: JoinHandle<()>, locks: Locks) -> Self {
        Self { calls: Calls::connect(&socket), stop: Some(stop), thread: Some(thread), _locks: locks }
    }
}

impl Drop for RunningDaemon {
    fn drop(&mut self) {
        self.calls.hang_up(); // or it would be waited for
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the daemon panicked");
        }
    }
}

/// Sequential calls of one client.
pub(crate) struct Calls {
    runtime: tokio::runtime::Runtime,
    client: NodeClient<Channel>,
}

impl Calls {
    pub(crate) fn connect(socket: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match runtime.block_on(tranche_rpc::connect(socket)) {
                Ok(client) => return Self { runtime, client },
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Drops the connection; later calls fail.
    fn hang_up(&mut self) {
        self.runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    }

    pub(crate) fn create(&mut self, request: v1::CreateSliceRequest) -> Result<v1::SliceView, Status> {
        self.runtime.block_on(self.client.create_slice(request)).map(tonic::Response::into_inner)
    }

    /// Sends a request and disconnects after a while without waiting for the reply.
    pub(crate) fn create_and_give_up(&mut self, request: v1::CreateSliceRequest, after: Duration) {
        let call = self.client.create_slice(request);
        self.runtime.block_on(async { tokio::time::timeout(after, call).await }).unwrap_err();
        // Lets the connection notify the daemon.
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
    }

    pub(crate) fn resize(&mut self, request: v1::ResizeSliceRequest) -> Result<v1::SliceView, Status> {
        self.runtime.block_on(self.client.resize_slice(request)).map(tonic::Response::into_inner)
    }

    pub(crate) fn label(
        &mut self,
        name: &str,
        pod: Option<v1::PodContainer>,
    ) -> Result<v1::SliceView, Status> {
        let request = v1::LabelSliceRequest { name: name.into(), pod };
        self.runtime.block_on(self.client.label_slice(request)).map(tonic::Response::into_inner)
    }

    pub(crate) fn delete(&mut self, name: &str, force: bool) -> Result<Vec<u32>, Status> {
        let request = v1::DeleteSliceRequest { name: name.into(), force };
        self.runtime.block_on(self.client.delete_slice(request)).map(|reply| reply.into_inner().killed_pids)
    }

    pub(crate) fn enter(&mut self, name: &str) -> Result<v1::EnterSliceResponse, Status> {
        let request = v1::EnterSliceRequest { name: name.into() };
        self.runtime.block_on(self.client.enter_slice(request)).map(tonic::Response::into_inner)
    }

    pub(crate) fn who_am_i(&mut self) -> Option<String> {
        let reply = self.runtime.block_on(self.client.who_am_i(v1::WhoAmIRequest {}));
        reply.unwrap().into_inner().slice
    }

    pub(crate) fn snapshot(&mut self) -> v1::NodeView {
        self.runtime.block_on(self.client.snapshot(v1::SnapshotRequest {})).unwrap().into_inner()
    }

    /// Polls until the node is as expected.
    pub(crate) fn wait_until(
        &mut self,
        what: &str,
        expected: impl Fn(&v1::NodeView) -> bool,
    ) -> v1::NodeView {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let view = self.snapshot();
            if expected(&view) {
                return view;
            }
            assert!(Instant::now() < deadline, "never: {what}; the node is {view:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A request for a fraction of a GPU under a name.
pub(crate) fn fraction(name: &str, permille: u32) -> v1::CreateSliceRequest {
    let kind = Some(v1::share::Kind::FractionPermille(permille));
    v1::CreateSliceRequest {
        name: Some(name.into()),
        share: Some(v1::Share { kind }),
        ..v1::CreateSliceRequest::default()
    }
}

pub(crate) fn expect_code(answer: Result<impl std::fmt::Debug, Status>, code: Code) -> String {
    let status = answer.expect_err("this had to be refused");
    assert_eq!(status.code(), code, "{}", status.message());
    status.message().to_string()
}

/// A process of a slice: this test program, started in the role of a tenant.
pub(crate) struct TenantProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Variable with the path of the slice's socket.
const SOCKET: &str = "TRANCHE_TEST_TENANT_SOCKET";

impl TenantProcess {
    /// Starts a child process, which attaches when ordered to.
    pub(crate) fn spawn(socket: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child_process_plays_the_tenant", "--nocapture", "--test-threads=1"]);
        command.env(SOCKET, socket).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends an order and returns the answer.
    pub(crate) fn tell(&mut self, order: &str) -> String {
        writeln!(self.input, "{order}").unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the tenant ended at {order:?}");
            if let Some((_, answer)) = line.split_once("TENANT ") {
                return answer.trim().to_string();
            }
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for TenantProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The tenant's side: orders from standard input, answers to standard output.
pub(crate) fn play_tenant() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let mut seat: Option<Attached> = None;
    let mut flood: Option<Flood> = None;
    for order in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = order.split(' ').collect();
        let answer = match words[..] {
            ["attach"] => match Attached::attach(Path::new(&socket), seat.as_ref().map(|seat| seat.slot)) {
                Ok(attached) => {
                    let answer = format!("slot {}", attached.slot.index());
                    seat = Some(attached);
                    answer
                }
                Err(why) => why,
            },
            ["alloc", mib] => seat.as_mut().unwrap().alloc(mib.parse().unwrap()),
            ["free", mib] => seat.as_mut().unwrap().free(mib.parse().unwrap()),
            ["crowd", count] => crowd(Path::new(&socket), count.parse().unwrap(), |_, _| std::thread::park()),
            ["exporters", count] => crowd(Path::new(&socket), count.parse().unwrap(), export_for_ever),
            ["trips", count] => seat.as_mut().unwrap().trips(count.parse().unwrap()),
            ["take", mib] => seat.as_mut().unwrap().take(mib.parse().unwrap()),
            ["export", key, mib] => {
                let units = Units::within(mib.parse::<u64>().unwrap() << 20);
                let key = ShareKey(key.parse().unwrap());
                seat.as_mut().unwrap().say(ProcessRequest::Export { device: Attached::device(), key, units })
            }
            ["import", key] => {
                seat.as_mut().unwrap().say(ProcessRequest::Import { key: ShareKey(key.parse().unwrap()) })
            }
            ["drop", key] => {
                seat.as_mut().unwrap().say(ProcessRequest::Drop { key: ShareKey(key.parse().unwrap()) })
            }
            ["unused"] => seat.as_ref().unwrap().unused(),
            ["departing"] => (seat.as_ref().unwrap().control().departing_until_ns() != 0).to_string(),
            ["cap"] => seat.as_ref().unwrap().cap(),
            ["write-control"] => seat.as_ref().unwrap().write_control(),
            ["grow-usage"] => seat.as_ref().unwrap().grow_usage(),
            ["enter", door] => Calls::connect(door.as_ref())
                .enter(slice_of(&socket))
                .map_or_else(|status| status.to_string(), |_| "ok".into()),
            ["become", uid] => become_user(uid.parse().unwrap()),
            ["flood", socket] => {
                flood = Some(Flood::begin(socket.into()));
                "ok".into()
            }
            ["flooded"] => flood.take().unwrap().end(),
            ["truncate-usage"] => seat.as_ref().unwrap().truncate_usage(),
            _ => panic!("unknown order {order:?}"),
        };
        println!("TENANT {answer}");
    }
    std::process::exit(0);
}

/// Name of the slice from the path of its socket.
fn slice_of(socket: &std::ffi::OsStr) -> &str {
    Path::new(socket).parent().and_then(Path::file_name).and_then(std::ffi::OsStr::to_str).unwrap()
}

/// Many processes, each with a slot and 2 MiB, that act until they are killed with their parent.
fn crowd(socket: &Path, count: usize, then: fn(&mut Attached, u64)) -> String {
    let (mut done, tell) = UnixStream::pair().unwrap();
    for number in 0..count {
        // SAFETY: the test harness's other thread only waits for this one, so the fork copies no lock that another
        // thread holds.
        match unsafe { nix::unistd::fork() }.unwrap() {
            nix::unistd::ForkResult::Parent { .. } => {}
            nix::unistd::ForkResult::Child => {
                nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).unwrap();
                let mut seat = Attached::attach(socket, None).unwrap();
                let got = seat.alloc(2) == "ok";
                (&tell).write_all(&[u8::from(got)]).unwrap();
                then(&mut seat, number as u64);
                std::process::exit(0);
            }
        }
    }
    let mut answers = vec![0; count];
    done.read_exact(&mut answers).unwrap();
    format!("{}", answers.iter().filter(|answer| **answer == 1).count())
}

/// Exports 4 KiB repeatedly; every second export is kept until exports fail.
fn export_for_ever(seat: &mut Attached, number: u64) {
    let units = Units::within(4096);
    for turn in 0.. {
        let key = ShareKey(number << 32 | turn);
        seat.say(ProcessRequest::Export { device: Attached::device(), key, units });
        if turn % 2 == 0 || turn > 512 {
            seat.say(ProcessRequest::Drop { key });
        }
    }
}

struct Attached {
    stream: UnixStream,
    slot: Slot,
    control_fd: OwnedFd,
    usage_fd: OwnedFd,
    control: &'static [AtomicU64],
    usage: &'static [AtomicU64],
}

const DEVICE: usize = 0;

impl Attached {
    /// `known` is the slot that this process had before, if it had one.
    fn attach(socket: &Path, known: Option<Slot>) -> Result<Self, String> {
        let mut stream = UnixStream::connect(socket).map_err(|error| format!("no connection: {error}"))?;
        stream.write_all(&ProcessRequest::hello(known, None).encode()).unwrap();
        let (reply, descriptors) = receive(&stream);
        let slot = match reply {
            DaemonReply::Welcome { slot, .. } => slot,
            DaemonReply::Refused(why) => return Err(format!("refused {why:?}")),
            other => panic!("{other:?}"),
        };
        let [control_fd, usage_fd, _bell]: [OwnedFd; 3] = descriptors.try_into().unwrap();
        let control = map(&control_fd, control::WORDS, libc::PROT_READ);
        let usage = map(&usage_fd, usage::WORDS, libc::PROT_READ | libc::PROT_WRITE);
        Ok(Self { stream, slot, control_fd, usage_fd, control, usage })
    }

    fn device() -> DeviceSlot {
        DeviceSlot::new(DEVICE).unwrap()
    }

    fn control(&self) -> Control<'static> {
        Control::attach(self.control).unwrap()
    }

    fn alloc(&mut self, mib: u64) -> String {
        let want = Units::within(mib << 20);
        let usage = Usage::attach(self.usage).unwrap();
        let word = usage.credit(self.slot, Self::device());
        let began = Instant::now();
        while word.charge(want).is_err() {
            let ask = ProcessRequest::Credit { device: Self::device(), want };
            self.stream.write_all(&ask.encode()).unwrap();
            let mut frame = [0; FRAME_BYTES];
            self.stream.read_exact(&mut frame).unwrap();
            match DaemonReply::decode(&frame).unwrap() {
                DaemonReply::Granted => {}
                DaemonReply::Exhausted => return "out of memory".into(),
                DaemonReply::Later if began.elapsed().as_nanos() < DEPARTURE_PATIENCE_NS.into() => {}
                DaemonReply::Later => return "out of memory, they say in vain".into(),
                other => panic!("{other:?}"),
            }
        }
        "ok".into()
    }

    /// Allocates as the shim does, which changes the charge counter.
    fn take(&mut self, mib: u64) -> String {
        let usage = Usage::attach(self.usage).unwrap();
        usage.counter(self.slot, Counter::Charges).fetch_add(1, Relaxed);
        self.alloc(mib)
    }

    /// Round-trip times of messages in microseconds: median, 99th percentile, maximum.
    fn trips(&mut self, count: usize) -> String {
        let mut took: Vec<u128> = (0..count)
            .map(|_| {
                let begun = Instant::now();
                self.say(ProcessRequest::Drop { key: ShareKey(u64::MAX) });
                begun.elapsed().as_micros()
            })
            .collect();
        took.sort_unstable();
        format!("{} {} {}", took[count / 2], took[count * 99 / 100], took[count - 1])
    }

    fn say(&mut self, request: ProcessRequest) -> String {
        self.stream.write_all(&request.encode()).unwrap();
        let mut frame = [0; FRAME_BYTES];
        self.stream.read_exact(&mut frame).unwrap();
        format!("{:?}", DaemonReply::decode(&frame).unwrap())
    }

    fn free(&mut self, mib: u64) -> String {
        let units = Units::within(mib << 20);
        let word = Usage::attach(self.usage).unwrap().credit(self.slot, Self::device());
        if self.control().over_cap(Self::device()) {
            word.release_with_credit(units);
        } else {
            word.release(units);
        }
        "ok".into()
    }

    /// Unused credit in MiB.
    fn unused(&self) -> String {
        let word = Usage::attach(self.usage).unwrap().credit(self.slot, Self::device());
        (word.load().unused().bytes() >> 20).to_string()
    }

    fn cap(&self) -> String {
        let control = self.control();
        format!("{} {}", control.cap_bytes(Self::device()) >> 20, control.over_cap(Self::device()))
    }

    /// Tries to write the limits.
    fn write_control(&self) -> String {
        let path = format!("/proc/self/fd/{}", self.control_fd.as_raw_fd());
        match std::fs::File::options().write(true).open(path) {
            Ok(_) => "opened".into(),
            Err(error) => format!("refused {}", error.raw_os_error().unwrap_or_default()),
        }
    }

    /// By both ways that there are.
    fn grow_usage(&self) -> String {
        let longer = nix::unistd::ftruncate(&self.usage_fd, 64 << 20);
        let written = nix::sys::uio::pwrite(&self.usage_fd, &[1; 4096], 128 << 20);
        longer.map(drop).or(written.map(drop)).map_or_else(|errno| errno.to_string(), |()| "ok".into())
    }

    fn truncate_usage(&self) -> String {
        nix::unistd::ftruncate(&self.usage_fd, 0).map_or_else(|errno| errno.to_string(), |()| "ok".into())
    }
}

fn become_user(uid: u32) -> String {
    use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
    setgroups(&[]).and(setgid(Gid::from_raw(uid))).and(setuid(Uid::from_raw(uid))).unwrap();
    "ok".into()
}

/// A thread that connects to a socket repeatedly, sends nothing, and disconnects as late as it can.
struct Flood {
    enough: Arc<AtomicBool>,
    thread: JoinHandle<(u32, VecDeque<UnixStream>)>,
}

impl Flood {
    /// Connections that it keeps open.
    const KEPT: usize = 400;

    fn begin(socket: PathBuf) -> Self {
        let enough: Arc<AtomicBool> = Arc::default();
        let told = Arc::clone(&enough);
        let thread = std::thread::spawn(move || {
            let (mut tried, mut kept) = (0, VecDeque::new());
            let begun = Instant::now();
            // Long enough to hold many, however little work each causes.
            while !told.load(Relaxed) || begun.elapsed() < Duration::from_millis(500) {
                tried += 1;
                kept.extend(UnixStream::connect(&socket));
                if kept.len() > Self::KEPT {
                    kept.pop_front();
                }
            }
            (tried, kept)
        });
        Self { enough, thread }
    }

    /// Number of connections made, and of those still open after a while.
    fn end(self) -> String {
        self.enough.store(true, Relaxed);
        let (tried, kept) = self.thread.join().unwrap();
        let is_open = |stream: &&UnixStream| {
            stream.set_nonblocking(true).unwrap();
            let mut stream: &UnixStream = stream;
            matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        };
        // Less than the time for which a process that belongs to the slice may be silent.
        let deadline = Instant::now() + Duration::from_secs(3);
        loop {
            let open = kept.iter().filter(is_open).count();
            if open <= 32 || Instant::now() >= deadline {
                return format!("{tried} {open}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn receive(stream: &UnixStream) -> (DaemonReply, Vec<OwnedFd>) {
    let mut frame = [0; FRAME_BYTES];
    let mut space = nix::cmsg_space!([RawFd; 3]);
    let mut parts = [IoSliceMut::new(&mut frame)];
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty()).unwrap();
    let mut descriptors = Vec::new();
    for control in message.cmsgs().unwrap() {
        if let ControlMessageOwned::ScmRights(fds) = control {
            // SAFETY: the kernel has just created these descriptors in this process, so they are open and have no
            // other owner.
            descriptors.extend(fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    assert_eq!(message.bytes, FRAME_BYTES);
    (DaemonReply::decode(&frame).unwrap(), descriptors)
}

fn map(fd: &OwnedFd, words: usize, access: i32) -> &'static [AtomicU64] {
    // SAFETY: a new shared mapping at an address of the kernel's choice, never unmapped, of a file that is at least
    // that long; the words are accessed as atomics only, and others may change them.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), words * 8, access, libc::MAP_SHARED, fd.as_raw_fd(), 0);
        assert_ne!(start, libc::MAP_FAILED);
        std::slice::from_raw_parts(start.cast(), words)
    }
}

/// Pid of this process, which tests make a root.
pub(crate) fn me() -> HostPid {
    HostPid::new(std::process::id())
}
