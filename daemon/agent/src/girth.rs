//! Keeps the usage files as long as they are made.
//!
//! A tenant holds its usage file writable, so it could make it longer and fill `/run` with it, or shorter and lose its
//! own books. The kernel seals only files that have no name, and these have names, for the next daemon. But it tells of
//! every write and truncation that is made by a call, and of none that is made through a mapping, which is all that a
//! program in a slice has to do: so whatever is told is looked at, and put right at once. Each second all are looked at
//! besides, for what was done while nobody listened.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use tranche_domain::event::{Happening, Kind};
use tranche_domain::id::SliceName;

use crate::agent::Agent;
use crate::regions::Tampering;
use crate::sys;
use crate::tenancy::Tenancy;

/// Time between two looks, so that a tenant that writes all the time does not keep us busy with that alone.
const PAUSE: Duration = Duration::from_millis(1);

/// The usage files that are watched.
#[derive(Debug)]
pub(crate) struct Girth {
    told: Inotify,
    watched: Mutex<HashMap<WatchDescriptor, Weak<Tenancy>>>,
}

impl Girth {
    pub(crate) fn new() -> io::Result<Self> {
        let told = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(Self { told, watched: Mutex::default() })
    }

    /// Watches a slice's file. The kernel forgets by itself what is removed.
    pub(crate) fn watch(&self, tenancy: &Arc<Tenancy>, usage: &Path) -> io::Result<()> {
        let watch = self.told.add_watch(usage, AddWatchFlags::IN_MODIFY)?;
        let mut watched = self.watched();
        watched.retain(|_, tenancy| tenancy.strong_count() > 0);
        watched.insert(watch, Arc::downgrade(tenancy));
        Ok(())
    }

    /// The slices whose files were written to, or nothing if none was.
    fn next(&self) -> io::Result<Vec<Arc<Tenancy>>> {
        let mut written: Vec<_> = match self.told.read_events() {
            Err(Errno::EAGAIN) => Vec::new(),
            events => events?.into_iter().map(|event| event.wd).collect(),
        };
        written.sort_unstable();
        written.dedup();
        let watched = self.watched();
        Ok(written.iter().filter_map(|watch| watched.get(watch)?.upgrade()).collect())
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<WatchDescriptor, Weak<Tenancy>>> {
        self.watched.lock().expect("nothing panics while it holds the list of files")
    }
}

/// Looks until the daemon ends.
pub(crate) fn look_after(agent: &Arc<Agent>) -> io::Result<()> {
    let Some(girth) = &agent.girth else { return Ok(()) };
    let told: Arc<OwnedFd> = Arc::new(girth.told.as_fd().try_clone_to_owned()?);
    let here = agent.attendant.enter();
    let told = sys::watch(told)?;
    drop(here);
    let weak = Arc::downgrade(agent);
    agent.attendant.spawn(async move {
        while let Ok(mut ready) = told.readable().await {
            let Some(agent) = weak.upgrade() else { return };
            ready.clear_ready();
            let written = agent.girth.iter().try_fold(Vec::new(), |_, girth| girth.next());
            match written {
                Ok(written) => written.iter().for_each(|tenancy| mend(&agent, tenancy)),
                Err(error) => tracing::error!(%error, "cannot hear what is written to usage files"),
            }
            drop(agent);
            tokio::time::sleep(PAUSE).await;
        }
    });
    Ok(())
}

/// Gives a slice's usage file its length again, and tells the operator.
pub(crate) fn mend(agent: &Agent, tenancy: &Tenancy) {
    let name = &tenancy.name;
    match tenancy.regions.mend_length() {
        Ok(None) => {}
        Ok(Some(Tampering::Grown)) => {
            let told = "a process of the slice made the usage file longer; it was cut back";
            agent.events.record(Happening::new(Kind::UsageTampered, told).of(name));
            agent.note(format!("a tenant made the usage file of slice {name} longer; it was cut back"));
        }
        Ok(Some(Tampering::Truncated)) => tell_truncated(agent, name),
        Err(error) => tracing::error!(slice = %name, %error, "cannot look at the length of a usage file"),
    }
}

/// A slice has lost its books.
pub(crate) fn tell_truncated(agent: &Agent, slice: &SliceName) {
    let told = "a process of the slice truncated the usage region";
    agent.events.record(Happening::new(Kind::UsageTampered, told).of(slice));
    agent.note(format!(
        "a tenant truncated the usage region of slice {slice}: what it holds is not known any more; delete it"
    ));
}
