//! A whole daemon over a scripted driver, and a process of its slice that sends and writes anything.
//!
//! One daemon serves the whole run, as starting one takes longer than a thousand conversations. Each input begins anew
//! as a program does after `exec`, so that nothing that an earlier one held is left.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prost::Message;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use tranche_agent::{Access, Config, Contexts, DaemonPaths, DaemonScope, Settings, serve};
use tranche_domain::units::Bytes;
use tranche_inventory::scripted::{ScriptedDriver, v100};
use tranche_rpc::v1::{self, node_client::NodeClient};
use tranche_shm::compute::{self, RECORD_WORDS};
use tranche_shm::credit::Units;
use tranche_shm::message::{DaemonReply, FRAME_BYTES, ProcessRequest, ShareKey};
use tranche_shm::{DeviceSlot, MAX_DEVICES, MAX_SLOTS, Slot};

use crate::input::Input;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(8);
const SLICE: &str = "fuzzed";
const CAP: u64 = 64 << 20;

/// Sends frames and nonsense, writes into the usage region and calls the daemon, as one process.
///
/// For any input the daemon answers in frames and statuses, counts no use beyond the cap, and accepts the next process.
pub fn conversation(data: &[u8]) {
    static DESK: Mutex<Option<Desk>> = Mutex::new(None);
    IN_TARGET.set(true);
    let mut desk = DESK.lock().unwrap_or_else(PoisonError::into_inner);
    let desk = desk.get_or_insert_with(Desk::start);
    let mut guest = desk.join();
    let _ = drive(desk, &mut guest, &mut Input(data));
    drop(guest);
    drop(desk.join());
    desk.look();
    assert!(!PANICKED.load(SeqCst), "a thread of the daemon panicked");
}

/// True if a thread panicked that no other waits for.
static PANICKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True in the threads that run this target, whose panics end it by themselves.
    static IN_TARGET: Cell<bool> = const { Cell::new(false) };
}

struct Desk {
    runtime: Runtime,
    client: NodeClient<Channel>,
    socket: std::path::PathBuf,
    usage: File,
    _directory: TempDir,
}

/// A connection that the daemon accepted.
struct Guest {
    stream: UnixStream,
    slot: Slot,
    /// Bytes sent without regard to frames. Requests follow only where a frame begins: within one, the daemon may end
    /// the connection.
    sent: usize,
}

