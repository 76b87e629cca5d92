//! Attach socket of a slice. Authenticates processes through the kernel, allocates their slots and hands out regions
//! and credit.

mod connection;
mod limits;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt};
use tokio::io::Interest;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, timeout, timeout_at};
use tranche_domain::event::{EventKind, Happening};
use tranche_domain::id::{HostPid, SliceName};
use tranche_shm::crash::point;
use tranche_shm::credit::Units;
use tranche_shm::message::{AttachRefusal, DaemonReply, ProcessRequest};
use tranche_shm::{ABI, DeviceSlot, Slot};

use crate::reaper::Reaper;
use crate::slice_runtime::{AttachedProcess, Departure, Joined, MembershipProof, SliceRuntime, Way};
use connection::{ProcessConnection, Writers};
use limits::{ConnectionCounts, Permit};
use tranche_linux::process::Process;
use tranche_linux::sys;
use tranche_telemetry::Telemetry;

/// Longest wait for the hello of a process that belongs to the slice.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for the hello of a rejected process, so that it receives the reply.
const REJECTED_HELLO_TIMEOUT: Duration = Duration::from_millis(100);
/// Largest number of such waits at a time on one socket.
const MOST_STRANGERS: usize = 64;
/// Time for which a request waits for memory of an exiting process. Then the client receives `DaemonReply::Later` and
/// retries; its other threads wait for the reply.
const RETRY_AFTER: Duration = Duration::from_millis(5);
/// Longest wait of a request for the driver to be queried about ended processes.
const QUERY_PATIENCE: Duration = Duration::from_secs(1);

