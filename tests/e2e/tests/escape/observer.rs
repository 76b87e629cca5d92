//! Watches the simulated GPUs themselves, all the while: nobody under test is asked.
//!
//! Looks show which slice holds what at some instants. Besides, each GPU remembers the most that was in use at any
//! instant, which says all where one slice has it to itself.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::unistd::{Pid, getpgid};
use tranche_domain::units::Bytes;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(1);

/// Looks at what the processes of one slice hold: those of one process group.
#[derive(Debug)]
pub(crate) struct Observer {
    devices: simgpu::Node,
    group: u32,
    /// Groups of pids that were seen, so that a process on its way out still counts for its slice.
    known: Mutex<HashMap<u32, bool>>,
}

/// What a slice holds of a GPU at an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// All of it.
    pub(crate) memory: Bytes,
    /// Contexts.
    pub(crate) contexts: u64,
}

impl Observer {
    #[track_caller]
    pub(crate) fn of(gpus: &Path, group: u32) -> Self {
        let devices = simgpu::Node::attach(gpus).expect("the node's file is there");
        for gpu in devices.gpus() {
            devices.take_used_high(gpu);
        }
        Self { devices, group, known: Mutex::default() }
    }

    /// What the slice holds of each GPU, at one instant each.
    pub(crate) fn held(&self) -> Vec<Held> {
        let of = |gpu| {
            let holdings = self.devices.holdings(gpu).into_iter().filter(|held| self.is_ours(held.pid));
            holdings.fold(Held { memory: Bytes::ZERO, contexts: 0 }, |sum, held| Held {
                memory: sum.memory.saturating_add(Bytes::new(held.memory.bytes())),
                contexts: sum.contexts + held.contexts,
            })
        };
        self.devices.gpus().map(of).collect()
    }

    /// By how much a pool grows at least.
    pub(crate) fn pool_step(&self) -> Bytes {
        Bytes::mib(self.devices.spec().driver.pool_step_mib)
    }

    /// What a context costs on the first GPU.
    pub(crate) fn context(&self) -> Bytes {
        let first = self.devices.gpus().next().expect("a node has a GPU");
        Bytes::new(self.devices.gpu_spec(first).model.context().bytes())
    }

    /// The most that anybody held of one GPU at any instant since this observer began.
    fn ever(&self) -> Bytes {
        let highs = self.devices.gpus().map(|gpu| Bytes::new(self.devices.take_used_high(gpu).bytes()));
        highs.max().unwrap_or(Bytes::ZERO)
    }

    fn is_ours(&self, pid: u32) -> bool {
        let mut known = self.known.lock().expect("no look panics");
        *known.entry(pid).or_insert_with(|| {
            let pid = Pid::from_raw(pid.cast_signed());
            getpgid(Some(pid)).is_ok_and(|group| group.as_raw().cast_unsigned() == self.group)
        })
    }
}

/// An observer at work.
#[derive(Debug)]
pub(crate) struct Watch {
    observer: Arc<Observer>,
    over: Arc<AtomicBool>,
    looking: JoinHandle<(Bytes, u64)>,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The most that the slice held of one GPU whenever it was looked at.
    pub(crate) most: Bytes,
    /// Number of such times.
    pub(crate) looks: u64,
    /// The most that was in use of one GPU at any instant, by anybody.
    pub(crate) ever: Bytes,
}

impl Watch {
    /// Looks again and again from now on.
    pub(crate) fn begin(observer: Observer) -> Self {
        let (observer, over) = (Arc::new(observer), Arc::new(AtomicBool::new(false)));
        let (theirs, until) = (observer.clone(), over.clone());
        let looking = std::thread::spawn(move || {
            let (mut most, mut looks) = (Bytes::ZERO, 0);
            while !until.load(Relaxed) {
                most = theirs.held().iter().map(|held| held.memory).fold(most, Bytes::max);
                looks += 1;
                std::thread::sleep(INTERVAL);
            }
            (most, looks)
        });
        Self { observer, over, looking }
    }

    /// Who looks.
    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Ends looking.
    pub(crate) fn end(self) -> Seen {
        self.over.store(true, Relaxed);
        let (most, looks) = self.looking.join().expect("looking ends");
        Seen { most, looks, ever: self.observer.ever() }
    }
}
