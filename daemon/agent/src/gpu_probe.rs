//! GPU probe: the driver's last answer for each GPU, for callers that must not block on the driver.
//!
//! Each GPU is queried by a thread of its own, at most one at a time: a driver that hangs blocks that thread alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tranche_domain::id::{GpuUuid, HostPid};
use tranche_inventory::{Driver, GpuState};

/// Longest wait for answers; a working driver takes less.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time after which a pending query counts as unanswered.
const SILENCE: Duration = Duration::from_secs(5);

/// The last answers, shared with the querying threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuProbe(Arc<ProbeShared>);

#[derive(Debug, Default)]
struct ProbeShared {
    gpus: Mutex<BTreeMap<GpuUuid, ProbeQuery>>,
    answered: Condvar,
}

/// State of one GPU's queries.
#[derive(Clone, Debug, Default)]
struct ProbeQuery {
    /// Start of the pending query.
    pending_since: Option<Instant>,
    last: Option<ProbeReply>,
}

#[derive(Clone, Debug)]
struct ProbeReply {
    at: Instant,
    state: Option<GpuState>,
    users: Option<Vec<HostPid>>,
}

/// Last known state of a GPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuStatus {
    /// Age of the answer; `None` if there has been none.
    pub(crate) age: Option<Duration>,
    /// False while the driver fails, or keeps a query waiting for longer than [`SILENCE`].
    pub(crate) answers: bool,
    pub(crate) state: Option<GpuState>,
    /// Processes that use the GPU, or `None` if the driver did not list them.
    pub(crate) users: Option<Vec<HostPid>>,
}

impl GpuProbe {
    /// Queries each GPU; returns what is known after at most [`PATIENCE`].
    pub(crate) fn query(&self, driver: &Arc<dyn Driver>, gpus: &[GpuUuid]) -> BTreeMap<GpuUuid, GpuStatus> {
        gpus.iter().for_each(|gpu| self.start_query(driver, *gpu));
        let queries = self.gpus();
        let is_waiting = |queries: &mut BTreeMap<GpuUuid, ProbeQuery>| {
            // A GPU that missed the deadline once is not waited for again.
            let may_answer =
                |query: &ProbeQuery| query.pending_since.is_some_and(|since| since.elapsed() < PATIENCE);
            gpus.iter().any(|gpu| queries.get(gpu).is_some_and(may_answer))
        };
        let answered = self.0.answered.wait_timeout_while(queries, PATIENCE, is_waiting);
        let (queries, _) = answered.expect("nothing panics while it holds what was seen");
        gpus.iter().map(|gpu| (*gpu, queries.get(gpu).map(ProbeQuery::status).unwrap_or_default())).collect()
    }

    fn gpus(&self) -> MutexGuard<'_, BTreeMap<GpuUuid, ProbeQuery>> {
        self.0.gpus.lock().expect("nothing panics while it holds what was seen")
    }

    /// Starts a query, unless one is pending.
    fn start_query(&self, driver: &Arc<dyn Driver>, gpu: GpuUuid) {
        let mut queries = self.gpus();
        let query = queries.entry(gpu).or_default();
        if query.pending_since.is_some() {
            return;
        }
        query.pending_since = Some(Instant::now());
        drop(queries);
        let (probe, driver) = (self.clone(), Arc::clone(driver));
        let asking = thread::Builder::new().name("gpu-probe".into()).spawn(move || {
            let (state, processes) = (driver.state(gpu).ok(), driver.processes(gpu).ok());
            let users = processes.map(|all| all.into_iter().map(|process| process.pid).collect());
            probe.take(gpu, Some(ProbeReply { at: Instant::now(), state, users }));
        });
        if let Err(error) = asking {
            tracing::warn!(%error, "cannot start a thread to look at a GPU");
            self.take(gpu, None);
        }
    }

    fn take(&self, gpu: GpuUuid, answer: Option<ProbeReply>) {
        let mut queries = self.gpus();
        let query = queries.entry(gpu).or_default();
        query.pending_since = None;
        query.last = answer.or_else(|| query.last.take());
        drop(queries);
        self.0.answered.notify_all();
    }
}

impl ProbeQuery {
    fn status(&self) -> GpuStatus {
        let silent = self.pending_since.is_some_and(|since| since.elapsed() >= SILENCE);
        let Some(last) = self.last.clone() else { return GpuStatus::default() };
        let answers = !silent && last.state.is_some();
        GpuStatus { age: Some(last.at.elapsed()), answers, state: last.state, users: last.users }
    }
}
