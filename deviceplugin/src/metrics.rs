//! Metrics of the plugin: devices, allocations and connections.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tranche_exposition::{Counter, Family, Figures, Gauge, Labels, MetricsPage};

use crate::config::Config;
use crate::device_states::SharedStates;
use crate::health::Health;
use crate::profile::ProfileName;

/// Time without a read of the daemon after which the plugin counts as hung.
const HANGS_AFTER: Duration = Duration::from_secs(120);

/// Outcomes of an allocation.
const OUTCOMES: [&str; 4] = [ALLOCATED, REFUSED, LOST_RACE, FAILED];
/// Each container has its slice.
pub(crate) const ALLOCATED: &str = "allocated";
/// The request is invalid, or the daemon rejects it for this GPU.
pub(crate) const REFUSED: &str = "refused";
/// The daemon had no room: another request was faster.
pub(crate) const LOST_RACE: &str = "lost_race";
/// The daemon failed or did not answer.
pub(crate) const FAILED: &str = "failed";

/// Counters since the start of the plugin.
#[derive(Debug)]
pub(crate) struct Counters {
    allocations: Family<Labels, Counter>,
    lost_races: watch::Sender<u64>,
    releases: Counter,
    registrations: Family<Labels, Counter>,
    registered: Family<Labels, Gauge>,
    streams: Family<Labels, Gauge>,
    kubernetes_events: Family<Labels, Counter>,
    since: Instant,
    started: SystemTime,
    /// Milliseconds from `since` to the last read of the daemon.
    looked: AtomicU64,
}

impl Counters {
    /// Counters at zero for all label values, so that the first increase is visible as one.
    pub(crate) fn new(config: &Config) -> Self {
        let counters = Self {
            allocations: Family::default(),
            lost_races: watch::Sender::new(0),
            releases: Counter::default(),
            registrations: Family::default(),
            registered: Family::default(),
            streams: Family::default(),
            kubernetes_events: Family::default(),
            since: Instant::now(),
            started: SystemTime::now(),
            looked: AtomicU64::new(0),
        };
        for profile in &config.profiles {
            let resource = resource(config, &profile.name);
            for outcome in OUTCOMES {
                let _ = counters.allocations.get_or_create(&with(&resource, "outcome", outcome));
            }
            let _ = counters.registrations.get_or_create(&resource);
            let _ = (counters.registered.get_or_create(&resource), counters.streams.get_or_create(&resource));
        }
        for outcome in ["posted", "failed", "dropped"] {
            let _ = counters.kubernetes_events.get_or_create(&vec![("outcome", outcome.into())]);
        }
        counters
    }

    /// Counts an allocation of a profile by its outcome.
    pub(crate) fn allocation(&self, config: &Config, profile: &ProfileName, outcome: &str) {
        let labels = with(&resource(config, profile), "outcome", outcome);
        self.allocations.get_or_create(&labels).inc();
    }

    /// Counts a device lost between publication and allocation; returns the total.
    pub(crate) fn lost_race(&self) -> u64 {
        self.lost_races.send_modify(|races| *races += 1);
        *self.lost_races.borrow()
    }

    /// Subscription to the number of lost races.
    pub(crate) fn races(&self) -> watch::Receiver<u64> {
        self.lost_races.subscribe()
    }

    pub(crate) fn release(&self) {
        self.releases.inc();
    }

    pub(crate) fn registration(&self, config: &Config, profile: &ProfileName) {
        self.registrations.get_or_create(&resource(config, profile)).inc();
        self.registered(config, profile, true);
    }

    pub(crate) fn registered(&self, config: &Config, profile: &ProfileName, is: bool) {
        self.registered.get_or_create(&resource(config, profile)).set(is.into());
    }

    /// Gauge of open streams of a profile.
    pub(crate) fn streams(&self, config: &Config, profile: &ProfileName) -> Gauge {
        self.streams.get_or_create(&resource(config, profile)).clone()
    }

    pub(crate) fn kubernetes_event(&self, outcome: &'static str) {
        self.kubernetes_events.get_or_create(&vec![("outcome", outcome.into())]).inc();
    }

    pub(crate) fn looked(&self) {
        let passed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.looked.store(passed, Ordering::Relaxed);
    }

