//! Persistent store of projects and jobs (redb). Each change is one transaction.

mod uses;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tranche_domain::id::GpuUuid;
use tranche_domain::jobs::{Job, JobId, LaunchSpec, MilliGpus, Project, ProjectName, SavedBinding};

use crate::account::{EntryId, SavedAccount, UseSum};
use crate::clock::Clock;
use crate::history::Point;
use crate::record::JobRecord;
use crate::reserve;
pub(crate) use uses::SavedUses;

const PROJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("projects");
const JOBS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("jobs");
/// Commands and environments, which never change and are the largest part of a job.
const LAUNCHES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("launches");
const HISTORY: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("history");
const NODE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("node");

/// Maximum number of points in the history.
const MOST_POINTS: u64 = 100_000;

/// Failure of the store.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {cause}", path.display())]
pub struct StoreError {
    doing: &'static str,
    path: PathBuf,
    cause: Box<redb::Error>,
}

impl StoreError {
    /// Tests if the file itself is damaged, or ends too early.
    pub(crate) fn is_damage(&self) -> bool {
        use redb::Error::{Corrupted, Io, UpgradeRequired};
        match &*self.cause {
            Corrupted(_) | UpgradeRequired(_) => true,
            Io(error) => matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof),
            _ => false,
        }
    }
}

/// A job as the store holds it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedJob {
    pub(crate) entry: JobRecord,
    /// Scheduling state; `None` once ended.
    pub(crate) job: Option<Job>,
    pub(crate) places: Vec<SavedBinding>,
}

/// State of the node as saved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedNode {
    /// Lower bound of unused job ids.
    pub(crate) next_job: u64,
    /// GPUs reserved for a job.
    pub(crate) hold: Option<(JobId, Vec<GpuUuid>)>,
    /// Boot id of the machine at the time.
    pub(crate) boot: String,
    /// True if slices of jobs record their owner; earlier releases did not mark them.
    #[serde(default)]
    pub(crate) marked: bool,
    /// The job clock at the time; earlier daemons had none.
    #[serde(default)]
    pub(crate) clock: Option<Clock>,
    /// GPUs of users' slices in the history, by project and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) slices: Vec<(ProjectName, String, MilliGpus)>,
    /// State of the account of GPU use where an earlier daemon saved it; now it has a row of its own.
    #[serde(default, skip_serializing)]
    pub(crate) account: Option<SavedAccount>,
}

/// The complete saved state, without launches and history.
#[derive(Debug, Default)]
pub(crate) struct SavedState {
    pub(crate) projects: Vec<Project>,
    pub(crate) jobs: Vec<(JobId, SavedJob)>,
    pub(crate) node: SavedNode,
    pub(crate) account: Option<SavedAccount>,
    /// Ids of all saved jobs, readable or not.
    pub(crate) numbers: BTreeSet<JobId>,
    /// Messages about unreadable rows.
    pub(crate) complaints: Vec<String>,
}

/// Changes to save in one transaction.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) projects: Vec<Project>,
    pub(crate) projects_gone: Vec<String>,
    pub(crate) jobs: Vec<(JobId, SavedJob)>,
    pub(crate) launches: Vec<(JobId, LaunchSpec)>,
    pub(crate) jobs_gone: Vec<JobId>,
    pub(crate) points: Vec<Point>,
    /// Amounts to add to entries of the account.
    pub(crate) uses: BTreeMap<EntryId, UseSum>,
    /// State of the account up to which `uses` are.
    pub(crate) account: Option<SavedAccount>,
    pub(crate) node: Option<SavedNode>,
}

impl Changes {
    /// Tests if no change other than to jobs is pending.
    pub(crate) fn is_empty(&self) -> bool {
        // Sums wait until the account is saved.
        let Self { projects, projects_gone, jobs, launches, jobs_gone, points, uses: _, account: _, node } =
            self;
        projects.is_empty()
            && projects_gone.is_empty()
            && jobs.is_empty()
            && launches.is_empty()
            && jobs_gone.is_empty()
            && points.is_empty()
            && node.is_none()
    }
}

