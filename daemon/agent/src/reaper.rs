//! What dead processes held: free again once the GPU has really let go of it, and not a moment sooner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tranche_domain::id::{GpuUuid, HostPid};
use tranche_domain::slice::{ProcessId, Seat};
use tranche_inventory::Driver;
use tranche_shm::crash::point;

use crate::agent::Agent;
use crate::process::Process;
use crate::tenancy::Tenancy;

/// How long the driver usually lists a process that has ended, or has become another program, and more.
pub(crate) const LISTED_AT_MOST: Duration = Duration::from_secs(3);
/// The pause where it lists a process that has ended for longer than that.
const LONG_PAUSE: Duration = Duration::from_millis(500);
/// The first pause between two looks; each is half as long again as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// The least time between two looks at the same GPU, which take the driver longer than all else at a process's end.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Frees a member's seat when it has ended. Without a handle it has ended already.
pub(crate) fn watch_member(
    agent: &Arc<Agent>,
    tenancy: &Arc<Tenancy>,
    seat: Seat,
    id: ProcessId,
    handle: Option<Arc<Process>>,
) {
    let (work, agent, tenancy) = (tenancy.attendant.work(), Arc::clone(agent), Arc::clone(tenancy));
    work.spawn(async move {
        if let Some(process) = handle {
            wait_for_end(&process).await;
        }
        tenancy.departs(id);
        point("reap: ended");
        tenancy.abandon_work(seat);
        agent.governor.wake();
        let ended = Instant::now();
        if wait_until_unlisted(&agent, &tenancy, id.pid).await == Listed::Still {
            wait_out(&agent, &tenancy, id).await;
        }
        point("reap: free");
        let was_over = tenancy.is_over();
        let freed = tenancy.vacate(seat, id);
        let after_us = ended.elapsed().as_micros();
        tracing::info!(slice = %tenancy.name, pid = %id.pid, %freed, after_us, "reclaimed");
        // What is beyond the slice may have to wait for the disk.
        if was_over || tenancy.is_deserted() {
            tokio::task::spawn_blocking(move || {
                agent.note_excess(&tenancy);
                agent.end_if_over(&tenancy);
            });
        }
    });
}

/// Waits for as long as the driver lists a process that has ended. Its memory is not free, whatever the reason, and
/// nobody else must be promised it. Where its pid is another process's by now, nothing follows from the listing.
async fn wait_out(agent: &Arc<Agent>, tenancy: &Tenancy, id: ProcessId) {
    let (pid, name) = (id.pid, &tenancy.name);
    let note = format!(
        "process {pid} of slice {name} has ended, but the driver still lists it: its memory stays charged until the \
         driver lets go of it; end what the process left running, if anything"
    );
    // What is beyond the slice may have to wait for the disk.
    let (teller, told) = (Arc::clone(agent), note.clone());
    let _ = tokio::task::spawn_blocking(move || teller.note(told)).await;
    let is_anothers = || Process::open(pid).is_ok_and(|now| now.id != id);
    while look(agent, &tenancy.gpus, pid).await == Listed::Still && !is_anothers() {
        tokio::time::sleep(LONG_PAUSE).await;
    }
    let teller = Arc::clone(agent);
    let _ = tokio::task::spawn_blocking(move || teller.withdraw(&note)).await;
}

/// Gives a member that says it has become another program an empty account, if the GPUs bear it out: while the
/// driver lists the process, or does not answer, it may well hold what it was charged for.
pub(crate) async fn begin_anew(agent: &Agent, tenancy: &Tenancy, seat: Seat, pid: HostPid) {
    if wait_until_unlisted(agent, tenancy, pid).await == Listed::No {
        let freed = tenancy.renew(seat);
        tracing::info!(slice = %tenancy.name, %pid, %freed, "became another program");
    }
}

/// Forgets a root when it has ended.
pub(crate) fn watch_root(agent: &Arc<Agent>, tenancy: &Arc<Tenancy>, root: Arc<Process>) {
    let (work, agent, tenancy) = (tenancy.attendant.work(), Arc::clone(agent), Arc::clone(tenancy));
    work.spawn(async move {
        wait_for_end(&root).await;
        tenancy.root_gone(root.id);
        tenancy.left.notify_waiters();
        tokio::task::spawn_blocking(move || {
            if !agent.end_if_over(&tenancy) {
                agent.save();
            }
        });
    });
}

/// By event; where the runtime cannot watch the handle, by looking.
async fn wait_for_end(process: &Process) {
    if let Err(error) = process.ended().await {
        tracing::warn!(pid = %process.id.pid, %error, "cannot watch the process; looking from time to time");
    }
    while process.is_alive() {
        tokio::time::sleep(LONGEST_PAUSE).await;
    }
}

/// What the driver says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// It is on one of the slice's GPUs.
    Still,
    /// It is on none of them.
    No,
    /// It is on none that answers; not all do.
    Unknown,
}

/// What the driver says after all patience.
async fn wait_until_unlisted(agent: &Agent, tenancy: &Tenancy, pid: HostPid) -> Listed {
    let deadline = Instant::now() + LISTED_AT_MOST;
    let mut pause = FIRST_PAUSE;
    loop {
        match look(agent, &tenancy.gpus, pid).await {
            Listed::Still if Instant::now() < deadline => tokio::time::sleep(pause).await,
            answer => return answer,
        }
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

async fn look(agent: &Agent, gpus: &[GpuUuid], pid: HostPid) -> Listed {
    let mut so_far = Listed::No;
    for gpu in gpus {
        match agent.listings.after(&agent.driver, *gpu, Instant::now()).await {
            Some(pids) if pids.contains(&pid) => return Listed::Still,
            Some(_) => {}
            None => so_far = Listed::Unknown,
        }
    }
    so_far
}

/// Whom the driver lists on each GPU, and when it was asked: where a thousand processes end at once, one answer
/// does for all who wait for it.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<BTreeMap<GpuUuid, Arc<tokio::sync::Mutex<Listing>>>>);

/// Nothing where the GPU does not answer.
type Pids = Option<Arc<BTreeSet<HostPid>>>;

#[derive(Debug, Default)]
struct Listing {
    asked: Option<Instant>,
    pids: Pids,
}

impl Listings {
    /// Whom the driver lists, asked no earlier than `since`.
    async fn after(&self, driver: &Arc<dyn Driver>, gpu: GpuUuid, since: Instant) -> Pids {
        let listing = {
            let mut listings = self.0.lock().expect("nothing panics while it holds the listings");
            Arc::clone(listings.entry(gpu).or_default())
        };
        let mut listing = listing.lock().await;
        if listing.asked.is_none_or(|asked| asked < since) {
            // Where many end one after the other, those who come meanwhile are answered with the first of them.
            let rest = listing.asked.map(|asked| BETWEEN_LOOKS.saturating_sub(asked.elapsed()));
            if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
                tokio::time::sleep(rest).await;
            }
            let (driver, asked) = (Arc::clone(driver), Instant::now());
            let ask = move || {
                let listed = driver.processes(gpu).ok()?;
                Some(Arc::new(listed.into_iter().map(|process| process.pid).collect()))
            };
            let pids = tokio::task::spawn_blocking(ask).await.unwrap_or_default();
            *listing = Listing { asked: Some(asked), pids };
        }
        listing.pids.clone()
    }
}
