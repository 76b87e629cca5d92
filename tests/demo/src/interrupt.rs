//! Interruption by signals, polled between steps so that everything is cleaned up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::DemoError;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static WATCH: OnceLock<()> = OnceLock::new();

/// Polling interval while waiting.
const LOOK: Duration = Duration::from_millis(5);

/// Records SIGINT, SIGTERM and SIGHUP from here on, instead of ending the process.
pub(crate) fn watch() {
    WATCH.get_or_init(|| {
        let (armed, wait) = mpsc::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            // Without a runtime the signals keep their default effect.
            if let Ok(runtime) = runtime {
                runtime.block_on(note_signals(armed));
            }
        });
        // An error means that the thread ended without installing handlers; see above.
        let _ = wait.recv();
    });
}

async fn note_signals(armed: Sender<()>) {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let tasks: Vec<_> = kinds.into_iter().flat_map(signal).map(|signal| tokio::spawn(note(signal))).collect();
    let _ = armed.send(());
    for task in tasks {
        let _ = task.await;
    }
}

async fn note(mut signal: Signal) {
    while signal.recv().await.is_some() {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
}

/// Fails once the user has interrupted.
pub(crate) fn check() -> Result<(), DemoError> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err(DemoError::Interrupted) } else { Ok(()) }
}

/// Sleeps for `duration`; fails within [`LOOK`] of an interruption.
pub(crate) fn sleep(duration: Duration) -> Result<(), DemoError> {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        check()?;
        thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// Polls until there is a value; returns it with the time taken.
pub(crate) fn until<T>(
    what: &str,
    patience: Duration,
    mut attempt: impl FnMut() -> Result<Option<T>, DemoError>,
) -> Result<(T, Duration), DemoError> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = attempt()? {
            return Ok((answer, begun.elapsed()));
        }
        if begun.elapsed() >= patience {
            return Err(DemoError::InVain { what: what.into(), waited: patience });
        }
        sleep(LOOK)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_comes_is_waited_for_in_vain() {
        let never = until::<()>("godot", Duration::from_millis(20), || Ok(None));
        assert!(matches!(never, Err(DemoError::InVain { what, .. }) if what == "godot"));
    }
}