/// Serves one of a slice's sockets until the slice ends.
pub fn listen(
    reaper: &Arc<Reaper>,
    runtime: &Arc<SliceRuntime>,
    way: Way,
    listener: UnixListener,
) -> io::Result<()> {
    let here = runtime.worker.work().enter();
    let listener = sys::watch(listener)?;
    drop(here);
    // Weak: a strong reference in the task would keep the slice alive that is to end it.
    let (reaper, weak) = (Arc::clone(reaper), Arc::downgrade(runtime));
    let task = runtime.worker.work().spawn(async move {
        let (mut connections, mut rejections, counts) =
            (JoinSet::new(), JoinSet::new(), ConnectionCounts::default());
        loop {
            match listener.async_io(Interest::READABLE, UnixListener::accept).await {
                Ok((stream, _)) => {
                    let Some(runtime) = weak.upgrade() else { return };
                    match authenticate(&runtime, way, &stream) {
                        Ok((who, pass)) if connections.len() < limits::most_connections() => {
                            let Some(permit) = counts.permit(who.id) else { continue };
                            let candidate = AttachCandidate { who, pass, _permit: permit };
                            connections.spawn(converse(Arc::clone(&reaper), runtime, candidate, stream));
                        }
                        Err(refusal) if rejections.len() < MOST_STRANGERS => {
                            note_rejection(&reaper, &runtime.name, peer_pid(&stream), refusal);
                            rejections.spawn(reject(refusal, stream));
                            // Lets attached processes be served between two connections.
                            yield_now().await;
                        }
                        _ => yield_now().await,
                    }
                }
                // Probably out of descriptors: other processes must end before any can be admitted.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
            while connections.try_join_next().is_some() || rejections.try_join_next().is_some() {}
        }
    });
    runtime.add_listener(task.abort_handle());
    Ok(())
}

/// A connected process that belongs to the slice.
struct AttachCandidate {
    who: Arc<Process>,
    pass: MembershipProof,
    _permit: Permit,
}

/// Authenticates the peer through the kernel and checks that it belongs to the slice.
/// Nothing is read from the peer before that, so that rejected processes stay cheap.
fn authenticate(
    runtime: &SliceRuntime,
    way: Way,
    stream: &UnixStream,
) -> Result<(Arc<Process>, MembershipProof), AttachRefusal> {
    let who = peer(stream).ok_or(AttachRefusal::NotAMember)?;
    let pass = runtime.admit(&who, way)?;
    Ok((who, pass))
}

/// Replies to a rejected process, whose hello may still be on its way.
async fn reject(refusal: AttachRefusal, stream: UnixStream) {
    let Ok(connection) = ProcessConnection::to(stream) else { return };
    if timeout(REJECTED_HELLO_TIMEOUT, connection.receive(Writers::Any, |_| {}))
        .await
        .is_ok_and(|received| received.is_ok())
    {
        let _ = connection.send(DaemonReply::Refused(refusal), &[]); // fails if the peer has disconnected
    }
}

async fn converse(
    reaper: Arc<Reaper>,
    runtime: Arc<SliceRuntime>,
    candidate: AttachCandidate,
    stream: UnixStream,
) {
    let Ok(connection) = ProcessConnection::to(stream) else { return };
    match timeout(HELLO_TIMEOUT, greet(&reaper, &runtime, &candidate, &connection)).await {
        Ok(Ok(Ok(member))) => {
            let _ = serve(&reaper.telemetry, &runtime, &connection, member).await; // disconnected; the reaper handles its end
        }
        Ok(Ok(Err(refusal))) => {
            note_rejection(&reaper, &runtime.name, Some(candidate.who.id.pid), refusal);
            let _ = connection.send(DaemonReply::Refused(refusal), &[]);
        }
        Ok(Err(_)) | Err(_) => {} // disconnected, or sent no hello in time
    }
}

/// Counts a rejected process, and records an event for it.
fn note_rejection(reaper: &Reaper, slice: &SliceName, pid: Option<HostPid>, refusal: AttachRefusal) {
    let why = match refusal {
        AttachRefusal::Abi => {
            "its library speaks a version of shared memory that this daemon does not serve; start it with this release's"
        }
        AttachRefusal::NotAMember => "the kernel does not place it in this slice",
        AttachRefusal::Full => "all places of the slice are taken",
        AttachRefusal::Ending => "the slice is ending",
        AttachRefusal::Malformed => "what it said made no sense",
    };
    let told =
        Happening::new(EventKind::Refused, format!("a process wanted to join the slice and may not: {why}"));
    reaper.telemetry.counters.rejected(slice);
    reaper.telemetry.events.record(Happening { pid, ..told.of(slice) });
}

/// Event for a process that wrote to another one's connection.
fn foreign_frame(telemetry: &Telemetry, runtime: &SliceRuntime, its: HostPid, other: HostPid) {
    let told = format!("a process wrote to the line of process {its}: what it asked there is not answered");
    telemetry.events.record(Happening::new(EventKind::Refused, told).of(&runtime.name).by(other));
}

/// Receives the hello and replies; the outer error is the connection's, the inner one the daemon's.
async fn greet(
    reaper: &Arc<Reaper>,
    runtime: &Arc<SliceRuntime>,
    AttachCandidate { who, pass, .. }: &AttachCandidate,
    connection: &ProcessConnection,
) -> io::Result<Result<AttachedProcess, AttachRefusal>> {
    let hello = connection
        .receive(Writers::Unnamed(who.id.pid), |other| {
            foreign_frame(&reaper.telemetry, runtime, who.id.pid, other);
        })
        .await?;
    let (known, own) = match ProcessRequest::decode(&hello) {
        Ok(ProcessRequest::Hello { abi: ABI, slot, own }) => (slot, own),
        Ok(ProcessRequest::Hello { .. }) => return Ok(Err(AttachRefusal::Abi)),
        _ => return Ok(Err(AttachRefusal::Malformed)),
    };
    let joined = match runtime.join(who, pass, own) {
        Ok(joined) => joined,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let (seat, id) = (joined.seat(), who.id);
    let slot = Slot::new(seat.0.into()).expect("seats are only made from the indices of slots");
    match joined {
        Joined::New(seat) => {
            tracing::info!(slice = %runtime.name, pid = %who.id.pid, seat = seat.0, "attached");
            if let Err(error) = who.admit_to_gpus(runtime.generation) {
                tracing::warn!(slice = %runtime.name, pid = %who.id.pid, %error, "it cannot open GPUs");
            }
            reaper.watch_member(runtime, seat, who.id, Some(Arc::clone(who)));
            runtime.advance(AttachedProcess { seat, id });
        }
        Joined::Again(seat) if known != Some(slot) => {
            reaper.reset_after_exec(runtime, seat, who.id).await;
        }
        Joined::Again(_) => {}
    }
    point("attach: answer");
    let descriptors = runtime.regions.descriptors().map(|fd| fd.as_raw_fd());
    connection.send(DaemonReply::Welcome { slot, generation: runtime.generation }, &descriptors)?;
    point("attach: welcome sent");
    Ok(Ok(AttachedProcess { seat, id }))
}

/// Serves requests until the process disconnects. Frames that other processes write to its connection are ignored:
/// they stole the descriptor, or were given it.
async fn serve(
    telemetry: &Telemetry,
    runtime: &SliceRuntime,
    connection: &ProcessConnection,
    member: AttachedProcess,
) -> io::Result<()> {
    let its = member.id.pid;
    loop {
        let request = connection
            .receive(Writers::Only(its), |other| foreign_frame(telemetry, runtime, its, other))
            .await?;
        let reply = match ProcessRequest::decode(&request) {
            Ok(ProcessRequest::Credit { device, want }) => credit(runtime, member, device, want).await,
            Ok(ProcessRequest::Export { device, key, units }) => runtime.export(member, device, key, units),
            Ok(ProcessRequest::Import { key }) => runtime.import(member, key),
            Ok(ProcessRequest::Drop { key }) => runtime.drop_share(member, key),
            Ok(ProcessRequest::Hello { .. }) | Err(_) => DaemonReply::Refused(AttachRefusal::Malformed),
        };
        point("credit: answer");
        connection.send(reply, &[])?;
    }
}

/// Grants credit if possible. While an exiting process still holds memory, a refusal is delayed by at most
/// [`RETRY_AFTER`] and the client retries; it decides on the total time. Until the driver has been queried about each
/// process that has ended, nothing is refused: however late that is, the memory may have been free all along.
async fn credit(
    runtime: &SliceRuntime,
    member: AttachedProcess,
    device: DeviceSlot,
    want: Units,
) -> DaemonReply {
    // The client decides how long it waits.
    runtime.until_answered().await;
    let began = Instant::now();
    loop {
        // Before the request: a process whose memory becomes free meanwhile is counted.
        let left = runtime.left.notified();
        let reply = runtime.credit(member, device, want);
        if reply != DaemonReply::Exhausted {
            return reply;
        }
        let patience = match runtime.departure() {
            // Its memory may have become free after the request.
            Departure::None => return runtime.credit(member, device, want),
            Departure::Listed => RETRY_AFTER,
            Departure::Unchecked => QUERY_PATIENCE,
        };
        let look_again = Instant::now() + RETRY_AFTER;
        let deadline = began + patience;
        if timeout_at(deadline.min(look_again), left).await.is_err() && Instant::now() >= deadline {
            return DaemonReply::Later;
        }
    }
}

/// Process that connected; `None` if it has ended or its pid namespace is not visible.
fn peer(stream: &UnixStream) -> Option<Arc<Process>> {
    Process::peer(stream.as_fd(), peer_pid(stream)?).ok().map(Arc::new)
}

fn peer_pid(stream: &UnixStream) -> Option<HostPid> {
    let pid = getsockopt(stream, sockopt::PeerCredentials).ok()?.pid();
    u32::try_from(pid).ok().filter(|pid| *pid != 0).map(HostPid::new)
}
