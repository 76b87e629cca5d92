//! Main loop: reads the daemon, releases slices, and keeps each profile registered.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use tranche_adapter::LastProblem;
use tranche_exposition::{BoundListener, ListenError};

use crate::config::Config;
use crate::directory;
use crate::features;
use crate::layout::Division;
use crate::placement::DoesNotFit;
use crate::registrar::Registrar;
use crate::release;
use crate::reporter;
use crate::resource_manager::{LookError, ResourceManager};

/// Intervals of the main loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Interval of reading the daemon.
    pub look: Duration,
    /// Absence of a pod after which its slice is released.
    pub grace: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { look: Duration::from_secs(2), grace: release::GRACE }
    }
}

/// Number of reads of the daemon for each read of the kubelet's list.
const COLLECT_EVERY: u32 = 5;
/// Time for all profiles to shut down.
const GRACE: Duration = Duration::from_secs(5);

/// Reason for which the plugin cannot run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum ServeError {
    #[error(transparent)]
    DoesNotFit(#[from] DoesNotFit),
    #[error(
        "no GPU of this node is as large as any profile: make the profiles smaller, or leave this node out"
    )]
    NothingFits,
    #[error("cannot start a thread for the kubelet's directory: {0}")]
    Thread(std::io::Error),
    #[error(transparent)]
    Metrics(#[from] ListenError),
}

/// Serves until `stop` completes. Waits for an absent daemon, kubelet or GPU.
///
/// # Errors
/// If the configuration does not fit this node's GPUs.
pub async fn serve(config: Config, pace: Pace, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
    let metrics = BoundListener::open(&config.metrics)?;
    let manager = Arc::new(ResourceManager::new(config, pace.grace));
    // Aborted when this function returns.
    let mut aside = JoinSet::new();
    aside.spawn(tranche_exposition::serve(metrics, Arc::new(manager.figures())));
    aside.spawn(reporter::report(Arc::clone(&manager)));
    tokio::pin!(stop);
    tokio::select! {
        ready = something_to_offer(&manager, pace) => ready?,
        () = &mut stop => return Ok(()),
    }
    let changes = directory::changes(&manager.config.kubelet_dir).map_err(ServeError::Thread)?;
    let (stopping, told) = watch::channel(false);
    let mut attendants = JoinSet::new();
    for profile in &manager.config.profiles {
        let attendant = Registrar::new(Arc::clone(&manager), profile.name.clone());
        attendants.spawn(attendant.run(changes.clone(), told.clone()));
    }
    let changed = Arc::new(Notify::new());
    let following = tokio::spawn(keep_following(Arc::clone(&manager), pace, Arc::clone(&changed)));
    let looking = tokio::spawn(keep_looking(Arc::clone(&manager), pace, changed));
    let labelling = manager
        .config
        .features_dir
        .clone()
        .map(|into| tokio::spawn(features::keep(Arc::clone(&manager), into)));
    stop.await;
    stopping.send_replace(true);
    if timeout(GRACE, attendants.join_all()).await.is_err() {
        tracing::warn!("a profile does not come to its end and is left");
    }
    following.abort();
    looking.abort();
    labelling.inspect(|labelling| labelling.abort());
    tracing::info!("stopped; slices and their pods stay as they are");
    Ok(())
}

/// Waits for the daemon and for a configured GPU.
async fn something_to_offer(manager: &ResourceManager, pace: Pace) -> Result<(), ServeError> {
    let mut problem = LastProblem::default();
    loop {
        let wanting = match manager.refresh().await {
            Err(LookError::DoesNotFit(error)) => return Err(error.into()),
            Err(LookError::Daemon(error)) => error.to_string(),
            Ok(()) if !manager.picture().health.is_empty() => break,
            Ok(()) if manager.config.division == Division::Dynamic && manager.has_gpus().await => {
                return Err(ServeError::NothingFits);
            }
            Ok(()) => {
                "there is no GPU that is ours and has a layout; it is looked for again (`tranche smi` shows \
                 those there are: does the configuration name one?)"
                    .to_owned()
            }
        };
        problem.complain(wanting, |wanting| tracing::warn!("{wanting}"));
        sleep(pace.look).await;
    }
    let picture = manager.picture();
    for profile in &manager.config.profiles {
        if !picture.health.keys().any(|device| device.profile == profile.name) {
            tracing::warn!(profile = %profile.name, "is offered by no GPU of this node");
        }
    }
    Ok(())
}

/// Follows the daemon's notifications; a disconnect counts as a change.
async fn keep_following(manager: Arc<ResourceManager>, pace: Pace, changed: Arc<Notify>) {
    loop {
        if let Err(error) = manager.follow(&changed).await {
            tracing::debug!(%error, "changes of GPUs are not followed");
        }
        changed.notify_one();
        sleep(pace.look).await;
    }
}

/// Reads the daemon regularly and on each change, and the kubelet's list less often.
async fn keep_looking(manager: Arc<ResourceManager>, pace: Pace, changed: Arc<Notify>) {
    let (mut problem, mut due) = (LastProblem::default(), Instant::now());
    loop {
        let seen = if Instant::now() >= due {
            due = Instant::now() + pace.look * COLLECT_EVERY;
            manager.collect().await
        } else {
            manager.refresh().await
        };
        match seen {
            Ok(()) if problem.over() => tracing::info!("tranched answers again"),
            Ok(()) => {}
            Err(error) => problem.complain(error, |error| tracing::warn!("{error}")),
        }
        // A read is due after either a change or the interval.
        let _ = timeout(pace.look, changed.notified()).await;
    }
}
