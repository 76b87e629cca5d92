//! Usage file guard: keeps the usage files of slices at the length at which they are created.
//!
//! A tenant holds its usage file open for writing, so it can extend the file and fill `/run`, or truncate it and
//! destroy the slice's accounting. File seals would prevent both but exist only for anonymous memory files, and these
//! files need names so that the next daemon finds them. inotify reports each write and truncation made by a system
//! call, though none made through a mapping, which is all that an unmodified program needs; so each report leads to a
//! length check. The sampler also checks every file once a second, which covers changes made while no daemon was
//! running.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::runtime::Handle;

use tranche_domain::event::{EventKind, Happening};
use tranche_domain::id::SliceName;

use crate::regions::Tampering;
use crate::slice_runtime::SliceRuntime;
use tranche_linux::sys;
use tranche_telemetry::Telemetry;
use tranche_telemetry::conditions::{ConditionKind as Condition, ConditionSubject};

/// Pause between two checks, so that a tenant that writes continuously cannot occupy the daemon.
const PAUSE: Duration = Duration::from_millis(1);

/// inotify watches of the usage files, by slice.
#[derive(Debug)]
pub struct UsageGuard {
    telemetry: Arc<Telemetry>,
    reports: Inotify,
    watched: Mutex<HashMap<WatchDescriptor, Weak<SliceRuntime>>>,
}

impl UsageGuard {
    /// A guard that watches no file yet.
    ///
    /// # Errors
    /// inotify is not available.
    pub fn new(telemetry: Arc<Telemetry>) -> io::Result<Self> {
        let reports = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(Self { telemetry, reports, watched: Mutex::default() })
    }

    /// Watches a slice's usage file. The kernel drops the watch when the file is removed.
    pub fn watch(&self, runtime: &Arc<SliceRuntime>, usage: &Path) -> io::Result<()> {
        let watch = self.reports.add_watch(usage, AddWatchFlags::IN_MODIFY)?;
        let mut watched = self.watched();
        watched.retain(|_, runtime| runtime.strong_count() > 0);
        watched.insert(watch, Arc::downgrade(runtime));
        Ok(())
    }

    /// Takes the pending reports. Returns each slice whose file was written to once, and none if there are none.
    fn next(&self) -> io::Result<Vec<Arc<SliceRuntime>>> {
        let mut written: Vec<_> = match self.reports.read_events() {
            Err(Errno::EAGAIN) => Vec::new(),
            events => events?.into_iter().map(|event| event.wd).collect(),
        };
        written.sort_unstable();
        written.dedup();
        let watched = self.watched();
        Ok(written.iter().filter_map(|watch| watched.get(watch)?.upgrade()).collect())
    }

    /// Starts the task that checks reported files until this is dropped.
    pub fn start(self: &Arc<Self>, worker: &Handle) -> io::Result<()> {
        let reports: Arc<OwnedFd> = Arc::new(self.reports.as_fd().try_clone_to_owned()?);
        let here = worker.enter();
        let reports = sys::watch(reports)?;
        drop(here);
        let weak = Arc::downgrade(self);
        worker.spawn(async move {
            while let Ok(mut ready) = reports.readable().await {
                let Some(guard) = weak.upgrade() else { return };
                ready.clear_ready();
                match guard.next() {
                    Ok(written) => {
                        written.iter().for_each(|runtime| restore_length(&guard.telemetry, runtime));
                    }
                    Err(error) => tracing::error!(%error, "cannot hear what is written to usage files"),
                }
                drop(guard);
                tokio::time::sleep(PAUSE).await;
            }
        });
        Ok(())
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<WatchDescriptor, Weak<SliceRuntime>>> {
        self.watched.lock().expect("nothing panics while it holds the list of files")
    }
}

/// Restores the length of a slice's usage file and records an event and a condition.
pub fn restore_length(telemetry: &Telemetry, runtime: &SliceRuntime) {
    let name = &runtime.name;
    match runtime.regions.restore_length() {
        Ok(None) => {}
        Ok(Some(Tampering::Grown)) => {
            let detail = "a process of the slice made the usage file longer; it was cut back";
            let message = format!("a tenant made the usage file of slice {name} longer; it was cut back");
            report(telemetry, name, detail, Condition::UsageExtended, message);
        }
        Ok(Some(Tampering::Truncated)) => report_truncated(telemetry, name),
        Err(error) => tracing::error!(slice = %name, %error, "cannot look at the length of a usage file"),
    }
}

/// Records that a slice's usage region was truncated, so what it holds is unknown.
pub fn report_truncated(telemetry: &Telemetry, slice: &SliceName) {
    let detail = "a process of the slice truncated the usage region";
    let message = format!(
        "a tenant truncated the usage region of slice {slice}: what it holds is not known any more; delete it"
    );
    report(telemetry, slice, detail, Condition::UsageTruncated, message);
}

fn report(telemetry: &Telemetry, slice: &SliceName, detail: &str, kind: Condition, message: String) {
    telemetry.events.record(Happening::new(EventKind::UsageTampered, detail).of(slice));
    telemetry.conditions.set(kind, ConditionSubject::Slice(slice.clone()), message);
}
