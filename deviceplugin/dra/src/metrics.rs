//! The driver's metrics and probes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tranche_exposition::{Counter, Family, Figures, Histogram, Labels, MetricsPage};

/// Time without a read of the daemon after which the driver counts as hung.
const HANGS_AFTER: Duration = Duration::from_secs(120);

/// Bounds of the times of preparation, in seconds.
const TIMES: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0];

/// Figures since the start of the driver.
#[derive(Debug)]
pub(crate) struct DriverCounters {
    prepares: Family<Labels, Counter>,
    /// Times of claims that were prepared.
    times: Histogram,
    unprepares: Family<Labels, Counter>,
    publications: Family<Labels, Counter>,
    orphans: Counter,
    registered: AtomicBool,
    published: AtomicBool,
    daemon: AtomicBool,
    since: Instant,
    /// Milliseconds from `since` to the last read of the daemon.
    looked: AtomicU64,
}

impl DriverCounters {
    /// Counters at zero for all label values, so that the first increase is visible as one.
    pub(crate) fn new() -> Self {
        let counters = Self {
            prepares: Family::default(),
            times: Histogram::new(TIMES),
            unprepares: Family::default(),
            publications: Family::default(),
            orphans: Counter::default(),
            registered: AtomicBool::new(false),
            published: AtomicBool::new(false),
            daemon: AtomicBool::new(false),
            since: Instant::now(),
            looked: AtomicU64::new(0),
        };
        for word in ["prepared", "refused", "failed"] {
            let _ = counters.prepares.get_or_create(&outcome(word));
        }
        for family in [&counters.unprepares, &counters.publications] {
            for word in ["done", "failed"] {
                let _ = family.get_or_create(&outcome(word));
            }
        }
        counters
    }

    /// Counts a claim by its outcome: `prepared`, `refused`, `failed`.
    pub(crate) fn prepare(&self, word: &str) {
        self.prepares.get_or_create(&outcome(word)).inc();
    }

    /// Counts a preparation that succeeded by its time.
    pub(crate) fn prepared_within(&self, time: Duration) {
        self.times.observe(time.as_secs_f64());
    }

    pub(crate) fn unprepare(&self, succeeded: bool) {
        self.unprepares.get_or_create(&outcome(done(succeeded))).inc();
    }

    /// Counts an attempt to publish another pool.
    pub(crate) fn publication(&self, succeeded: bool) {
        self.publications.get_or_create(&outcome(done(succeeded))).inc();
    }

    /// Notes whether the pool is published as it is.
    pub(crate) fn published(&self, is: bool) {
        self.published.store(is, Ordering::Relaxed);
    }

    pub(crate) fn orphan(&self) {
        self.orphans.inc();
    }

    pub(crate) fn registered(&self, is: bool) {
        self.registered.store(is, Ordering::Relaxed);
    }

    /// Notes a read of the daemon.
    pub(crate) fn looked(&self, answered: bool) {
        let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.looked.store(passed, Ordering::Relaxed);
        self.daemon.store(answered, Ordering::Relaxed);
    }

    fn last_look(&self) -> Duration {
        self.since.elapsed().saturating_sub(Duration::from_millis(self.looked.load(Ordering::Relaxed)))
    }
}

fn outcome(word: &str) -> Labels {
    vec![("outcome", word.to_owned())]
}

const fn done(succeeded: bool) -> &'static str {
    if succeeded { "done" } else { "failed" }
}

/// Source of the driver's metrics and probes.
#[derive(Debug)]
pub(crate) struct DriverFigures(pub(crate) Arc<DriverCounters>);

impl Figures for DriverFigures {
    fn write(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let counters = &self.0;
        page.build("tranche_dradriver_build", "Version of the driver")?;
        page.kept(
            "tranche_dradriver_prepares",
            "Claims that the kubelet wanted prepared, by outcome",
            &counters.prepares,
        )?;
        page.kept(
            "tranche_dradriver_prepare_seconds",
            "Time from the kubelet's request to the slice, of claims that were prepared",
            &counters.times,
        )?;
        page.kept(
            "tranche_dradriver_unprepares",
            "Claims that the kubelet wanted unprepared, by outcome",
            &counters.unprepares,
        )?;
        page.kept(
            "tranche_dradriver_publications",
            "Attempts to publish another pool, by outcome",
            &counters.publications,
        )?;
        page.kept("tranche_dradriver_orphans", "Slices ended because no claim had them", &counters.orphans)?;
        let gauges = [
            (
                "tranche_dradriver_registered",
                "Whether the kubelet has taken the registration",
                &counters.registered,
            ),
            (
                "tranche_dradriver_daemon_up",
                "Whether tranched answered when it was last read",
                &counters.daemon,
            ),
        ];
        for (name, help, value) in gauges {
            page.gauge(name, help, u64::from(value.load(Ordering::Relaxed)))?;
        }
        page.gauge(
            "tranche_dradriver_last_look_age_seconds",
            "Time since the driver last read tranched, whatever it answered",
            counters.last_look().as_secs_f64(),
        )
    }

    fn alive(&self) -> Result<(), String> {
        match self.0.last_look() {
            fine if fine < HANGS_AFTER => Ok(()),
            long => Err(format!("the driver has looked at nothing for {} s", long.as_secs())),
        }
    }

    fn ready(&self) -> Result<(), String> {
        let states = [
            (&self.0.daemon, "tranched does not answer"),
            (&self.0.published, "the node's GPUs are not published: the log has the reason"),
            (&self.0.registered, "no kubelet has taken the registration yet"),
        ];
        let missing = states.into_iter().find(|(is, _)| !is.load(Ordering::Relaxed));
        missing.map_or(Ok(()), |(_, why)| Err(why.to_owned()))
    }
}
