//! Restoration of the state that an earlier daemon saved.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tranche_domain::jobs::{JobId, MemberId, Phase, QuotaScheduler, SavedBinding};

use crate::account::UseAccount;
use crate::error::OpenError;
use crate::folder::{Attempt, Folders, is_deserted};
use crate::history::Allocations;
use crate::record::StopReason;
use crate::site::JobSlice;
use crate::state::ControllerState;
use crate::store::{SavedJob, SavedState, Store, StoreError};

/// Opens the store and reads it. A damaged one is set aside together with its jobs' logs, and a new one is created.
pub(crate) fn store(path: &Path, printed: &Path) -> Result<(Store, SavedState, Option<String>), OpenError> {
    let open = || -> Result<(Store, SavedState), StoreError> {
        let store = Store::open(path)?;
        let state = store.read()?;
        Ok((store, state))
    };
    let damaged = match open() {
        Ok((store, state)) => return Ok((store, state, None)),
        Err(error) if error.is_damage() => error,
        Err(error) => return Err(error.into()),
    };
    let kept = set_aside(path)?;
    let logs = set_aside(printed)?;
    let note = format!(
        "{damaged}; it is kept as {kept}, what its jobs printed as {logs}, and projects, quotas, jobs and the account of GPU \
         use are lost to this daemon: check the disk, and stop the daemon to put back a copy of {path}, or make the \
         projects again (`tranche project create`) and submit the jobs again",
        kept = kept.display(),
        logs = logs.display(),
        path = path.display()
    );
    tracing::error!("{note}");
    let (store, state) = open()?;
    Ok((store, state, Some(note)))
}

fn set_aside(path: &Path) -> Result<PathBuf, OpenError> {
    let aside = (1u32..).map(|n| PathBuf::from(format!("{}.corrupt-{n}", path.display())));
    let aside = aside.into_iter().find(|aside| !aside.exists()).unwrap_or_default();
    match fs::rename(path, &aside) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(OpenError::Folder { path: aside, cause })
        }
        _ => Ok(aside),
    }
}

/// Boot id of the machine.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().into()
}

/// Restores projects, jobs and bindings.
pub(crate) fn state(
    scheduler: QuotaScheduler,
    all: SavedState,
    boot: &str,
    folders: &Folders,
) -> ControllerState {
    let mut state = ControllerState { scheduler, ..ControllerState::default() };
    for project in all.projects {
        // Quotas were checked when they were set.
        let _ = state.scheduler.set_project(project, true);
    }
    let mut places = Vec::new();
    for (id, kept) in all.jobs {
        places.extend(restore_job(&mut state, id, kept));
    }
    let unused = all.numbers.last().map_or(0, |last| last.0 + 1);
    state.scheduler.reserve_ids_below(JobId(unused.max(all.node.next_job)));
    let seated: Vec<SavedBinding> =
        places.iter().filter(|kept| kept.phase != Phase::Claimed).cloned().collect();
    let mut unseen = state.scheduler.restore_bindings(places);
    if let Some((job, gpus)) =
        all.node.hold.as_ref().filter(|(job, _)| state.scheduler.jobs().contains_key(job))
    {
        state.scheduler.restore_reservation(*job, gpus);
    }
    forget_deleted(&mut state);
    let rebooted = all.node.boot != boot;
    // A job that is deleted before the first round has to end in the history, too.
    let jobs = seated.iter().filter(|kept| kept.phase == Phase::Running).filter_map(|kept| {
        let spec = &state.entries.get(&kept.member.job)?.spec;
        Some((spec.project.clone(), spec.name.to_string(), spec.size.total()))
    });
    state.had = Allocations::of_earlier(jobs.chain(all.node.slices.iter().cloned()));
    // It is saved again first of all: the row that it was read from may be an earlier release's.
    state.account = UseAccount::again(all.account);
    state.node = all.node;
    let parked: Vec<MemberId> = state.scheduler.parked().collect();
    let supervised: BTreeSet<MemberId> = seated.iter().map(|kept| kept.member).chain(parked).collect();
    for member in &supervised {
        state.supervised.insert(*member, Default::default());
    }
    unseen.retain(|member| !has_runner(&state, folders, *member));
    state.request_stop(&unseen, &StopReason::GpuGone);
    if rebooted {
        let everybody: Vec<MemberId> = supervised.into_iter().collect();
        state.request_stop(&everybody, &StopReason::Reboot);
    }
    state
}

