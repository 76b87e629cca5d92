//! Main loop: reads the daemon, publishes its GPUs, and keeps the sockets.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Server;
use tonic::transport::server::Router;
use tranche_adapter::LoggedProblems;
use tranche_domain::view::{GpuView, NodeView};
use tranche_exposition::{BoundListener, ListenError};
use tranche_kubelet::dra::dra_plugin_server::DraPluginServer;
use tranche_kubelet::drahealth as health;
use tranche_kubelet::drahealth::dra_resource_health_server::DraResourceHealthServer;
use tranche_kubelet::pluginregistration::registration_server::RegistrationServer;
use tranche_kubelet::socket::ServedSocket;

use crate::condition::{Ailment, GpuConditions};
use crate::config::DriverConfig;
use crate::device;
use crate::driver::DraDriver;
use crate::labels;
use crate::metrics::DriverFigures;
use crate::orphans;
use crate::pool::{self, PoolPart};
use crate::profile;
use crate::publisher::{Publication, Publisher};
use crate::service::{ClaimService, HealthService, RegistrationService, SharedHealth};

/// Interval of reading the daemon.
const LOOK: Duration = Duration::from_secs(2);
/// Time after the preparation of a claim within which the kubelet usually lists its pod.
const LISTED: Duration = Duration::from_millis(300);
/// Interval of comparing what is published.
const COMPARE: Duration = Duration::from_secs(30);
/// Interval of looking for slices without claims.
const ORPHANS: Duration = Duration::from_secs(300);
/// Time limit of what the API server has to do at a time.
const PATIENCE: Duration = Duration::from_secs(15);
/// Complaint about an API server that leaves out fields.
const DROPPED: &str = "the API server left out a part of what was published: claims need the features \
    DRAConsumableCapacity, DRADeviceTaints and, with profiles, DRAPartitionableDevices, which are on by default \
    from Kubernetes 1.36 on";
/// Interval of repeating the health of devices, and the time for which it counts.
const HEALTH: Duration = Duration::from_secs(10);
const HEALTH_LASTS_S: i64 = 30;

/// Reason for which the driver cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverFailure {
    #[error(transparent)]
    Metrics(#[from] ListenError),
    #[error(
        "there is no way to the API server: {0}; run it in a pod with a service account, or set KUBECONFIG"
    )]
    Cluster(#[from] Box<kube::Error>),
    #[error(transparent)]
    Socket(#[from] io::Error),
}

/// Serves until `stop` completes. Waits for an absent daemon, kubelet or API server.
pub(crate) async fn serve(config: DriverConfig, stop: impl Future<Output = ()>) -> Result<(), DriverFailure> {
    let metrics = BoundListener::open(&config.metrics)?;
    let client = Client::try_default().await.map_err(Box::new)?;
    let driver = Arc::new(DraDriver::new(config, client));
    // Aborted when this function returns.
    let mut aside = JoinSet::new();
    aside.spawn(tranche_exposition::serve(metrics, Arc::new(DriverFigures(Arc::clone(&driver.counters)))));
    let (health, watched) = watch::channel(SharedHealth::default());
    aside.spawn(follow(Arc::clone(&driver)));
    aside.spawn(look(Arc::clone(&driver), health));
    let mut sockets = DriverSockets::open(&driver, &watched)?;
    tokio::pin!(stop);
    while timeout(LOOK, &mut stop).await.is_err() {
        if !sockets.are_there() {
            tracing::warn!("a socket is gone, and is made again");
            sockets.close().await;
            sockets = DriverSockets::open(&driver, &watched)?;
        }
    }
    sockets.close().await;
    tracing::info!("stopped; slices and their pods stay as they are");
    Ok(())
}

/// The two sockets; the kubelet looks for the first, which names the second.
#[derive(Debug)]
struct DriverSockets {
    registration: ServedSocket,
    services: ServedSocket,
}

impl DriverSockets {
    fn open(driver: &Arc<DraDriver>, health: &watch::Receiver<SharedHealth>) -> io::Result<Self> {
        let services = Server::builder()
            .add_service(DraPluginServer::new(ClaimService(Arc::clone(driver))))
            .add_service(DraResourceHealthServer::new(HealthService(health.clone())));
        let services = open(&driver.config.service_socket(), services)?;
        let registration =
            Server::builder().add_service(RegistrationServer::new(RegistrationService(Arc::clone(driver))));
        let registration = open(&driver.config.registration_socket(), registration)?;
        Ok(Self { registration, services })
    }

    fn are_there(&self) -> bool {
        self.registration.is_there() && self.services.is_there()
    }

    async fn close(self) {
        self.registration.close().await;
        self.services.close().await;
    }
}

/// Serves at this path, in a directory that may have to be made.
fn open(path: &Path, services: Router) -> io::Result<ServedSocket> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| ServedSocket::open(path, services)).map_err(|cause| {
        io::Error::new(cause.kind(), format!("cannot listen at {}: {cause}", path.display()))
    })
}