/// Database of projects, jobs and history in one file.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    /// `None` after an I/O error: redb then rejects all access until the database is reopened.
    database: Mutex<Option<Database>>,
}

impl Store {
    /// Opens a store, or creates it where there is no file.
    ///
    /// # Errors
    /// If the file cannot be read or is no store; an empty one is damaged, as none is left so.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let failed =
            |cause: redb::Error| StoreError { doing: "open", path: path.into(), cause: Box::new(cause) };
        if !path.try_exists().map_err(|error| failed(error.into()))? {
            create(path).map_err(failed)?;
        }
        // It creates nothing: in place of an empty file, an empty store would pass for the state.
        let database = Database::open(path).map_err(|error| failed(error.into()))?;
        let store = Self { path: path.into(), database: Mutex::new(Some(database)) };
        // Creates tables that earlier releases had not, so that reads find them.
        store.save(&Changes::default())?;
        Ok(store)
    }

    /// Saves changes durably, in one transaction.
    pub(crate) fn save(&self, changes: &Changes) -> Result<(), StoreError> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let kept = self.with(|database| write(database, changes)).or_else(|error| match error {
            redb::Error::Io(cause) if reserve::is_full(&cause) && reserve::give_up(folder) => {
                self.with(|database| write(database, changes))
            }
            error => Err(error),
        });
        kept.map_err(|cause| self.failed("write to", cause))
    }

    /// Accesses the database, reopened if necessary.
    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, redb::Error> {
        let mut held = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let database = match held.take() {
            Some(database) => database,
            None => Database::open(&self.path)?,
        };
        let done = work(&database);
        if !matches!(done, Err(redb::Error::Io(_) | redb::Error::PreviousIo)) {
            *held = Some(database);
        }
        done
    }

    /// Failure to read what was opened for reading.
    pub(crate) fn unreadable(&self, cause: redb::Error) -> StoreError {
        self.failed("read", cause)
    }

    fn failed(&self, doing: &'static str, cause: redb::Error) -> StoreError {
        StoreError { doing, path: self.path.clone(), cause: Box::new(cause) }
    }

    /// Reads everything except launches and history.
    pub(crate) fn read(&self) -> Result<SavedState, StoreError> {
        self.with(read_all).map_err(|cause| self.failed("read", cause))
    }

    /// Command and environment of a job.
    pub(crate) fn launch(&self, id: JobId) -> Result<Option<LaunchSpec>, StoreError> {
        let read = |database: &Database| {
            let transaction = database.begin_read()?;
            let text = transaction.open_table(LAUNCHES)?.get(id.0)?;
            Ok::<_, redb::Error>(text.and_then(|text| serde_json::from_slice(text.value()).ok()))
        };
        self.with(read).map_err(|cause| self.failed("read", cause))
    }

    /// Points of the history since a time in milliseconds since the Unix epoch.
    pub(crate) fn history(&self, since_unix_ms: u64) -> Result<Vec<Point>, StoreError> {
        let read = |database: &Database| {
            let transaction = database.begin_read()?;
            let mut points = Vec::new();
            for row in transaction.open_table(HISTORY)?.iter()? {
                points.extend(serde_json::from_slice::<Point>(row?.1.value()).ok());
            }
            Ok::<_, redb::Error>(points)
        };
        let mut points = self.with(read).map_err(|cause| self.failed("read", cause))?;
        points.retain(|point| point.time_unix_ms >= since_unix_ms);
        Ok(points)
    }

    /// The account as it is now, whatever is saved later.
    pub(crate) fn uses(&self) -> Result<SavedUses, StoreError> {
        let transaction = self.with(|database| Ok(database.begin_read()?));
        Ok(SavedUses(transaction.map_err(|cause| self.failed("read", cause))?))
    }
}

