//! The main loop: one connection to the runtime after another, and the ends of slices.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tranche_adapter::LoggedProblems;
use tranche_exposition::{BoundListener, ListenError};

use crate::adjustment;
use crate::config::PluginConfig;
use crate::metrics::PluginFigures;
use crate::session;
use crate::slices::PodSlices;

/// Time between two reads of the daemon while nothing has to end.
const LOOK: Duration = Duration::from_secs(10);
/// Longest time for the last response.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time before another attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// Serves until `stop` completes. Waits for an absent runtime or daemon.
pub(crate) async fn serve(config: PluginConfig, stop: impl Future<Output = ()>) -> Result<(), ListenError> {
    let metrics = BoundListener::open(&config.metrics)?;
    let slices = Arc::new(PodSlices::new(config));
    // Aborted when this function returns.
    let mut aside = JoinSet::new();
    aside.spawn(tranche_exposition::serve(metrics, Arc::new(PluginFigures(Arc::clone(&slices.counters)))));
    aside.spawn(connect(Arc::clone(&slices)));
    aside.spawn(end(Arc::clone(&slices)));
    stop.await;
    // A call without its response would be a container without its slice.
    let _idle = timeout(PATIENCE, slices.responding.lock()).await;
    tracing::info!("stopped; slices and their pods stay as they are");
    Ok(())
}

async fn connect(slices: Arc<PodSlices>) {
    let mut problems = LoggedProblems::default();
    loop {
        if let Err(error) = write_document(&slices.config.cdi_dir) {
            problems.complain("document", &error.to_string());
        }
        if let Err(error) = session::run(&slices).await {
            if slices.counters.is_registered() {
                problems = LoggedProblems::default();
            }
            problems.complain("runtime", &error.to_string());
        }
        slices.counters.registered(false);
        sleep(PAUSE).await;
    }
}

/// Writes the document of the constant device, if it is not there.
fn write_document(folder: &Path) -> Result<(), std::io::Error> {
    let path = folder.join(adjustment::DOCUMENT);
    if path.exists() {
        return Ok(());
    }
    let cause = |error: std::io::Error| {
        let place = path.display();
        std::io::Error::new(error.kind(), format!("{place} cannot be written: {error}"))
    };
    let begun = path.with_extension("new");
    std::fs::write(&begun, adjustment::document().to_json()).map_err(cause)?;
    std::fs::rename(&begun, &path).map_err(cause)
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