/// Follows the daemon's notifications; a disconnect counts as a change.
async fn follow(driver: Arc<DraDriver>) {
    loop {
        if let Err(error) = driver.daemon.follow(&driver.changed).await {
            tracing::debug!(%error, "changes of GPUs are not followed");
        }
        driver.changed.notify_one();
        sleep(LOOK).await;
    }
}

/// Reads the daemon regularly and on each change, and carries out what follows.
async fn look(driver: Arc<DraDriver>, health: watch::Sender<SharedHealth>) {
    let begun = Instant::now();
    let mut state = LookState::new(&driver, health);
    loop {
        let node = driver.daemon.node().await;
        driver.counters.looked(node.is_ok());
        match node {
            Ok(node) => {
                state.complaints.over("daemon");
                state.take(&node, begun.elapsed()).await;
            }
            // What is published stays: a claim that comes meanwhile is prepared as soon as the daemon is back.
            Err(error) => state.complaints.complain("daemon", &error.to_string()),
        }
        // After a change a comparison is due, too.
        tokio::select! {
            () = driver.changed.notified() => state.compared = None,
            () = driver.prepared.notified() => sleep(LISTED).await,
            () = sleep(LOOK) => {}
        }
    }
}

#[derive(Debug)]
struct LookState {
    driver: Arc<DraDriver>,
    publisher: Publisher,
    conditions: GpuConditions,
    health: watch::Sender<SharedHealth>,
    told: Option<Instant>,
    published: Vec<PoolPart>,
    compared: Option<Instant>,
    swept: Option<Instant>,
    complaints: LoggedProblems,
}

impl LookState {
    fn new(driver: &Arc<DraDriver>, health: watch::Sender<SharedHealth>) -> Self {
        Self {
            publisher: Publisher::new(driver.client.0.clone(), &driver.config),
            conditions: GpuConditions::new(driver.config.ignored_xids.clone(), driver.config.recovery),
            driver: Arc::clone(driver),
            health,
            told: None,
            published: Vec::new(),
            compared: None,
            swept: None,
            complaints: LoggedProblems::default(),
        }
    }

    async fn take(&mut self, node: &NodeView, now: Duration) {
        self.driver.observe(node);
        self.conditions.observe(node, |gpu| self.driver.config.is_ours(gpu), now);
        self.tell_health();
        self.publish(node).await;
        if is_due(self.swept, ORPHANS) {
            self.sweep().await;
        }
        labels::set(&self.driver, node).await;
    }