/// Creates a store under its name once it is whole on the disk.
fn create(path: &Path) -> Result<(), redb::Error> {
    let begun = path.with_extension("new");
    match fs::remove_file(&begun) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let database = Database::create(&begun)?;
    write(&database, &Changes::default())?;
    drop(database);
    fs::rename(&begun, path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    Ok(File::open(folder).and_then(|folder| folder.sync_all())?)
}

fn write(database: &Database, changes: &Changes) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    write_projects(&transaction, changes)?;
    write_jobs(&transaction, changes)?;
    write_points(&transaction, &changes.points)?;
    uses::add(&transaction, &changes.uses)?;
    let mut node = transaction.open_table(NODE)?;
    if let Some(kept) = &changes.node {
        node.insert("node", json(kept).as_slice())?;
    }
    if let Some(kept) = &changes.account {
        node.insert("account", json(kept).as_slice())?;
    }
    drop(node);
    Ok(transaction.commit()?)
}

fn read_all(database: &Database) -> Result<SavedState, redb::Error> {
    let transaction = database.begin_read()?;
    let mut all = SavedState::default();
    for row in transaction.open_table(PROJECTS)?.iter()? {
        let (name, text) = row?;
        all.projects.extend(understood(&mut all.complaints, "project", name.value(), text.value()));
    }
    for row in transaction.open_table(JOBS)?.iter()? {
        let (id, text) = row?;
        all.numbers.insert(JobId(id.value()));
        let job = understood(&mut all.complaints, "job", id.value(), text.value());
        all.jobs.extend(job.map(|job| (JobId(id.value()), job)));
    }
    let node = transaction.open_table(NODE)?;
    if let Some(text) = node.get("node")? {
        all.node = understood(&mut all.complaints, "the", "node", text.value()).unwrap_or_default();
    }
    if let Some(text) = node.get("account")? {
        all.account = understood(&mut all.complaints, "the", "account", text.value());
    }
    // An earlier release that ran in between saved a later one with the node.
    all.account = all.account.into_iter().chain(all.node.account.take()).max_by_key(SavedAccount::at);
    Ok(all)
}

fn write_projects(transaction: &WriteTransaction, changes: &Changes) -> Result<(), redb::Error> {
    let mut projects = transaction.open_table(PROJECTS)?;
    for project in &changes.projects {
        projects.insert(project.name.as_str(), json(project).as_slice())?;
    }
    for gone in &changes.projects_gone {
        projects.remove(gone.as_str())?;
    }
    Ok(())
}

fn write_jobs(transaction: &WriteTransaction, changes: &Changes) -> Result<(), redb::Error> {
    let (mut jobs, mut launches) = (transaction.open_table(JOBS)?, transaction.open_table(LAUNCHES)?);
    for (id, job) in &changes.jobs {
        jobs.insert(id.0, json(job).as_slice())?;
    }
    for (id, launch) in &changes.launches {
        launches.insert(id.0, json(launch).as_slice())?;
    }
    for id in &changes.jobs_gone {
        jobs.remove(id.0)?;
        launches.remove(id.0)?;
    }
    Ok(())
}

fn write_points(transaction: &WriteTransaction, points: &[Point]) -> Result<(), redb::Error> {
    let mut history = transaction.open_table(HISTORY)?;
    let mut next = history.last()?.map_or(0, |(last, _)| last.value() + 1);
    for point in points {
        history.insert(next, json(point).as_slice())?;
        next += 1;
    }
    let old = next.saturating_sub(MOST_POINTS);
    if history.first()?.is_some_and(|(first, _)| first.value() < old) {
        history.retain_in(..old, |_, _| false)?;
    }
    Ok(())
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value)
        .expect("it has no keys that are not texts, and nothing that fails to be written")
}

