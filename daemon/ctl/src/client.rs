//! Client of the daemon's API in domain types, with a time limit on every call.

mod gpus;
mod jobs;
mod reconnection;
mod repeated;

use std::env::{self, VarError};
use std::future::Future;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Uid;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};
use tranche_domain::daemon::DaemonView;
use tranche_domain::event::Event;
use tranche_domain::id::SliceName;
use tranche_domain::pod::PodContainer;
use tranche_domain::request::{Resize, SliceRequest};
use tranche_domain::view::{NodeView, SliceView};
use tranche_rpc::v1;
use tranche_rpc::v1::node_client::NodeClient;

use crate::errors::Failure;
use crate::when;

pub use reconnection::Reconnection;

/// Variable with the attach socket of the slice that a program runs in.
pub const SLICE_SOCKET: &str = "TRANCHE_SLICE_SOCKET";

/// Time limit of a call that does not wait by design.
/// It suffices to kill the processes of a stuck slice.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Longest wait for copies between device memory and host memory.
const COPY_PATIENCE: Duration = Duration::from_secs(600);

/// Sends a message by a method of a client, and waits for the answer as long as a call may take.
macro_rules! call {
    ($daemon:ident, $client:expr, $method:ident, $message:expr) => {{
        let (mut client, message) = ($client, $message);
        $daemon.ask($crate::client::PATIENCE, async move { client.$method(message).await })
    }};
}

pub(crate) use call;

/// A connection to the daemon.
#[derive(Debug)]
pub struct Daemon {
    pub(crate) runtime: Runtime,
    node: NodeClient<Channel>,
    pub(crate) socket: PathBuf,
}

