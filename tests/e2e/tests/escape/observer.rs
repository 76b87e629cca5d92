//! Samples of the simulated GPUs themselves, independent of the code under test.
//!
//! A sample shows the memory that a slice holds at an instant. Besides, each GPU records the most memory that was in
//! use at any instant, which is conclusive where a slice has the GPU to itself.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::unistd::{Pid, getpgid};
use tranche_domain::units::Bytes;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(1);

/// Reader of the memory of one slice, whose processes are one process group.
#[derive(Debug)]
pub(crate) struct Observer {
    devices: simgpu::Node,
    group: u32,
    /// True for each pid of the group; kept, so that a process that is ending still counts for its slice.
    known: Mutex<HashMap<u32, bool>>,
}

/// Memory of a slice on a GPU at an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Contexts, code and allocations.
    pub(crate) memory: Bytes,
    /// Number of contexts on the GPU.
    pub(crate) contexts: u64,
}

impl Observer {
    #[track_caller]
    pub(crate) fn of(gpus: &Path, group: u32) -> Self {
        let devices = simgpu::Node::attach(gpus).expect("the node's file exists");
        for gpu in devices.gpus() {
            devices.take_used_high(gpu);
        }
        Self { devices, group, known: Mutex::default() }
    }

    /// Memory of the slice on each GPU, at one instant for each.
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

    /// Least growth of a pool.
    pub(crate) fn pool_step(&self) -> Bytes {
        Bytes::mib(self.devices.spec().driver.pool_step_mib)
    }

    /// Memory of a context on the first GPU.
    pub(crate) fn context(&self) -> Bytes {
        let first = self.devices.gpus().next().expect("a node has a GPU");
        Bytes::new(self.devices.gpu_spec(first).model.context().bytes())
    }

    /// Most memory that was in use on one GPU at any instant since this observer began.
    fn ever(&self) -> Bytes {
        let highs = self.devices.gpus().map(|gpu| Bytes::new(self.devices.take_used_high(gpu).bytes()));
        highs.max().unwrap_or(Bytes::ZERO)
    }

    fn is_ours(&self, pid: u32) -> bool {
        let mut known = self.known.lock().expect("no sample panics");
        *known.entry(pid).or_insert_with(|| {
            let pid = Pid::from_raw(pid.cast_signed());
            getpgid(Some(pid)).is_ok_and(|group| group.as_raw().cast_unsigned() == self.group)
        })
    }
}

/// A thread that takes samples until it is ended.
#[derive(Debug)]
pub(crate) struct Watch {
    observer: Arc<Observer>,
    over: Arc<AtomicBool>,
    looking: JoinHandle<(Bytes, u64)>,
}

/// Result of the samples of a watch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Most memory of the slice on one GPU in a sample.
    pub(crate) most: Bytes,
    /// Number of samples that were taken.
    pub(crate) looks: u64,
    /// Most memory that was in use on one GPU at any instant, by any process.
    pub(crate) ever: Bytes,
}

impl Watch {
    /// Starts a thread that samples every millisecond.
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

    /// The observer whose samples are taken.
    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Ends the samples and returns their result.
    pub(crate) fn end(self) -> Seen {
        self.over.store(true, Relaxed);
        let (most, looks) = self.looking.join().expect("no sample panics");
        Seen { most, looks, ever: self.observer.ever() }
    }
}
