//! A desk as an earlier daemon left it.

use std::fs;
use std::path::{Path, PathBuf};

use tranche_domain::jobs::{Board, JobId, Kept, MemberId, Phase};

use crate::entry::Reason;
use crate::error::OpenError;
use crate::folder::Folders;
use crate::state::State;
use crate::store::{Everything, KeptJob, Store};

/// Opens the store. One that is damaged is kept for a person to look at, and the node goes on without it.
pub(crate) fn store(path: &Path) -> Result<(Store, Option<String>), OpenError> {
    let damaged = match Store::open(path) {
        Ok(store) => return Ok((store, None)),
        Err(error) if error.is_damage() => error,
        Err(error) => return Err(error.into()),
    };
    let aside = (1u32..).map(|n| PathBuf::from(format!("{}.corrupt-{n}", path.display())));
    let aside = aside.into_iter().find(|aside| !aside.exists()).unwrap_or_default();
    fs::rename(path, &aside).map_err(|cause| OpenError::Folder { path: aside.clone(), cause })?;
    let note = format!("{damaged}; it is kept as {}, and there are no projects and jobs", aside.display());
    Ok((Store::open(path)?, Some(note)))
}

/// Which boot of the machine this is.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().into()
}

/// Puts everybody back where they were.
pub(crate) fn state(board: Board, all: Everything, boot: &str) -> State {
    let mut state = State { board, ..State::default() };
    for project in all.projects {
        // What was allowed then is.
        let _ = state.board.set_project(project, true);
    }
    let mut places = Vec::new();
    for (id, kept) in all.jobs {
        places.extend(take_back(&mut state, id, kept));
    }
    state.board.number_from(JobId(all.node.next_job));
    let seated: Vec<Kept> = places.iter().filter(|kept| kept.phase != Phase::Claimed).cloned().collect();
    let lost = state.board.seat_again(places);
    if let Some((job, gpus)) = all.node.hold.as_ref().filter(|(job, _)| state.board.jobs().contains_key(job))
    {
        state.board.keep_free_again(*job, gpus);
    }
    forget_deleted(&mut state);
    let rebooted = all.node.boot != boot;
    state.node = all.node;
    for kept in &seated {
        state.tended.insert(kept.member, Default::default());
    }
    state.send_off(&lost, &Reason::GpuGone);
    if rebooted {
        let everybody: Vec<MemberId> = seated.iter().map(|kept| kept.member).collect();
        state.send_off(&everybody, &Reason::Reboot);
    }
    state
}

/// Jobs that were deleted, and whose last member has left since.
fn forget_deleted(state: &mut State) {
    let deleted = state.board.jobs().iter().filter(|(_, job)| job.deleted && job.placed == 0);
    for id in deleted.map(|(id, _)| *id).collect::<Vec<_>>() {
        state.board.delete(id);
        state.remove(id);
    }
}

/// Returns the places of its members.
fn take_back(state: &mut State, id: JobId, kept: KeptJob) -> Vec<Kept> {
    let KeptJob { entry, job, places } = kept;
    // A job whose project is missing could not be understood with it; it stays in the store.
    if state.board.project(&entry.spec.project).is_err() {
        return Vec::new();
    }
    state.insert(id, entry);
    state.dirty.remove(&id);
    match job {
        Some(job) => {
            state.board.take_back(id, job);
            places
        }
        None => Vec::new(),
    }
}

/// Removes what jobs printed that are not known any more.
pub(crate) fn sweep(folders: &Folders, state: &State) {
    let unknown = |id: &JobId| !state.entries.contains_key(id);
    folders.all().into_iter().filter(unknown).for_each(|id| folders.remove(id));
}