/// Slices of bound members that an earlier release created without marking their owner. They are assigned to
/// these members once; from now on an unmarked slice is not a job's.
pub(crate) fn unmarked(state: &ControllerState) -> Vec<JobSlice> {
    let slice = |member: &MemberId| {
        let name = state.entries.get(&member.job)?.slice(*member);
        Some(JobSlice { name, member: *member })
    };
    let members = state.supervised.keys().filter(|_| !state.node.marked);
    members.filter_map(slice).collect()
}

/// Tests if a member's runner still exists; an absent GPU does not stop its program.
fn has_runner(state: &ControllerState, folders: &Folders, member: MemberId) -> bool {
    let attempt = Attempt { member, start: state.member(member).map_or(0, |known| known.starts) };
    !is_deserted(&folders.attempt(attempt))
}

/// Removes deleted jobs whose last member has exited.
fn forget_deleted(state: &mut ControllerState) {
    let deleted = state.scheduler.jobs().iter().filter(|(_, job)| job.deleted && job.placed == 0);
    for id in deleted.map(|(id, _)| *id).collect::<Vec<_>>() {
        state.scheduler.delete(id);
        state.remove(id);
    }
}

/// Restores a job; returns the saved bindings of its members.
fn restore_job(state: &mut ControllerState, id: JobId, kept: SavedJob) -> Vec<SavedBinding> {
    let SavedJob { entry, job, places } = kept;
    // Without its project the job cannot be restored; it stays in the store.
    if state.scheduler.project(&entry.spec.project).is_err() {
        return Vec::new();
    }
    state.insert(id, entry);
    state.dirty.remove(&id);
    match job {
        Some(job) => {
            state.scheduler.restore_job(id, job);
            places
        }
        None => Vec::new(),
    }
}