    async fn publish(&mut self, node: &NodeView) {
        let content = self.content(node);
        if self.published == content && !is_due(self.compared, COMPARE) {
            return;
        }
        let published = match timeout(PATIENCE, self.publisher.publish(content.clone())).await {
            Ok(Ok(publication)) => Ok(publication),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the API server does not answer within {} s", PATIENCE.as_secs())),
        };
        let counters = &self.driver.counters;
        match published {
            Ok(Publication::Dropped) => {
                counters.publication(false);
                counters.published(false);
                self.complaints.complain("publication", DROPPED);
                // Each attempt would be another generation of the pool.
                (self.published, self.compared) = (content, Some(Instant::now()));
            }
            Ok(publication) => {
                self.complaints.over("publication");
                if publication == Publication::Changed {
                    counters.publication(true);
                    tracing::info!(gpus = self.conditions.gpus().count(), "the node's GPUs are published");
                }
                counters.published(true);
                (self.published, self.compared) = (content, Some(Instant::now()));
            }
            Err(error) => {
                counters.publication(false);
                counters.published(false);
                let text = format!("the node's GPUs cannot be published: {error}");
                self.complaints.complain("publication", &text);
            }
        }
    }

    /// Content of the pool: a device for each GPU, or its parts and their counters.
    fn content(&self, node: &NodeView) -> Vec<PoolPart> {
        let config = &self.driver.config;
        let (mut devices, mut counters) = (Vec::new(), Vec::new());
        for (gpu, ailment) in self.conditions.gpus() {
            let taint = ailment.map(|ailment| ailment.taint(&config.driver, config.evicts(ailment)));
            let whole = device::device(node, gpu, taint);
            if config.has_profiles(gpu) {
                devices.extend(profile::parts(&whole, gpu, &config.profiles));
                counters.push(profile::counters(gpu));
            } else {
                devices.push(whole);
            }
        }
        pool::divide(&devices, &counters)
    }

    async fn sweep(&mut self) {
        let swept = match timeout(PATIENCE, orphans::end(&self.driver)).await {
            Ok(swept) => swept.map_err(|error| error.to_string()),
            Err(_) => Err(format!("claims are not listed within {} s", PATIENCE.as_secs())),
        };
        match swept {
            Ok(()) => {
                self.complaints.over("claims");
                self.swept = Some(Instant::now());
            }
            Err(error) => self.complaints.complain("claims", &error),
        }
    }

    fn tell_health(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let this = &*self;
        let devices = this.conditions.gpus().flat_map(|(gpu, ailment)| {
            let health = Self::health_of(ailment, now);
            this.names(gpu).into_iter().map(move |device_name| {
                let pool_name = this.driver.config.node.clone();
                let device = Some(health::DeviceIdentifier { pool_name, device_name });
                health::DeviceHealth { device, ..health.clone() }
            })
        });
        let devices: Vec<_> = devices.collect();
        let states = |all: &[health::DeviceHealth]| {
            all.iter().map(|one| (one.device.clone(), one.health)).collect::<Vec<_>>()
        };
        if is_due(self.told, HEALTH) || states(&self.health.borrow()) != states(&devices) {
            self.told = Some(Instant::now());
            self.health.send_replace(Arc::new(devices));
        }
    }

    /// Names of a GPU's devices.
    fn names(&self, gpu: &GpuView) -> Vec<String> {
        let config = &self.driver.config;
        if config.has_profiles(gpu) {
            profile::names(gpu.uuid, &config.profiles).collect()
        } else {
            vec![device::name(gpu.uuid)]
        }
    }

    /// Health of a GPU's devices, without their names.
    fn health_of(ailment: Option<&Ailment>, now: i64) -> health::DeviceHealth {
        let ailment = ailment.filter(|ailment| !ailment.leaves_claims_alone());
        let state = ailment.map_or(health::HealthStatus::Healthy, |_| health::HealthStatus::Unhealthy);
        health::DeviceHealth {
            device: None,
            health: state.into(),
            last_updated_time: now,
            health_check_timeout_seconds: HEALTH_LASTS_S,
            message: ailment.map(Ailment::sentence).unwrap_or_default(),
        }
    }
}

fn is_due(last: Option<Instant>, interval: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= interval)
}
