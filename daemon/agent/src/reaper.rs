//! What dead processes held: free again once the GPU has really let go of it, and not a moment sooner.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tranche_domain::id::{GpuUuid, HostPid};
use tranche_domain::slice::{ProcessId, Seat};
use tranche_inventory::Driver;

use crate::agent::Agent;
use crate::process::Process;
use crate::tenancy::Tenancy;

/// How long NVML may list a process that has ended, or has become another program.
const LISTED_AT_MOST: Duration = Duration::from_secs(3);
/// The first pause between two looks; each is half as long again as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Frees a member's seat when it has ended. Without a handle it has ended already.
pub(crate) fn watch_member(
    agent: &Arc<Agent>,
    tenancy: &Arc<Tenancy>,
    seat: Seat,
    id: ProcessId,
    handle: Option<Arc<Process>>,
) {
    let (agent, tenancy) = (Arc::clone(agent), Arc::clone(tenancy));
    tokio::spawn(async move {
        if let Some(process) = handle {
            wait_for_end(&process).await;
        }
        let ended = Instant::now();
        if wait_until_unlisted(&agent, &tenancy, id.pid).await == Listed::Still {
            tracing::warn!(
                slice = %tenancy.name, pid = %id.pid,
                "the driver still lists a process that has ended; its memory is counted as free"
            );
        }
        let freed = tenancy.vacate(seat, id);
        let after_us = ended.elapsed().as_micros();
        tracing::info!(slice = %tenancy.name, pid = %id.pid, %freed, after_us, "reclaimed");
        agent.note_excess(&tenancy);
        agent.end_if_over(&tenancy);
    });
}

/// Gives a member that says it has become another program an empty account, if the GPU bears it out: while the
/// driver lists the process, it may well hold what it was charged for.
pub(crate) async fn begin_anew(agent: &Agent, tenancy: &Tenancy, seat: Seat, pid: HostPid) {
    if wait_until_unlisted(agent, tenancy, pid).await == Listed::No {
        let freed = tenancy.renew(seat);
        tracing::info!(slice = %tenancy.name, %pid, %freed, "became another program");
    }
}

/// Forgets a root when it has ended.
pub(crate) fn watch_root(agent: &Arc<Agent>, tenancy: &Arc<Tenancy>, root: Arc<Process>) {
    let (agent, tenancy) = (Arc::clone(agent), Arc::clone(tenancy));
    tokio::spawn(async move {
        wait_for_end(&root).await;
        tenancy.root_gone(root.id);
        tenancy.left.notify_waiters();
        if !agent.end_if_over(&tenancy) {
            agent.save();
        }
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

/// Whether the driver lists a process after all patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    Still,
    No,
}

async fn wait_until_unlisted(agent: &Agent, tenancy: &Tenancy, pid: HostPid) -> Listed {
    let deadline = Instant::now() + LISTED_AT_MOST;
    let mut pause = FIRST_PAUSE;
    while is_listed(&agent.driver, &tenancy.gpus, pid).await {
        if Instant::now() >= deadline {
            return Listed::Still;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
    Listed::No
}

/// A GPU that does not answer lists nobody: there is nothing to wait for.
async fn is_listed(driver: &Arc<dyn Driver>, gpus: &[GpuUuid], pid: HostPid) -> bool {
    let (driver, gpus) = (Arc::clone(driver), gpus.to_vec());
    let lists = move |gpu: &GpuUuid| {
        driver.processes(*gpu).is_ok_and(|processes| processes.iter().any(|process| process.pid == pid))
    };
    tokio::task::spawn_blocking(move || gpus.iter().any(lists)).await.unwrap_or(false)
}
