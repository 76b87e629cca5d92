//! The main loop: one connection to the runtime after another, and the ends of slices.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tranche_adapter::LoggedProblems;
use tranche_exposition::{BoundListener, ListenError};

use crate::config::PluginConfig;
use crate::metrics::PluginFigures;
use crate::session;
use crate::slices::PodSlices;

/// Time between two reads of the daemon while nothing has to end.
const LOOK: Duration = Duration::from_secs(10);
/// Time before another attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// Serves until `stop` completes. Waits for an absent runtime or daemon.
pub(crate) async fn serve(config: PluginConfig, stop: impl Future<Output = ()>) -> Result<(), ListenError> {
    let metrics = BoundListener::open(&config.metrics)?;
    let slices = Arc::new(PodSlices::new(config));
    // Aborted when this function returns.
    let mut aside = JoinSet::new();
    if let Some(metrics) = metrics {
        let figures = Arc::new(PluginFigures(Arc::clone(&slices.counters)));
        aside.spawn(async move {
            if let Err(error) = tranche_exposition::serve(metrics, figures).await {
                tracing::error!(%error, "metrics cannot be served");
            }
        });
    }
    aside.spawn(connect(Arc::clone(&slices)));
    aside.spawn(end(slices));
    stop.await;
    tracing::info!("stopped; slices and their pods stay as they are");
    Ok(())
}

async fn connect(slices: Arc<PodSlices>) {
    let mut problems = LoggedProblems::default();
    loop {
        if let Err(error) = session::run(&slices).await {
            problems.complain("runtime", &error.to_string());
        }
        slices.counters.registered(false);
        sleep(PAUSE).await;
    }
}

/// Ends slices of pods that are gone, and tries again while the daemon does not.
async fn end(slices: Arc<PodSlices>) {
    let mut problems = LoggedProblems::default();
    loop {
        let ended = slices.end_pending().await;
        slices.counters.daemon(ended.is_ok());
        match ended {
            Ok(()) => {
                problems.over("daemon");
                let _ = timeout(LOOK, slices.changed.notified()).await;
            }
            Err(error) => {
                problems.complain("daemon", &error.to_string());
                sleep(PAUSE).await;
            }
        }
    }
}