/// Parses a row. An unreadable row stays in place and is reported.
fn understood<T: DeserializeOwned>(
    complaints: &mut Vec<String>,
    what: &str,
    which: impl std::fmt::Display,
    text: &[u8],
) -> Option<T> {
    let understood = serde_json::from_slice(text);
    understood
        .inspect_err(|error| {
            complaints.push(format!("{what} {which} as it was kept is not understood: {error}"));
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(path: &Path) -> Vec<Project> {
        let project = Project::new("vision".parse().unwrap(), MilliGpus::ONE);
        let store = Store::open(path).unwrap();
        store.save(&Changes { projects: vec![project.clone()], ..Changes::default() }).unwrap();
        vec![project]
    }

    #[test]
    fn truncated_store_is_damaged_or_whole_and_never_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.redb");
        let projects = saved(&path);
        let whole = fs::read(&path).unwrap();
        let step = whole.len() / 64;
        let short = [0, 1, 8, 9, 320, 4095, 4096].into_iter().chain((1..64).map(|part| part * step));
        for length in short.chain(whole.len() - 1..=whole.len()) {
            fs::write(&path, &whole[..length]).unwrap();
            match Store::open(&path).and_then(|store| store.read()) {
                Ok(state) => assert_eq!(state.projects, projects, "{length} of {} bytes", whole.len()),
                Err(error) => assert!(error.is_damage(), "{length} of {} bytes: {error}", whole.len()),
            }
        }
    }

    #[test]
    fn store_whose_creation_was_interrupted_is_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.redb");
        fs::write(folder.path().join("jobs.new"), "").unwrap();
        assert!(Store::open(&path).unwrap().read().unwrap().projects.is_empty());
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["jobs.redb"]);
    }

    #[test]
    fn store_that_vanishes_while_it_is_open_is_not_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.redb");
        saved(&path);
        let store = Store::open(&path).unwrap();
        // As after an I/O error.
        *store.database.lock().unwrap() = None;
        fs::remove_file(&path).unwrap();
        assert!(store.save(&Changes::default()).is_err() && !path.exists());
    }

    /// A row written by a daemon without the job clock.
    const EARLIER: &str = r#"{"entry": {"spec": {"project": "a", "name": "j", "size": {"part": 500}, "kind": "training",
        "preemptible": true, "priority": 0, "parallelism": 1, "completions": 1}, "terms": {"max_runtime": null, "retries": 0,
        "farewell": {"warning": null, "grace": {"secs": 10, "nanos": 0}}}, "owner": {"uid": 1, "gid": 1},
        "submitted_unix_ms": 5, "ended_unix_ms": 7, "members": {"0": {"starts": 1, "failures": 0, "started_unix_ms": 6,
        "farewell": null, "end": {"success": true, "why": "exited with status 0"}}}}, "job": null, "places": []}"#;

    #[test]
    fn rows_of_earlier_daemons_are_readable() {
        let mut complaints = Vec::new();
        let job: Option<SavedJob> = understood(&mut complaints, "job", 3, EARLIER.as_bytes());
        let node = r#"{"next_job": 4, "hold": null, "boot": "b"}"#;
        let node: Option<SavedNode> = understood(&mut complaints, "the", "node", node.as_bytes());
        assert_eq!(complaints, [""; 0]);
        let entry = job.unwrap().entry;
        assert_eq!((entry.ended_unix_ms, entry.ended), (Some(7), Default::default()));
        assert_eq!(entry.members[&0].started, Default::default());
        assert_eq!(node.unwrap().clock, None);
    }

    #[test]
    fn later_of_two_accounts_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("jobs.redb")).unwrap();
        let account = |secs: u64| {
            let text = format!(r#"{{"at": {{"secs": {secs}, "nanos": 0}}, "holdings": [], "meters": []}}"#);
            serde_json::from_str::<SavedAccount>(&text).unwrap()
        };
        // As an earlier release wrote it, with the node.
        let earlier = |account: &SavedAccount| {
            let node = serde_json::json!({"next_job": 4, "hold": null, "boot": "b", "account": account});
            let write = |database: &Database| {
                let transaction = database.begin_write()?;
                transaction.open_table(NODE)?.insert("node", json(&node).as_slice())?;
                Ok(transaction.commit()?)
            };
            store.with(write).unwrap();
        };
        earlier(&account(5));
        assert_eq!(store.read().unwrap().account, Some(account(5)));
        let changes = |account| Changes { account: Some(account), ..Changes::default() };
        store.save(&changes(account(7))).unwrap();
        assert_eq!(store.read().unwrap().account, Some(account(7)));
        earlier(&account(9));
        assert_eq!(store.read().unwrap().account, Some(account(9)));
    }
}