impl Daemon {
    /// Connects to the daemon at `socket`, without retries.
    pub fn connect(socket: &Path) -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
        let dial = async { tokio::time::timeout(PATIENCE, tranche_rpc::connect(socket)).await };
        let silent = || Failure::Silent { socket: socket.to_owned(), waited: PATIENCE };
        let node = runtime.block_on(dial).map_err(|_| silent())??;
        Ok(Self { runtime, node, socket: socket.to_owned() })
    }

    /// View of the whole node.
    pub fn snapshot(&mut self) -> Result<NodeView, Failure> {
        let view = call!(self, self.node.clone(), snapshot, v1::SnapshotRequest {})?;
        Ok(view.try_into()?)
    }

    /// Creates a slice, waiting up to `wait` for room.
    pub fn create(&mut self, request: &SliceRequest, wait: Duration) -> Result<SliceView, Failure> {
        let message = v1::CreateSliceRequest { wait_ms: when::millis(wait), ..request.clone().into() };
        let (mut node, patience) = (self.node.clone(), wait.saturating_add(PATIENCE));
        Ok(self.ask(patience, async move { node.create_slice(message).await })?.try_into()?)
    }

    /// Changes a slice's size, limit, priority or latency target, or freezes or thaws it.
    pub fn resize(&mut self, name: &SliceName, change: Resize) -> Result<SliceView, Failure> {
        let message = v1::ResizeSliceRequest {
            name: name.to_string(),
            fraction_permille: change.fraction.map(u32::from),
            memory_bytes: change.memory.map(|bytes| bytes.get()),
            compute_permille: change.compute.map(|share| share.get()),
            limit_permille: change.limit.map(|share| share.get()),
            priority: change.priority.map(|priority| priority.get().into()),
            latency_us: change.latency.map(|latency| latency.map_or(0, u32::from)),
            frozen: change.frozen,
        };
        Ok(call!(self, self.node.clone(), resize_slice, message)?.try_into()?)
    }

    /// Moves the device memory of a slice to host memory.
    pub fn park(&mut self, name: &SliceName) -> Result<SliceView, Failure> {
        let (message, mut node) = (v1::ParkSliceRequest { name: name.to_string() }, self.node.clone());
        Ok(self.ask(COPY_PATIENCE, async move { node.park_slice(message).await })?.try_into()?)
    }

    /// Brings a parked slice back, waiting up to `wait` for room.
    pub fn unpark(&mut self, name: &SliceName, wait: Duration) -> Result<SliceView, Failure> {
        let message = v1::UnparkSliceRequest { name: name.to_string(), wait_ms: when::millis(wait) };
        let (mut node, patience) = (self.node.clone(), wait.saturating_add(COPY_PATIENCE));
        Ok(self.ask(patience, async move { node.unpark_slice(message).await })?.try_into()?)
    }

    /// Sets or clears the pod of a slice.
    pub fn label(&mut self, name: &SliceName, pod: Option<PodContainer>) -> Result<SliceView, Failure> {
        let message = v1::LabelSliceRequest { name: name.to_string(), pod: pod.map(Into::into) };
        Ok(call!(self, self.node.clone(), label_slice, message)?.try_into()?)
    }

    /// Deletes a slice; with `force`, kills its processes first and returns their pids.
    pub fn delete(&mut self, name: &SliceName, force: bool) -> Result<Vec<u32>, Failure> {
        let message = v1::DeleteSliceRequest { name: name.to_string(), force };
        Ok(call!(self, self.node.clone(), delete_slice, message)?.killed_pids)
    }

    /// Makes this process a root of the slice, so that it and its descendants may attach.
    pub fn enter(&mut self, name: &SliceName) -> Result<v1::EnterSliceResponse, Failure> {
        let message = v1::EnterSliceRequest { name: name.to_string() };
        call!(self, self.node.clone(), enter_slice, message)
    }

    /// Passes events after this number to `hear`, of one slice or of all.
    ///
    /// With `follow` also new ones, until the daemon ends.
    pub fn events(
        &mut self,
        since_seq: u64,
        slice: Option<&SliceName>,
        follow: bool,
        mut hear: impl FnMut(Event) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        let slice = slice.map(SliceName::to_string);
        let request = v1::FollowEventsRequest { since_seq, slice, follow };
        let mut events = call!(self, self.node.clone(), follow_events, request)?;
        // New events may take any time; stored ones may not.
        let patience = if follow { Duration::MAX } else { PATIENCE };
        self.each(&mut events, patience, |event| hear(event.try_into()?))
    }

    /// The slice of this process, as the daemon determines it from the kernel.
    pub fn own_slice(&mut self) -> Result<Option<SliceName>, Failure> {
        let answer = call!(self, self.node.clone(), who_am_i, v1::WhoAmIRequest {})?;
        let name = answer.slice.map(|name| name.parse()).transpose();
        name.map_err(|bad| Failure::Nonsense(tranche_rpc::BadMessage::Name(bad)))
    }

    /// View of the daemon itself.
    pub fn show(&mut self) -> Result<DaemonView, Failure> {
        let view = call!(self, self.node.clone(), show_daemon, v1::ShowDaemonRequest {})?;
        Ok(view.try_into()?)
    }

    /// Reloads the daemon's configuration; returns the keys that changed.
    pub fn reload(&mut self) -> Result<v1::ReloadConfigurationResponse, Failure> {
        call!(self, self.node.clone(), reload_configuration, v1::ReloadConfigurationRequest {})
    }

    /// Discards the observed and measured context reserves; returns the slices and GPU models concerned.
    ///
    /// # Errors
    /// If the daemon rejects the request or does not answer.
    pub fn forget_reserves(&mut self) -> Result<(Vec<String>, Vec<String>), Failure> {
        let request = v1::ForgetReservesRequest {};
        let answer = call!(self, self.node.clone(), forget_reserves, request)?;
        Ok((answer.slices, answer.models))
    }

    pub(crate) fn ask<T>(
        &self,
        patience: Duration,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        let answer = async { tokio::time::timeout(patience, answer).await };
        match self.runtime.block_on(answer) {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.refusal(status)),
            Err(_) => Err(Failure::Silent { socket: self.socket.clone(), waited: patience }),
        }
    }

    /// Passes on the messages of a stream until it ends or `hear` breaks; waits at most this long for each.
    pub(crate) fn each<T>(
        &self,
        stream: &mut Streaming<T>,
        patience: Duration,
        mut hear: impl FnMut(T) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        loop {
            let next = async { tokio::time::timeout(patience, stream.message()).await };
            match self.runtime.block_on(next) {
                Ok(Ok(Some(message))) => {
                    if hear(message)?.is_break() {
                        return Ok(());
                    }
                }
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(status)) => return Err(self.refusal(status)),
                Err(_) => return Err(Failure::Silent { socket: self.socket.clone(), waited: patience }),
            }
        }
    }

    /// Converts a status of the daemon, or of a broken connection.
    pub(crate) fn refusal(&self, status: Status) -> Failure {
        let transport = std::error::Error::source(&status).is_some();
        match status.code() {
            Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled if transport => {
                Failure::BrokenOff { socket: self.socket.clone(), reason: innermost(&status) }
            }
            _ => Failure::Refused(status),
        }
    }
}

