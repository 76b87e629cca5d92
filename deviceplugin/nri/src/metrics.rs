//! The plugin's metrics and probes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tranche_exposition::{Counter, Family, Figures, Labels, MetricsPage};

/// Outcomes of containers that request a part of a GPU.
const OUTCOMES: [&str; 3] = ["sliced", "refused", "failed"];

/// Figures since the start of the plugin.
#[derive(Debug, Default)]
pub(crate) struct PluginCounters {
    containers: Family<Labels, Counter>,
    ended: Counter,
    unfenced: AtomicU64,
    registered: AtomicBool,
    daemon: AtomicBool,
}

impl PluginCounters {
    /// Counters at zero for all label values, so that the first increase is visible as one.
    pub(crate) fn new() -> Self {
        let counters = Self::default();
        for word in OUTCOMES {
            let _ = counters.containers.get_or_create(&outcome(word));
        }
        counters
    }

    /// Counts a container by its outcome: `sliced`, `refused`, `failed`.
    pub(crate) fn container(&self, word: &str) {
        self.containers.get_or_create(&outcome(word)).inc();
    }

    pub(crate) fn ended(&self) {
        self.ended.inc();
    }

    /// Notes the containers that run without the slice that they request.
    pub(crate) fn unfenced(&self, count: usize) {
        self.unfenced.store(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn registered(&self, is: bool) {
        self.registered.store(is, Ordering::Relaxed);
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Relaxed)
    }

    pub(crate) fn daemon(&self, answered: bool) {
        self.daemon.store(answered, Ordering::Relaxed);
    }
}

fn outcome(word: &str) -> Labels {
    vec![("outcome", word.to_owned())]
}

/// Source of the plugin's metrics and probes.
#[derive(Debug)]
pub(crate) struct PluginFigures(pub(crate) Arc<PluginCounters>);

impl Figures for PluginFigures {
    fn write(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let counters = &self.0;
        page.build("tranche_nriplugin_build", "Version of the plugin")?;
        page.kept(
            "tranche_nriplugin_containers",
            "Containers that request a part of a GPU, by outcome",
            &counters.containers,
        )?;
        page.kept("tranche_nriplugin_ended", "Slices ended because their pods are gone", &counters.ended)?;
        page.gauge(
            "tranche_nriplugin_unfenced_containers",
            "Containers that ran without the slice that they request when the plugin registered",
            counters.unfenced.load(Ordering::Relaxed),
        )?;
        let states = [
            (
                "tranche_nriplugin_registered",
                "Whether the container runtime calls the plugin",
                &counters.registered,
            ),
            (
                "tranche_nriplugin_daemon_up",
                "Whether tranched answered when it was last read",
                &counters.daemon,
            ),
        ];
        for (name, help, value) in states {
            page.gauge(name, help, u64::from(value.load(Ordering::Relaxed)))?;
        }
        Ok(())
    }

    fn alive(&self) -> Result<(), String> {
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        let states = [
            (&self.0.daemon, "tranched does not answer"),
            (&self.0.registered, "the container runtime has not taken the plugin: the log has the reason"),
        ];
        let missing = states.into_iter().find(|(is, _)| !is.load(Ordering::Relaxed));
        missing.map_or(Ok(()), |(_, why)| Err(why.to_owned()))
    }
}
