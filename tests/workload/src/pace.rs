//! Launching kernels, and how fast that goes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::args::{Args, Sync};
use crate::cuda::{CudaError, Gpu};

/// More errors than this are only counted by their absence: the first ones tell the story.
const ERRORS_KEPT: usize = 8;

/// What each launching thread is to do.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Duration of a kernel in nanoseconds.
    pub(crate) kernel_ns: u64,
    /// Moment at which a thread waits for the GPU.
    pub(crate) sync: Sync,
    /// Condition of the end.
    pub(crate) until: Until,
    /// Number of threads.
    pub(crate) threads: usize,
}

/// Condition at which a launching thread ends, unless it is stopped before.
#[derive(Clone, Debug)]
pub(crate) enum Until {
    /// After so many launches.
    Launches(u64),
    /// At an instant.
    Time(Instant),
    /// At the removal of a file.
    Gone(PathBuf),
    /// At the order to stop.
    Stopped,
}

impl Plan {
    /// What the arguments ask for, if they ask for launches at all, where so many are done already.
    pub(crate) fn asked(args: &Args, done: u64) -> Option<Self> {
        let until = match (args.launches, args.seconds, &args.while_exists) {
            (Some(launches), _, _) => Until::Launches(launches.saturating_sub(done)),
            (None, Some(seconds), _) => Until::Time(Instant::now() + duration(seconds)),
            (None, None, Some(path)) => Until::Gone(path.clone()),
            (None, None, None) => return None,
        };
        Some(Self { until, ..Self::endless(args) })
    }

    /// Launching until stopped.
    pub(crate) fn endless(args: &Args) -> Self {
        Self { kernel_ns: args.kernel_ns, sync: args.sync, until: Until::Stopped, threads: args.threads }
    }
}

/// Seconds as a duration; nonsense is none.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// What launching threads write and others read.
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

    /// The first errors.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.errors.lock().expect("nothing panics while it notes an error").clone()
    }

    /// Launching ends after the kernels that are on their way.
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

/// Threads that launch.
pub(crate) struct Launchers {
    tally: Arc<Tally>,
    threads: Vec<JoinHandle<()>>,
}

impl Launchers {
    /// Starts them.
    pub(crate) fn start(gpu: &Arc<Gpu>, tally: &Arc<Tally>, plan: Plan) -> Self {
        let launch = || {
            let (gpu, tally, plan) = (Arc::clone(gpu), Arc::clone(tally), plan.clone());
            thread::spawn(move || launch(&gpu, &tally, &plan).unwrap_or_else(|error| tally.note(&error)))
        };
        Self { tally: Arc::clone(tally), threads: (0..plan.threads).map(|_| launch()).collect() }
    }

    /// Waits for their own end, and counts the launches of each second meanwhile.
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

    /// Stops them and waits until they have.
    pub(crate) fn stop(self) {
        self.tally.stop();
        for thread in self.threads {
            // A thread that panicked has printed why.
            let _ = thread.join();
        }
        self.tally.stop.store(false, Ordering::Relaxed);
    }
}

/// One thread's work.
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