/// The innermost cause of an error, which is the most specific: `broken pipe`, not `transport error`.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Path of the daemon's socket: the given one, the one beside the slice's socket, or the default.
pub fn socket(told: Option<PathBuf>) -> PathBuf {
    let beside_slice = || env::var_os(SLICE_SOCKET).and_then(|slice| runtime_of(Path::new(&slice)));
    let usual = || {
        let everybodys = PathBuf::from("/run/tranche/tranched.sock");
        let own = own_socket(env::var("XDG_RUNTIME_DIR"), Uid::effective());
        match own {
            // A user without a daemon of their own uses the node's.
            Some(own) if own.exists() || !everybodys.exists() => own,
            _ => everybodys,
        }
    };
    let environment = || env::var_os("TRANCHE_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from);
    told.or_else(environment)
        .or_else(|| beside_slice().filter(|socket| socket.exists()))
        .unwrap_or_else(usual)
}

/// Socket of a user's own daemon; `None` for root.
fn own_socket(runtime_dir: Result<String, VarError>, user: Uid) -> Option<PathBuf> {
    if user.is_root() {
        return None;
    }
    let folder = runtime_dir.map_or_else(|_| format!("/run/user/{user}").into(), PathBuf::from);
    Some(folder.join("tranche/tranched.sock"))
}

/// `RUNTIME/tranched.sock` from `RUNTIME/slices/NAME/attach.sock`.
fn runtime_of(slice_socket: &Path) -> Option<PathBuf> {
    Some(slice_socket.parent()?.parent()?.parent()?.join("tranched.sock"))
}

/// The slice's name in `RUNTIME/slices/NAME/attach.sock`. For display only, not for decisions.
pub fn slice_of(slice_socket: &Path) -> Option<SliceName> {
    slice_socket.parent()?.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_own_daemons_and_root_the_nodes() {
        let user = Uid::from_raw(7);
        let own = own_socket(Ok("/x".into()), user);
        assert_eq!(own, Some("/x/tranche/tranched.sock".into()));
        assert_eq!(
            own_socket(Err(VarError::NotPresent), user),
            Some("/run/user/7/tranche/tranched.sock".into())
        );
        assert_eq!(own_socket(Ok("/x".into()), Uid::from_raw(0)), None);
    }

    #[test]
    fn slice_socket_yields_slice_and_daemon() {
        let socket = Path::new("/run/tranche/slices/frac05/attach.sock");
        assert_eq!(runtime_of(socket), Some("/run/tranche/tranched.sock".into()));
        assert_eq!(slice_of(socket), Some("frac05".parse().unwrap()));
        assert_eq!(slice_of(Path::new("/")), None);
    }
}
