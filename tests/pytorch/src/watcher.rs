//! Memory of slices against their caps, by the device's own account.
//!
//! A sample is taken a thousand times a second and more.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use simgpu::Node as Device;

/// Pause between two samples.
const PAUSE: Duration = Duration::from_micros(400);

/// A process and the bytes that its slice may have.
pub type Caps = Vec<(u32, u64)>;

#[derive(Debug, Default)]
struct Shared {
    ended: AtomicBool,
    samples: AtomicU64,
    over: AtomicU64,
    caps: Mutex<Caps>,
}

/// Samples of a device, taken by a thread until they are ended.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    thread: JoinHandle<Duration>,
}

/// Outcome of all samples.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// Number of samples in a second, in the mean.
    pub per_second: u64,
    /// Most bytes that any process was seen to hold beyond its cap.
    pub over: u64,
}

impl Watcher {
    /// Begins to sample the first GPU of a node's file.
    #[track_caller]
    pub fn begin(gpus: &Path) -> Self {
        let device = Device::attach(gpus).expect("the node's file is there");
        let shared = Arc::new(Shared::default());
        let ours = shared.clone();
        Self { shared, thread: std::thread::spawn(move || watch(&device, &ours)) }
    }

    /// Sets the caps. Not to be called between a shrink and the program's answer to it.
    pub fn set(&self, caps: Caps) {
        *self.shared.caps.lock().unwrap_or_else(PoisonError::into_inner) = caps;
    }

    /// Ends the samples and returns what they showed.
    #[track_caller]
    pub fn end(self) -> Watched {
        self.shared.ended.store(true, Ordering::Relaxed);
        let took = self.thread.join().expect("the thread ends when it is to");
        let samples = self.shared.samples.load(Ordering::Relaxed);
        let per_second = (samples as f64 / took.as_secs_f64().max(1e-9)) as u64;
        Watched { per_second, over: self.shared.over.load(Ordering::Relaxed) }
    }
}

fn watch(device: &Device, shared: &Shared) -> Duration {
    let (begin, gpu) = (Instant::now(), device.gpu(0).expect("the node has a GPU"));
    while !shared.ended.load(Ordering::Relaxed) {
        let caps = shared.caps.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for held in device.holdings(gpu) {
            let cap = caps.iter().find(|(pid, _)| *pid == held.pid).map(|(_, cap)| *cap);
            let over = cap.map_or(0, |cap| held.memory.bytes().saturating_sub(cap));
            shared.over.fetch_max(over, Ordering::Relaxed);
        }
        shared.samples.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
    begin.elapsed()
}
