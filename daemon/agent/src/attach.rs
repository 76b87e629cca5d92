//! A slice's socket: who knocks is asked of the kernel, who belongs gets a seat, the regions, and credit.

mod crowd;
mod line;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt};
use tokio::io::Interest;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, timeout, timeout_at};
use tranche_domain::event::{Happening, Kind};
use tranche_domain::id::HostPid;
use tranche_shm::crash::point;
use tranche_shm::credit::Units;
use tranche_shm::message::{Refusal, Reply, Request};
use tranche_shm::{ABI, DeviceSlot, Slot};

use crate::agent::Agent;
use crate::process::Process;
use crate::reaper;
use crate::sys;
use crate::tenancy::{Joined, Member, Pass, Tenancy};
use crowd::{Crowd, Place};
use line::{Line, Writers};

/// How a process comes to a slice, by the socket that it connected to, and so what it must be to be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through the socket that everybody may knock at: it descends from somebody who entered the slice.
    Descent,
    /// Through the socket that is mounted into the slice's container: it is in that container.
    Container,
}

/// How long somebody who belongs to the slice may take to say hello.
const GREETING_PATIENCE: Duration = Duration::from_secs(5);
/// How long somebody who does not belong here may take to say hello, for the answer to be heard, and how many may.
const STRANGERS_PATIENCE: Duration = Duration::from_millis(100);
const MOST_STRANGERS: usize = 64;
/// How long a request waits for the memory of somebody who has just ended before it is told to ask again. Other threads
/// of its process wait for its answer.
const A_LITTLE: Duration = Duration::from_millis(5);

