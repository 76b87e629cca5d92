//! What the driver said last of each GPU, for those who must not wait for it.
//!
//! Each GPU is asked by a thread of its own, of which there is never more than one: a driver that hangs keeps that
//! thread and nobody else.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tranche_domain::id::{GpuUuid, HostPid};
use tranche_inventory::{Driver, GpuState};

/// How long somebody waits for answers: longer than a driver that works takes.
const PATIENCE: Duration = Duration::from_secs(1);
/// A driver that takes so long for an answer does not answer.
const SILENCE: Duration = Duration::from_secs(5);

/// What was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    gpus: Mutex<BTreeMap<GpuUuid, Look>>,
    answered: Condvar,
}

/// Of one GPU.
#[derive(Clone, Debug, Default)]
struct Look {
    /// Since when it is being asked, if it is.
    asking: Option<Instant>,
    last: Option<Answer>,
}

#[derive(Clone, Debug)]
struct Answer {
    at: Instant,
    state: Option<GpuState>,
    users: Option<Vec<HostPid>>,
}

/// A GPU as it was seen last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// How long ago; nothing if never.
    pub(crate) age: Option<Duration>,
    /// Whether the driver answered, and does not keep somebody waiting for long.
    pub(crate) answers: bool,
    pub(crate) state: Option<GpuState>,
    /// Who uses it.
    pub(crate) users: Option<Vec<HostPid>>,
}

impl Sight {
    /// Asks of each GPU, and gives what is known of them after a second at the latest.
    pub(crate) fn look(&self, driver: &Arc<dyn Driver>, gpus: &[GpuUuid]) -> BTreeMap<GpuUuid, Seen> {
        gpus.iter().for_each(|gpu| self.ask(driver, *gpu));
        let looks = self.gpus();
        let waits = |looks: &mut BTreeMap<GpuUuid, Look>| {
            // Whoever did not answer in time once is not waited for again.
            let may_answer = |look: &Look| look.asking.is_some_and(|since| since.elapsed() < PATIENCE);
            gpus.iter().any(|gpu| looks.get(gpu).is_some_and(may_answer))
        };
        let answered = self.0.answered.wait_timeout_while(looks, PATIENCE, waits);
        let (looks, _) = answered.expect("nothing panics while it holds what was seen");
        gpus.iter().map(|gpu| (*gpu, looks.get(gpu).map(Look::seen).unwrap_or_default())).collect()
    }

    fn gpus(&self) -> MutexGuard<'_, BTreeMap<GpuUuid, Look>> {
        self.0.gpus.lock().expect("nothing panics while it holds what was seen")
    }

    /// Asks unless somebody does.
    fn ask(&self, driver: &Arc<dyn Driver>, gpu: GpuUuid) {
        let mut looks = self.gpus();
        let look = looks.entry(gpu).or_default();
        if look.asking.is_some() {
            return;
        }
        look.asking = Some(Instant::now());
        drop(looks);
        let (sight, driver) = (self.clone(), Arc::clone(driver));
        let asking = thread::Builder::new().name("sight".into()).spawn(move || {
            let (state, processes) = (driver.state(gpu).ok(), driver.processes(gpu).ok());
            let users = processes.map(|all| all.into_iter().map(|process| process.pid).collect());
            sight.take(gpu, Some(Answer { at: Instant::now(), state, users }));
        });
        if let Err(error) = asking {
            tracing::warn!(%error, "cannot start a thread to look at a GPU");
            self.take(gpu, None);
        }
    }

    fn take(&self, gpu: GpuUuid, answer: Option<Answer>) {
        let mut looks = self.gpus();
        let look = looks.entry(gpu).or_default();
        look.asking = None;
        look.last = answer.or_else(|| look.last.take());
        drop(looks);
        self.0.answered.notify_all();
    }
}

impl Look {
    fn seen(&self) -> Seen {
        let silent = self.asking.is_some_and(|since| since.elapsed() >= SILENCE);
        let Some(last) = self.last.clone() else { return Seen::default() };
        let answers = !silent && last.state.is_some();
        Seen { age: Some(last.at.elapsed()), answers, state: last.state, users: last.users }
    }
}