/// Removes the logs of jobs that are not in the store. Jobs in the store that this version cannot read keep
/// theirs.
pub(crate) fn sweep(folders: &Folders, kept: &BTreeSet<JobId>) {
    folders.all().into_iter().filter(|id| !kept.contains(id)).for_each(|id| folders.remove(id));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::num::NonZeroU32;
    use std::time::Duration;

    use tranche_domain::compute::Priority;
    use tranche_domain::id::GpuUuid;
    use tranche_domain::jobs::{
        HostLimits, JobKind, JobSpec, JobTerms, MilliGpus, PoolGpu, Project, Size, TerminationPolicy,
    };
    use tranche_domain::units::Bytes;

    use super::*;
    use crate::clock::{Clock, JobTime};
    use crate::record::{JobOwner, JobRecord};
    use crate::store::SavedNode;

    fn gpu() -> PoolGpu {
        PoolGpu {
            index: 0,
            uuid: GpuUuid::from_bytes([7; 16]),
            island: 0,
            capacity: Bytes::mib(16 << 10),
            outside: MilliGpus::ZERO,
            cordon: None,
            targets: Vec::new(),
        }
    }

    fn spec(name: &str) -> JobSpec {
        JobSpec {
            project: "a".parse().unwrap(),
            name: name.parse().unwrap(),
            size: Size::Whole(NonZeroU32::MIN),
            part: None,
            kind: JobKind::Training,
            preemptible: true,
            priority: Priority::DEFAULT,
            parallelism: NonZeroU32::MIN,
            completions: NonZeroU32::MIN,
            latency: None,
            gang: false,
            service: None,
        }
    }

    fn entry(spec: JobSpec) -> JobRecord {
        let farewell = TerminationPolicy { warning: None, grace: Duration::ZERO };
        JobRecord {
            spec,
            terms: JobTerms { max_runtime: None, retries: 0, farewell, host: HostLimits::default() },
            owner: JobOwner { uid: 1, gid: 1 },
            submitted_unix_ms: 0,
            submitted: None,
            ended_unix_ms: None,
            ended: JobTime::default(),
            ticket: None,
            image: None,
            ports: Vec::new(),
            members: BTreeMap::new(),
        }
    }

    /// The state restored on a node of one GPU without status files.
    fn taken_over(all: SavedState) -> ControllerState {
        let place = tempfile::tempdir().unwrap();
        let folders = Folders::open(place.path().into()).unwrap();
        state(QuotaScheduler::new(vec![gpu()]), all, "b", &folders)
    }

    /// One job has the only GPU, and another waits for it.
    fn kept(node: &str) -> SavedState {
        let mut scheduler = QuotaScheduler::new(vec![gpu()]);
        let project = Project::new("a".parse().unwrap(), "1".parse().unwrap());
        scheduler.set_project(project.clone(), false).unwrap();
        let ids = ["runs", "waits"].map(|name| scheduler.submit(spec(name)).unwrap());
        scheduler.decide();
        let job = |id: JobId| {
            let job = scheduler.jobs()[&id].clone();
            (
                id,
                SavedJob {
                    entry: entry(job.spec.clone()),
                    job: Some(job),
                    places: scheduler.saved_bindings(id),
                },
            )
        };
        let node: SavedNode = serde_json::from_str(node).unwrap();
        SavedState { projects: vec![project], jobs: ids.map(job).into(), node, ..SavedState::default() }
    }

    #[test]
    fn unmarked_slices_are_claimed_for_bound_members_once() {
        let found = |node: &str| unmarked(&taken_over(kept(node)));
        let member = MemberId { job: JobId(0), index: 0 };
        let earlier = found(r#"{"next_job": 2, "hold": null, "boot": "b"}"#);
        assert_eq!(earlier, [JobSlice { name: "a.runs.0".parse().unwrap(), member }]);
        let mut again = taken_over(kept(r#"{"next_job": 2, "hold": null, "boot": "b"}"#));
        let node = again.changes("b", Clock::default()).node.unwrap();
        assert_eq!(found(&serde_json::to_string(&node).unwrap()), []);
    }

    #[test]
    fn damaged_store_is_set_aside_with_its_logs() {
        let place = tempfile::tempdir().unwrap();
        let (file, printed) = (place.path().join("jobs.redb"), place.path().join("jobs"));
        for (turn, content) in [(1, "no database at all"), (2, "")] {
            fs::write(&file, content).unwrap();
            fs::create_dir_all(printed.join("7")).unwrap();
            let (_, _, complaint) = store(&file, &printed).unwrap();
            let complaint = complaint.unwrap();
            for part in [&format!("jobs.corrupt-{turn}"), "are lost", "put back a copy", "project create"] {
                assert!(complaint.contains(part), "{complaint}");
            }
            assert!(place.path().join(format!("jobs.corrupt-{turn}/7")).exists() && !printed.exists());
            assert!(place.path().join(format!("jobs.redb.corrupt-{turn}")).exists());
        }
    }

    #[test]
    fn unreadable_jobs_keep_their_logs() {
        let place = tempfile::tempdir().unwrap();
        let folders = Folders::open(place.path().into()).unwrap();
        ["3", "4"].iter().for_each(|id| fs::create_dir(place.path().join(id)).unwrap());
        sweep(&folders, &BTreeSet::from([JobId(3)]));
        assert_eq!(folders.all(), [JobId(3)]);
    }

    #[test]
    fn stored_job_ids_are_not_reused() {
        let all = SavedState { numbers: BTreeSet::from([JobId(3), JobId(8)]), ..SavedState::default() };
        assert_eq!(taken_over(all).scheduler.next_job_id(), 9);
    }
}
