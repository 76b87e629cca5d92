//! A daemon that may die at a given point: `tranched`'s own code in a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use tranche_agent::{Access, Config, Contexts, DaemonPaths, DaemonScope, Settings, serve};
use tranche_domain::units::Bytes;
use tranche_rpc::v1;

use crate::board::Board;
use crate::points::{Aim, Side, doom};

/// Serves in `place` until the process is killed.
pub fn run(place: &Path, aim: Option<Aim>) -> Result<(), Box<dyn std::error::Error>> {
    set_pdeathsig(Signal::SIGKILL)?;
    let context = std::env::var(CONTEXT_BYTES)?.parse()?;
    doom(Board::open(&place.join("board"))?, Side::Daemon, None, aim);
    let (runtime, state) = (place.join("run"), place.join("state"));
    let layout = DaemonPaths { runtime, state, reach: DaemonScope::of_this_process() };
    let _locks = layout.occupy()?;
    let door = layout.open_door()?;
    let settings = Settings {
        layout,
        lacks_user: false,
        access: Access::default(),
        configured: None,
        // Any file is enough: tenants contain the shim's code.
        shim: place.join("board"),
        driver: Arc::from(tranche_inventory::open(None)),
        contexts: Contexts::assumed(Bytes::new(context)),
        seals_regions: false,
        config: Config::default(),
        described: None,
        metrics: None,
        outstanding: None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(settings, door, std::future::pending()))?;
    Ok(())
}

/// Variable with the bytes of a context, which the daemon reserves.
pub const CONTEXT_BYTES: &str = "STRESS_CONTEXT_BYTES";

/// A daemon that was started.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    socket: PathBuf,
    /// Time of its first answer.
    pub since: Instant,
}

impl Daemon {
    /// Starts a daemon and waits until it answers; none if it died before.
    pub fn start(mut command: Command, place: &Path) -> std::io::Result<Option<Self>> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let child = command.stdin(Stdio::null()).spawn()?;
        let socket = place.join("run/tranched.sock");
        let mut daemon = Self { child, socket, since: Instant::now() };
        while daemon.child.try_wait()?.is_none() {
            if daemon.call(async |mut node| node.snapshot(v1::SnapshotRequest {}).await).is_ok() {
                daemon.since = Instant::now();
                return Ok(Some(daemon));
            }
            if daemon.since.elapsed() > PATIENCE {
                daemon.kill()?;
                return Err(std::io::Error::other("the daemon does not answer"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(None)
    }

    /// Pid of the daemon's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True while the daemon runs.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the daemon, and waits for its end.
    pub fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Makes one call, over a connection of its own.
    pub fn call<T>(&self, call: impl AsyncFnOnce(Client) -> Result<T, tonic::Status>) -> Result<T, String> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let node = tranche_rpc::connect(&self.socket).await.map_err(|error| error.to_string())?;
            let answer = tokio::time::timeout(PATIENCE, call(node)).await;
            answer.map_err(|_| "no answer".to_string())?.map_err(|status| status.message().to_string())
        })
    }
}

/// A connection to a daemon.
pub type Client = v1::node_client::NodeClient<tonic::transport::Channel>;

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