    fn last_look(&self) -> Duration {
        self.since.elapsed().saturating_sub(Duration::from_millis(self.looked.load(Ordering::Relaxed)))
    }
}

fn resource(config: &Config, profile: &ProfileName) -> Labels {
    vec![("resource", config.resource(profile))]
}

fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_owned()));
    labels
}

/// Source of the plugin's metrics and probes.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) config: Config,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pictures: watch::Receiver<SharedStates>,
}

impl Published {
    fn picture(&self) -> SharedStates {
        Arc::clone(&self.pictures.borrow())
    }

    fn devices(&self) -> Vec<(Labels, u64)> {
        let picture = self.picture();
        let mut rows = Vec::new();
        for profile in &self.config.profiles {
            let ours = || picture.health.iter().filter(|(device, _)| device.profile == profile.name);
            let resource = resource(&self.config, &profile.name);
            for state in ["free", "in_use", "taken", "broken"] {
                let count = ours()
                    .filter(|(device, health)| self::state(health, picture.in_use.contains(device)) == state);
                rows.push((with(&resource, "state", state), count.count() as u64));
            }
        }
        rows
    }
}

/// State label: a free device without room is taken; one with a failed GPU is broken, used or not.
const fn state(health: &Health, in_use: bool) -> &'static str {
    match health {
        Health::Broken(_) => "broken",
        Health::Taken(_) => "taken",
        Health::Healthy if in_use => "in_use",
        Health::Healthy => "free",
    }
}

impl Published {
    /// Figures of the plugin's connections: the kubelet, the daemon, Kubernetes.
    fn write_links(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let counters = &self.counters;
        page.kept(
            "tranche_deviceplugin_releases",
            "Slices ended because their pods were gone",
            &counters.releases,
        )?;
        page.kept(
            "tranche_deviceplugin_registrations",
            "Registrations with a kubelet",
            &counters.registrations,
        )?;
        page.kept(
            "tranche_deviceplugin_registered",
            "Whether the kubelet that is there knows the resource",
            &counters.registered,
        )?;
        page.kept(
            "tranche_deviceplugin_kubelet_streams",
            "Kubelets that listen to a resource's devices",
            &counters.streams,
        )?;
        page.gauge(
            "tranche_deviceplugin_daemon_up",
            "Whether tranched answered when it was last asked",
            u64::from(self.picture().daemon),
        )?;
        page.gauge(
            "tranche_deviceplugin_last_look_age_seconds",
            "How long ago the plugin last asked tranched, whatever it answered",
            counters.last_look().as_secs_f64(),
        )?;
        page.kept(
            "tranche_deviceplugin_kubernetes_events",
            "Kubernetes events by what became of them: posted, failed, dropped (too many)",
            &counters.kubernetes_events,
        )
    }
}

impl Figures for Published {
    fn write(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let counters = &self.counters;
        page.build("tranche_deviceplugin_build", "Version of the plugin")?;
        let started = counters.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        page.gauge(
            "tranche_deviceplugin_start_time_seconds",
            "When the plugin started, in Unix time",
            started,
        )?;
        page.gauges(
            "tranche_deviceplugin_devices",
            "Devices by what they are good for: free, in_use, taken (others leave no room for it), broken (its GPU does \
             not work)",
            self.devices(),
        )?;
        page.kept(
            "tranche_deviceplugin_allocations",
            "Allocations by how they ended",
            &counters.allocations,
        )?;
        page.counter(
            "tranche_deviceplugin_lost_races",
            "Allocations of devices that were free when offered and taken when allocated",
            *counters.lost_races.borrow(),
        )?;
        self.write_links(page)
    }

    fn alive(&self) -> Result<(), String> {
        match self.counters.last_look() {
            fine if fine < HANGS_AFTER => Ok(()),
            long => Err(format!("the plugin has looked at nothing for {} s", long.as_secs())),
        }
    }

    fn ready(&self) -> Result<(), String> {
        if !self.picture().daemon {
            return Err("tranched does not answer".into());
        }
        let unknown = |name: &&ProfileName| {
            self.counters.registered.get_or_create(&resource(&self.config, name)).get() == 0
        };
        match self.config.profiles.iter().map(|profile| &profile.name).find(unknown) {
            Some(name) => Err(format!("no kubelet knows {} yet", self.config.resource(name))),
            None => Ok(()),
        }
    }
}