/// Listens at one of a slice's sockets until the tenancy closes.
pub(crate) fn listen(
    agent: &Arc<Agent>,
    tenancy: &Arc<Tenancy>,
    way: Way,
    listener: UnixListener,
) -> io::Result<()> {
    let here = tenancy.worker.work().enter();
    let listener = sys::watch(listener)?;
    drop(here);
    // Weak, or the task that a tenancy ends would keep it from ending.
    let (agent, weak) = (Arc::clone(agent), Arc::downgrade(tenancy));
    let task = tenancy.worker.work().spawn(async move {
        let (mut connections, mut strangers, crowd) = (JoinSet::new(), JoinSet::new(), Crowd::default());
        loop {
            match listener.async_io(Interest::READABLE, UnixListener::accept).await {
                Ok((stream, _)) => {
                    let Some(tenancy) = weak.upgrade() else { return };
                    match look(&tenancy, way, &stream) {
                        Ok((who, pass)) if connections.len() < crowd::most_connections() => {
                            let Some(place) = crowd.place(who.id) else { continue };
                            let guest = Guest { who, pass, _place: place };
                            connections.spawn(converse(Arc::clone(&agent), tenancy, guest, stream));
                        }
                        Err(refusal) if strangers.len() < MOST_STRANGERS => {
                            agent.counters.rejected(&tenancy.name);
                            agent.events.record(turned_away(&tenancy, peer_pid(&stream), refusal));
                            strangers.spawn(turn_away(refusal, stream));
                            // However many knock, those who are in are heard in between.
                            yield_now().await;
                        }
                        _ => yield_now().await,
                    }
                }
                // Out of descriptors, most likely: others must end before anybody can be let in.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
            while connections.try_join_next().is_some() || strangers.try_join_next().is_some() {}
        }
    });
    tenancy.add_listener(task.abort_handle());
    Ok(())
}

/// Somebody who belongs to the slice, and knocks.
struct Guest {
    who: Arc<Process>,
    pass: Pass,
    _place: Place,
}

/// Who connected, by the kernel's word, and whether they belong to the slice. Nobody is heard before that: whoever does
/// not belong here costs a look and is gone, however many they are.
fn look(tenancy: &Tenancy, way: Way, stream: &UnixStream) -> Result<(Arc<Process>, Pass), Refusal> {
    let who = peer(stream).ok_or(Refusal::NotAMember)?;
    let pass = tenancy.admit(&who, way)?;
    Ok((who, pass))
}

/// Tells somebody that they are not let in. They have said hello by now, or will in an instant.
async fn turn_away(refusal: Refusal, stream: UnixStream) {
    let Ok(line) = Line::to(stream) else { return };
    if timeout(STRANGERS_PATIENCE, line.hear(Writers::Any, |_| {})).await.is_ok_and(|heard| heard.is_ok()) {
        let _ = line.say(Reply::Refused(refusal), &[]); // or they are gone
    }
}

async fn converse(agent: Arc<Agent>, tenancy: Arc<Tenancy>, guest: Guest, stream: UnixStream) {
    let Ok(line) = Line::to(stream) else { return };
    match timeout(GREETING_PATIENCE, greet(&agent, &tenancy, &guest, &line)).await {
        Ok(Ok(Ok(member))) => {
            let _ = serve(&agent, &tenancy, &line, member).await; // it hung up; its end is the reaper's business
        }
        Ok(Ok(Err(refusal))) => {
            agent.counters.rejected(&tenancy.name);
            agent.events.record(turned_away(&tenancy, Some(guest.who.id.pid), refusal));
            let _ = line.say(Reply::Refused(refusal), &[]);
        }
        Ok(Err(_)) | Err(_) => {} // it went, or said nothing
    }
}

/// Somebody is not let in.
fn turned_away(tenancy: &Tenancy, who: Option<HostPid>, refusal: Refusal) -> Happening {
    let why = match refusal {
        Refusal::Abi => {
            "its library speaks a version of shared memory that this daemon does not serve; start it with this release's"
        }
        Refusal::NotAMember => "the kernel does not place it in this slice",
        Refusal::Full => "all places of the slice are taken",
        Refusal::Ending => "the slice is ending",
        Refusal::Malformed => "what it said made no sense",
    };
    let told =
        Happening::new(Kind::Refused, format!("a process wanted to join the slice and may not: {why}"));
    let told = told.of(&tenancy.name);
    match who {
        Some(pid) => told.by(pid),
        None => told,
    }
}

/// Somebody wrote to the line of another.
fn not_its_line(agent: &Agent, tenancy: &Tenancy, its: HostPid, other: HostPid) {
    let told = format!("a process wrote to the line of process {its}: what it asked there is not answered");
    agent.events.record(Happening::new(Kind::Refused, told).of(&tenancy.name).by(other));
}

/// Hears the hello and answers it; the outer error is the connection's, the inner one ours.
async fn greet(
    agent: &Arc<Agent>,
    tenancy: &Arc<Tenancy>,
    Guest { who, pass, .. }: &Guest,
    line: &Line,
) -> io::Result<Result<Member, Refusal>> {
    let hello = line
        .hear(Writers::Unnamed(who.id.pid), |other| not_its_line(agent, tenancy, who.id.pid, other))
        .await?;
    let known = match Request::decode(&hello) {
        Ok(Request::Hello { abi: ABI, slot }) => slot,
        Ok(Request::Hello { .. }) => return Ok(Err(Refusal::Abi)),
        _ => return Ok(Err(Refusal::Malformed)),
    };
    let joined = match tenancy.join(who, pass) {
        Ok(joined) => joined,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let (seat, id) = (joined.seat(), who.id);
    let slot = Slot::new(seat.0.into()).expect("seats are only made from the indices of slots");
    match joined {
        Joined::New(seat) => {
            tracing::info!(slice = %tenancy.name, pid = %who.id.pid, seat = seat.0, "attached");
            if let Err(error) = who.admit_to_gpus(tenancy.generation) {
                tracing::warn!(slice = %tenancy.name, pid = %who.id.pid, %error, "it cannot open GPUs");
            }
            reaper::watch_member(agent, tenancy, seat, who.id, Some(Arc::clone(who)));
            tenancy.advance(Member { seat, id });
        }
        Joined::Again(seat) if known != Some(slot) => {
            reaper::reset_after_exec(agent, tenancy, seat, who.id.pid).await;
        }
        Joined::Again(_) => {}
    }
    point("attach: answer");
    let descriptors = tenancy.regions.descriptors().map(|fd| fd.as_raw_fd());
    line.say(Reply::Welcome { slot, generation: tenancy.generation }, &descriptors)?;
    point("attach: welcome sent");
    Ok(Ok(Member { seat, id }))
}

/// Answers requests until the process hangs up. What others write to its line is not heard: they have stolen it, or were
/// given it.
async fn serve(agent: &Agent, tenancy: &Tenancy, line: &Line, member: Member) -> io::Result<()> {
    let its = member.id.pid;
    loop {
        let request = line.hear(Writers::Only(its), |other| not_its_line(agent, tenancy, its, other)).await?;
        let reply = match Request::decode(&request) {
            Ok(Request::Credit { device, want }) => credit(tenancy, member, device, want).await,
            Ok(Request::Export { device, key, units }) => tenancy.export(member, device, key, units),
            Ok(Request::Import { key }) => tenancy.import(member, key),
            Ok(Request::Drop { key }) => tenancy.drop_share(member, key),
            Ok(Request::Hello { .. }) | Err(_) => Reply::Refused(Refusal::Malformed),
        };
        point("credit: answer");
        line.say(reply, &[])?;
    }
}

/// Grants what can be granted. Where a sibling has just ended that still holds memory, a refusal waits for that, a little
/// at a time: how long in all is for who asks to say.
async fn credit(tenancy: &Tenancy, member: Member, device: DeviceSlot, want: Units) -> Reply {
    let deadline = Instant::now() + A_LITTLE;
    loop {
        // Both before the books are asked, so that whoever leaves meanwhile is counted.
        let (left, departing) = (tenancy.left.notified(), tenancy.is_any_exiting());
        let reply = tenancy.credit(member, device, want);
        if reply != Reply::Exhausted || !departing {
            return reply;
        }
        if timeout_at(deadline, left).await.is_err() {
            return Reply::Later;
        }
    }
}

/// Who connected; nobody if it has ended or lives where we cannot see it.
fn peer(stream: &UnixStream) -> Option<Arc<Process>> {
    Process::peer(stream.as_fd(), peer_pid(stream)?).ok().map(Arc::new)
}

fn peer_pid(stream: &UnixStream) -> Option<HostPid> {
    let pid = getsockopt(stream, sockopt::PeerCredentials).ok()?.pid();
    u32::try_from(pid).ok().filter(|pid| *pid != 0).map(HostPid::new)
}