impl Desk {
    fn start() -> Self {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICKED.fetch_or(!IN_TARGET.get(), SeqCst);
            before(panic);
        }));
        let directory = tempfile::tempdir().expect("a folder can be made");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("threads can be made");
        let layout = DaemonPaths {
            runtime: directory.path().join("run"),
            state: directory.path().join("state"),
            reach: DaemonScope::of_this_process(),
        };
        let socket = layout.runtime.join("tranched.sock");
        // Locked for as long as the process lives.
        std::mem::forget(layout.occupy().expect("no other daemon is there"));
        let door = layout.open_door().expect("the folder is ours");
        let shim = directory.path().join("shim.so");
        std::fs::write(&shim, "").expect("the folder can be written");
        runtime.spawn(serve(settings(layout, shim), door, std::future::pending()));
        let client = runtime.block_on(connect(&socket));
        let mut desk = Self { runtime, client, usage: null(), socket, _directory: directory };
        desk.make_slice();
        desk
    }

    fn make_slice(&mut self) {
        let kind = Some(v1::share::Kind::MemoryBytes(CAP));
        let request = v1::CreateSliceRequest {
            name: Some(SLICE.into()),
            share: Some(v1::Share { kind }),
            ..v1::CreateSliceRequest::default()
        };
        self.call(async |client| client.create_slice(request).await).expect("there is room");
        let request = v1::EnterSliceRequest { name: SLICE.into() };
        let entered = self.call(async |client| client.enter_slice(request).await).expect("it is ours");
        let run = self.socket.parent().expect("it is in a folder").join("slices").join(SLICE);
        self.usage = File::options().read(true).write(true).open(run.join("usage")).expect("it was made");
        self.socket = entered.socket_path.into();
    }

    fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut NodeClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<T, Status> {
        let answer =
            self.runtime.block_on(async { tokio::time::timeout(PATIENCE, call(&mut self.client)).await });
        answer.expect("every call is answered").map(Response::into_inner)
    }

    /// Attaches as a program that holds nothing.
    fn join(&self) -> Guest {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match attach(&self.socket) {
                Some(guest) => return guest,
                // Too many connections of this process, whose ends the daemon has not noticed yet.
                None => assert!(Instant::now() < deadline, "no process of the slice is accepted any longer"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reads the daemon's view of the slice, and checks that its use is within the cap.
    fn look(&mut self) {
        let node = self.call(async |client| client.snapshot(v1::SnapshotRequest {}).await);
        let node = node.expect("every user may read it");
        let slice = node.slices.iter().find(|slice| slice.name == SLICE).expect("it stays");
        let used = slice.devices[0].used_bytes;
        assert!(used <= CAP, "{used} bytes are counted as used of {CAP}");
    }
}

fn settings(layout: DaemonPaths, shim: std::path::PathBuf) -> Settings {
    Settings {
        layout,
        lacks_user: false,
        access: Access::default(),
        configured: None,
        shim,
        driver: Arc::new(ScriptedDriver::new(vec![v100(0)])),
        contexts: Contexts::assumed(Bytes::mib(1)),
        seals_regions: false,
        config: Config { fault_quiet_s: 2, ..Config::default() },
        described: None,
        metrics: None,
        outstanding: None,
    }
}

async fn connect(socket: &Path) -> NodeClient<Channel> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match tranche_rpc::connect(socket).await {
            Ok(client) => return client,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn null() -> File {
    File::open("/dev/null").expect("every system has it")
}

/// Attaches with a hello; `None` if the connection fails.
fn attach(socket: &Path) -> Option<Guest> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).expect("that is a time");
    stream.write_all(&ProcessRequest::hello(None, None).encode()).ok()?;
    let mut frame = [0; FRAME_BYTES];
    stream.read_exact(&mut frame).ok()?;
    match DaemonReply::decode(&frame) {
        Ok(DaemonReply::Welcome { slot, .. }) => Some(Guest { stream, slot, sent: 0 }),
        other => panic!("a proper hello was answered by {other:?}"),
    }
}

fn drive(desk: &mut Desk, guest: &mut Guest, input: &mut Input<'_>) -> Option<()> {
    for _ in 0..24 {
        match input.below(8)? {
            0 | 1 => send_request(guest, input)?,
            2 => send_bytes(guest, input)?,
            3..=5 => write_word(desk, guest.slot, input)?,
            6 => call_daemon(desk, input)?,
            _ => desk.look(),
        }
    }
    Some(())
}

/// Sends a well-formed request and reads the answer.
fn send_request(guest: &mut Guest, input: &mut Input<'_>) -> Option<()> {
    let device = DeviceSlot::new(usize::from(input.below(MAX_DEVICES as u8)?))?;
    let (kind, units) = (input.below(4)?, Units::new(input.number()? as u32));
    let key = ShareKey(input.number()?);
    let request = match kind {
        0 => ProcessRequest::Credit { device, want: units },
        1 => ProcessRequest::Export { device, key, units },
        2 => ProcessRequest::Import { key },
        _ => ProcessRequest::Drop { key },
    };
    if guest.sent.is_multiple_of(FRAME_BYTES) && guest.stream.write_all(&request.encode()).is_ok() {
        read_reply(guest);
    }
    Some(())
}

/// Sends bytes of any content, in pieces of any length.
fn send_bytes(guest: &mut Guest, input: &mut Input<'_>) -> Option<()> {
    let length = usize::from(input.byte()?).min(input.0.len());
    let (bytes, rest) = input.0.split_at(length);
    input.0 = rest;
    let whole = (guest.sent + length) / FRAME_BYTES - guest.sent / FRAME_BYTES;
    if guest.stream.write_all(bytes).is_ok() {
        guest.sent += length;
        (0..whole).for_each(|_| read_reply(guest));
    }
    Some(())
}

/// Reads the answer to a frame: a reply, whatever the frame contains, unless the connection has ended.
fn read_reply(guest: &mut Guest) {
    let mut frame = [0; FRAME_BYTES];
    if guest.stream.read_exact(&mut frame).is_ok() {
        assert!(DaemonReply::decode(&frame).is_ok(), "the daemon sent {frame:?}");
    }
}

/// Writes a word into the usage region, mostly where words are in use.
fn write_word(desk: &Desk, slot: Slot, input: &mut Input<'_>) -> Option<()> {
    let (where_to, at) = (input.below(4)?, usize::try_from(input.number()?).ok()?);
    let first_record = compute::REGION_WORDS - MAX_SLOTS * RECORD_WORDS;
    let at = match where_to {
        0 => at % compute::REGION_WORDS,
        1 => first_record + slot.index() * RECORD_WORDS + at % RECORD_WORDS,
        2 => 144 + slot.index() * 48 + at % 48,
        _ => at % 144,
    };
    let word = input.number()?;
    desk.usage.write_all_at(&word.to_ne_bytes(), at as u64 * 8).expect("the file is as long as the region");
    Some(())
}

/// Calls the daemon with the message that the bytes encode. A slice that is created is deleted again.
fn call_daemon(desk: &mut Desk, input: &mut Input<'_>) -> Option<()> {
    let (kind, length) = (input.below(4)?, usize::from(input.byte()?).min(input.0.len()));
    let (bytes, rest) = input.0.split_at(length);
    input.0 = rest;
    let code = match kind {
        0 => create(desk, v1::CreateSliceRequest::decode(bytes).ok()?),
        1 => {
            let request = v1::ResizeSliceRequest::decode(bytes).ok()?;
            let own = request.name == SLICE; // else it would stay over its cap
            if own { None } else { desk.call(async |client| client.resize_slice(request).await).err() }
        }
        2 => {
            let request = v1::LabelSliceRequest::decode(bytes).ok()?;
            desk.call(async |client| client.label_slice(request).await).err()
        }
        _ => {
            // With `force` it would end this process.
            let request =
                v1::DeleteSliceRequest { force: false, ..v1::DeleteSliceRequest::decode(bytes).ok()? };
            desk.call(async |client| client.delete_slice(request).await).err()
        }
    };
    if let Some(status) = code {
        let sensible = [
            Code::InvalidArgument,
            Code::NotFound,
            Code::AlreadyExists,
            Code::ResourceExhausted,
            Code::FailedPrecondition,
        ];
        assert!(sensible.contains(&status.code()) && !status.message().is_empty(), "{status:?}");
    }
    Some(())
}

fn create(desk: &mut Desk, mut request: v1::CreateSliceRequest) -> Option<Status> {
    request.wait_ms = 0;
    match desk.call(async |client| client.create_slice(request).await) {
        Ok(slice) => {
            let request = v1::DeleteSliceRequest { name: slice.name, force: false };
            desk.call(async |client| client.delete_slice(request).await).err()
        }
        Err(status) => Some(status),
    }
}
