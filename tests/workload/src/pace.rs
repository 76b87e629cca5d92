//! Launches of kernels, and their rate.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::args::{Args, Sync};
use crate::cuda::{CudaError, Gpu};

/// Number of errors kept; the first ones explain those that follow.
const ERRORS_KEPT: usize = 8;

/// Work of each launching thread.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Duration of a kernel in nanoseconds.
    pub(crate) kernel_ns: u64,
    /// Moment at which a thread waits for the GPU.
    pub(crate) sync: Sync,
    /// Condition of the end.
    pub(crate) until: Until,
    /// Number of launching threads, each with a stream.
    pub(crate) threads: usize,
}

/// Condition at which a launching thread ends, unless it is stopped before.
#[derive(Clone, Debug)]
pub(crate) enum Until {
    /// After this number of launches.
    Launches(u64),
    /// At this instant or later.
    Time(Instant),
    /// At the removal of a file.
    Gone(PathBuf),
    /// At the order to stop.
    Stopped,
}

impl Plan {
    /// Launches that the arguments request, less those done before; `None` if they request none.
    pub(crate) fn asked(args: &Args, done: u64) -> Option<Self> {
        let until = match (args.launches, args.seconds, &args.while_exists) {
            (Some(launches), _, _) => Until::Launches(launches.saturating_sub(done)),
            (None, Some(seconds), _) => Until::Time(Instant::now() + duration(seconds)),
            (None, None, Some(path)) => Until::Gone(path.clone()),
            (None, None, None) => return None,
        };
        Some(Self { until, ..Self::endless(args) })
    }

    /// A plan of launches without an end of its own.
    pub(crate) fn endless(args: &Args) -> Self {
        Self { kernel_ns: args.kernel_ns, sync: args.sync, until: Until::Stopped, threads: args.threads }
    }
}

/// Seconds as a duration; zero for an invalid number.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Counts and errors of the launching threads, and the order to stop.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    done: AtomicU64,
    stop: AtomicBool,
    errors: Mutex<Vec<String>>,
}

impl Tally {
    /// Kernels that are known to be done.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// The first errors, in words.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.errors.lock().expect("nothing panics while it notes an error").clone()
    }

    /// Makes the threads launch nothing further and wait for what they launched.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn note(&self, error: &CudaError) {
        let mut errors = self.errors.lock().expect("nothing panics while it notes an error");
        if errors.len() < ERRORS_KEPT {
            errors.push(error.to_string());
        }
    }
}

/// Running threads that launch kernels.
pub(crate) struct Launchers {
    tally: Arc<Tally>,
    threads: Vec<JoinHandle<()>>,
}

impl Launchers {
    /// Starts the threads of a plan.
    pub(crate) fn start(gpu: &Arc<Gpu>, tally: &Arc<Tally>, plan: Plan) -> Self {
        let launch = || {
            let (gpu, tally, plan) = (Arc::clone(gpu), Arc::clone(tally), plan.clone());
            thread::spawn(move || launch(&gpu, &tally, &plan).unwrap_or_else(|error| tally.note(&error)))
        };
        Self { tally: Arc::clone(tally), threads: (0..plan.threads).map(|_| launch()).collect() }
    }

    /// Waits until the threads end by themselves; returns the kernels done in each second.
    pub(crate) fn watch(self) -> Vec<u64> {
        let mut windows = Vec::new();
        let (mut seen, mut next) = (self.tally.done(), Instant::now() + Duration::from_secs(1));
        while !self.threads.iter().all(JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(2));
            if Instant::now() >= next {
                let done = self.tally.done();
                windows.push(done - seen);
                (seen, next) = (done, next + Duration::from_secs(1));
            }
        }
        windows
    }

    /// Stops the threads and waits until they have ended.
    pub(crate) fn stop(self) {
        self.tally.stop();
        for thread in self.threads {
            // A thread that panicked has printed why.
            let _ = thread.join();
        }
        self.tally.stop.store(false, Ordering::Relaxed);
    }
}

/// Work of one launching thread, until the plan's end.
fn launch(gpu: &Gpu, tally: &Tally, plan: &Plan) -> Result<(), CudaError> {
    gpu.enter()?;
    let stream = gpu.stream()?;
    let (mut launched, mut waited) = (0, 0);
    while !over(&plan.until, launched, tally) {
        stream.spin(plan.kernel_ns)?;
        launched += 1;
        if matches!(plan.sync, Sync::Every(every) if launched % every == 0) {
            stream.wait()?;
            tally.done.fetch_add(launched - waited, Ordering::Relaxed);
            waited = launched;
        }
    }
    stream.wait()?;
    tally.done.fetch_add(launched - waited, Ordering::Relaxed);
    Ok(())
}

fn over(until: &Until, launched: u64, tally: &Tally) -> bool {
    let reached = match until {
        Until::Launches(launches) => launched >= *launches,
        Until::Time(end) => Instant::now() >= *end,
        Until::Gone(path) => !path.exists(),
        Until::Stopped => false,
    };
    reached || tally.stop.load(Ordering::Relaxed)
}
