//! A simulated node: GPUs, slices that are mere names, and real processes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getegid, geteuid};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tranche_domain::compute::Priority;
use tranche_domain::cordon::Cordon;
use tranche_domain::id::{GpuUuid, SliceName};
use tranche_domain::jobs::{
    HostLimits, JobKind, JobSpec, JobState, JobTerms, JobView, LaunchSpec, MemberId, MilliGpus, PoolGpu,
    Project, ProjectChange, ProjectName, ProjectView, ReportKey, ReportQuery, ReportRow, ServiceSpec, Size,
    Submission, TerminationPolicy, UserRequest, UserSlice, Warning,
};
use tranche_domain::request::Share;
use tranche_domain::slice::ProcessId;
use tranche_domain::units::Bytes;
use tranche_jobs::{
    ClockReading, Happened, JobClaims, JobCondition, JobController, JobOwner, JobSite, JobSlice, JobsError,
    Launcher, LogFrom, NodeUse, Preemption, Requester, Retention, UnparkFailure, UserDemand,
};

/// User that runs the tests, as an administrator.
pub(crate) const ADMIN: Requester = Requester { uid: 0, admin: true };

/// A node in a folder of its own.
pub(crate) struct TestNode {
    folder: tempfile::TempDir,
    site: TestSlices,
}

/// State of a node apart from its folder.
#[derive(Clone, Debug)]
pub(crate) struct TestSlices {
    gpus: Vec<PoolGpu>,
    /// Slices with the members that they were created for.
    open: Arc<Mutex<BTreeMap<SliceName, Option<MemberId>>>>,
    told: Arc<Mutex<Vec<String>>>,
    /// Messages of the conditions that are set.
    conditions: Arc<Mutex<BTreeMap<JobCondition, String>>>,
    /// True if slices cannot be created.
    broken: Arc<AtomicBool>,
    /// The slice that alone cannot be created, be parked or return, if it is not all of them.
    obstinate: Arc<Mutex<Option<SliceName>>>,
    /// Indices of cordoned GPUs.
    cordoned: Arc<Mutex<BTreeSet<u32>>>,
    /// True if the driver reports no GPU.
    silent: Arc<AtomicBool>,
    clocks: Arc<Mutex<Ahead>>,
    /// Slices that count as idle.
    idle: Arc<Mutex<BTreeSet<SliceName>>>,
    parking: Arc<Mutex<TestParking>>,
    users: Arc<Mutex<BTreeMap<SliceName, UserSlice>>>,
    requests: Arc<Mutex<BTreeMap<u64, UserRequest>>>,
    claims: Arc<Mutex<JobClaims>>,
}

/// Parked slices, and what happens to the next ones.
#[derive(Clone, Debug, Default)]
struct TestParking {
    is_policy: bool,
    parked: BTreeSet<SliceName>,
    /// Reason for which no slice can be parked.
    parking: Option<String>,
    /// Reason for which none can return.
    unparking: Option<UnparkFailure>,
}

/// Offsets of the simulated clocks from the real ones.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    set_ms: i64,
    passed: Duration,
}

impl TestNode {
    pub(crate) fn with_gpus(count: u32) -> Self {
        let gpu = |index: u32| PoolGpu {
            index,
            uuid: GpuUuid::from_bytes([index as u8; 16]),
            island: 0,
            capacity: Bytes::mib(16 << 10),
            outside: MilliGpus::ZERO,
            cordon: None,
            targets: Vec::new(),
        };
        let site = TestSlices {
            gpus: (0..count).map(gpu).collect(),
            open: Arc::default(),
            told: Arc::default(),
            conditions: Arc::default(),
            broken: Arc::default(),
            obstinate: Arc::default(),
            cordoned: Arc::default(),
            silent: Arc::default(),
            clocks: Arc::default(),
            idle: Arc::default(),
            parking: Arc::default(),
            users: Arc::default(),
            requests: Arc::default(),
            claims: Arc::default(),
        };
        Self { folder: tempfile::tempdir().unwrap(), site }
    }

    /// The same node without one of its GPUs.
    pub(crate) fn without_gpu(mut self, index: usize) -> Self {
        self.site.gpus.remove(index);
        self.site.conditions = Arc::default();
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a job controller.
    pub(crate) fn controller(&self) -> RunningController {
        self.desk_keeping(Retention::DEFAULT)
    }

    /// Starts a job controller with this retention.
    pub(crate) fn desk_keeping(&self, retention: Retention) -> RunningController {
        let launcher = Launcher {
            program: env!("CARGO_BIN_EXE_tranche-shepherd").into(),
            socket: self.path("no-such-socket"),
        };
        let state = self.path("state");
        std::fs::create_dir_all(&state).unwrap();
        let controller = JobController::open(&state, self.site.clone(), launcher).unwrap().keeping(retention);
        let controller = Arc::new(controller);
        let running = tokio::spawn(Arc::clone(&controller).run());
        RunningController { controller, running, dies: false }
    }

    /// Makes the creation of slices fail, or work again.
    pub(crate) fn break_down(&self, broken: bool) {
        self.site.broken.store(broken, Relaxed);
    }

    /// Restricts what fails to one slice.
    pub(crate) fn only(&self, slice: &str) {
        *self.site.obstinate.lock().unwrap() = Some(slice.parse().unwrap());
    }

    /// Cordons a GPU, or uncordons it.
    pub(crate) fn cordon(&self, index: u32, cordoned: bool) {
        let mut all = self.site.cordoned.lock().unwrap();
        if cordoned {
            all.insert(index)
        } else {
            all.remove(&index)
        };
    }

    /// Makes the driver report no GPU, or all again.
    pub(crate) fn fall_silent(&self, silent: bool) {
        self.site.silent.store(silent, Relaxed);
    }

    /// Moves the wall clock by hours.
    pub(crate) fn set_clock(&self, hours: i64) {
        self.site.clocks.lock().unwrap().set_ms = hours * 3_600_000;
    }

    /// Lets hours pass.
    pub(crate) fn pass(&self, hours: u64) {
        self.site.clocks.lock().unwrap().passed += Duration::from_hours(hours);
    }

    pub(crate) fn slices(&self) -> BTreeSet<SliceName> {
        self.site.open.lock().unwrap().keys().cloned().collect()
    }

    /// Creates a slice without a job.
    pub(crate) fn make(&self, name: &str) {
        self.site.open.lock().unwrap().insert(name.parse().unwrap(), None);
    }

    pub(crate) fn delete(&self, name: &str) {
        self.site.open.lock().unwrap().remove(&name.parse().unwrap());
    }

    /// Creates a slice of a user on one whole GPU; those of lower GPUs are older.
    pub(crate) fn make_for_user(&self, name: &str, project: Option<&str>, gpu: usize) {
        self.site.add_user_slice(name, project.map(|name| name.parse().unwrap()), gpu);
    }

    /// Lets a request for one whole GPU wait.
    pub(crate) fn request(&self, number: u64, project: &str) {
        let (project, size) = (Some(project.parse().unwrap()), Size::Whole(NonZeroU32::MIN));
        let request = UserRequest { number, project, size, latency: None };
        self.site.requests.lock().unwrap().insert(number, request);
    }

    /// Makes a slice idle or busy.
    pub(crate) fn set_idle(&self, name: &str, idle: bool) {
        let (mut all, name) = (self.site.idle.lock().unwrap(), name.parse().unwrap());
        if idle {
            all.insert(name)
        } else {
            all.remove(&name)
        };
    }

    /// Has preempted members parked instead of stopped.
    pub(crate) fn park_preempted(&self) {
        self.site.parking.lock().unwrap().is_policy = true;
    }

    /// Sets the reasons for which no slice can be parked, and none can return.
    pub(crate) fn refuse_parking(&self, parking: Option<&str>, unparking: Option<UnparkFailure>) {
        let mut all = self.site.parking.lock().unwrap();
        (all.parking, all.unparking) = (parking.map(String::from), unparking);
    }

    /// Names of parked slices.
    pub(crate) fn parked(&self) -> Vec<String> {
        self.site.parking.lock().unwrap().parked.iter().map(ToString::to_string).collect()
    }

    /// Names of users' slices.
    pub(crate) fn user_slices(&self) -> Vec<String> {
        self.site.users.lock().unwrap().keys().map(ToString::to_string).collect()
    }

    /// Number of GPUs of which a part is kept for jobs.
    pub(crate) fn kept(&self) -> usize {
        self.site.claims.lock().unwrap().kept.parts.len()
    }

    pub(crate) fn noted(&self) -> Vec<String> {
        self.site.conditions.lock().unwrap().values().cloned().collect()
    }

    pub(crate) fn happened(&self) -> Vec<String> {
        self.site.told.lock().unwrap().clone()
    }
}

impl TestSlices {
    /// Tests if what fails fails for this slice.
    fn fails(&self, slice: &SliceName) -> bool {
        self.obstinate.lock().unwrap().as_ref().is_none_or(|only| only == slice)
    }

    fn add_user_slice(&self, name: &str, project: Option<ProjectName>, gpu: usize) {
        let slice = UserSlice {
            name: name.parse().unwrap(),
            owner_uid: 7,
            created_unix_ms: gpu as u64,
            project,
            gpus: vec![self.gpus[gpu].uuid],
            size: Size::Whole(NonZeroU32::MIN),
            latency: None,
        };
        self.users.lock().unwrap().insert(slice.name.clone(), slice);
    }
}

impl JobSite for TestSlices {
    fn gpus(&self, _: &BTreeSet<MemberId>) -> Vec<PoolGpu> {
        let cordoned = self.cordoned.lock().unwrap();
        let cordon = |gpu: &PoolGpu| Cordon {
            by_uid: 0,
            since_unix_ms: 0,
            reason: None,
            told: format!("cordoned by root: fan {} is loud", gpu.index),
        };
        let gpu = |gpu: &PoolGpu| PoolGpu {
            cordon: cordoned.contains(&gpu.index).then(|| cordon(gpu)),
            ..gpu.clone()
        };
        if self.silent.load(Relaxed) { Vec::new() } else { self.gpus.iter().map(gpu).collect() }
    }

    fn user_demand(&self) -> UserDemand {
        UserDemand {
            slices: self.users.lock().unwrap().values().cloned().collect(),
            requests: self.requests.lock().unwrap().values().cloned().collect(),
        }
    }

    fn grant(&self, request: u64, gpus: Vec<GpuUuid>) {
        let granted = self.requests.lock().unwrap().remove(&request).unwrap();
        let gpu = self.gpus.iter().position(|gpu| gpus.contains(&gpu.uuid)).unwrap();
        self.add_user_slice(&format!("granted-{request}"), granted.project, gpu);
    }

    fn set_claims(&self, claims: JobClaims) {
        *self.claims.lock().unwrap() = claims;
    }

    async fn end_user_slice(&self, slice: &UserSlice, reason: String) {
        self.told.lock().unwrap().push(format!("{} ends: {reason}", slice.name));
        self.users.lock().unwrap().remove(&slice.name);
    }

    fn open(&self, slice: &JobSlice, _: &JobSpec, _: &[GpuUuid], _: JobOwner) -> Result<(), String> {
        match self.open.lock().unwrap().entry(slice.name.clone()) {
            Entry::Occupied(_) => Err(format!("slice {} was there already", slice.name)),
            Entry::Vacant(_) if self.broken.load(Relaxed) && self.fails(&slice.name) => {
                Err("/run is full".into())
            }
            Entry::Vacant(free) => {
                free.insert(Some(slice.member));
                Ok(())
            }
        }
    }

    fn claim(&self, slice: &JobSlice) {
        if let Some(job) = self.open.lock().unwrap().get_mut(&slice.name) {
            job.get_or_insert(slice.member);
        }
    }

    fn enter(
        &self,
        _: &JobSlice,
        _: ProcessId,
        environment: Vec<(String, String)>,
    ) -> Result<Vec<(String, String)>, String> {
        Ok(environment)
    }

    fn preemption(&self) -> Preemption {
        if self.parking.lock().unwrap().is_policy { Preemption::Park } else { Preemption::Stop }
    }

    async fn park(&self, slice: &JobSlice) -> Result<(), String> {
        let mut parking = self.parking.lock().unwrap();
        if let Some(why) = parking.parking.as_ref().filter(|_| self.fails(&slice.name)) {
            return Err(why.clone());
        }
        parking.parked.insert(slice.name.clone());
        Ok(())
    }

    async fn unpark(&self, slice: &JobSlice) -> Result<bool, UnparkFailure> {
        let mut parking = self.parking.lock().unwrap();
        let fails = parking.parked.contains(&slice.name) && self.fails(&slice.name);
        match parking.unparking.clone().filter(|_| fails) {
            Some(why) => Err(why),
            None => Ok(parking.parked.remove(&slice.name)),
        }
    }

    async fn close(&self, slice: &JobSlice) {
        self.parking.lock().unwrap().parked.remove(&slice.name);
        self.open.lock().unwrap().retain(|name, job| *name != slice.name || *job != Some(slice.member));
    }

    async fn ended(&self, process: ProcessId) {
        while start_time(process.pid.get()) == Some(process.start_time) {
            sleep(Duration::from_millis(2)).await;
        }
    }

    fn signal(&self, process: ProcessId, signal: Signal) {
        if start_time(process.pid.get()) == Some(process.start_time) {
            let _ = kill(Pid::from_raw(process.pid.get() as i32), signal);
        }
    }

    fn node_use(&self) -> NodeUse {
        NodeUse::default()
    }

    fn unused(&self, _: &SliceName) -> Duration {
        Duration::ZERO
    }

    fn idle(&self, slice: &SliceName) -> Option<Duration> {
        self.idle.lock().unwrap().contains(slice).then_some(Duration::from_secs(300))
    }

    fn clocks(&self) -> ClockReading {
        let (now, ahead) = (ClockReading::now(), *self.clocks.lock().unwrap());
        ClockReading {
            unix_ms: now.unix_ms.saturating_add_signed(ahead.set_ms),
            uptime: now.uptime + ahead.passed,
        }
    }

    fn set_condition(&self, condition: JobCondition, message: String) {
        self.told.lock().unwrap().push(message.clone());
        self.conditions.lock().unwrap().insert(condition, message);
    }

    fn clear_condition(&self, condition: JobCondition) {
        self.conditions.lock().unwrap().remove(&condition);
    }

    fn record(&self, happening: Happened) {
        self.told.lock().unwrap().push(format!("{happening:?}"));
    }
}

/// Start time of a live process.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace();
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18)?.parse().ok())?
}

/// A running job controller.
pub(crate) struct RunningController {
    pub(crate) controller: Arc<JobController<TestSlices>>,
    running: JoinHandle<()>,
    dies: bool,
}

/// Runs a daemon that crashes at the end.
pub(crate) fn daemon<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(work)
}

impl Drop for RunningController {
    /// Crashes the daemon; ends its jobs unless the next daemon has to find them.
    fn drop(&mut self) {
        self.running.abort();
        if self.dies {
            return;
        }
        for view in self.controller.jobs(None, None, ADMIN).unwrap_or_default() {
            let _ = self.controller.delete(&view.project, &view.name, ADMIN);
            for pid in view.members.iter().filter_map(|member| member.pid) {
                let _ = kill(Pid::from_raw(pid.get() as i32), Signal::SIGTERM);
            }
        }
    }
}

/// Parameters of a submission.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) project: String,
    pub(crate) name: String,
    pub(crate) gpus: String,
    pub(crate) command: Vec<String>,
    pub(crate) workdir: String,
    pub(crate) kind: JobKind,
    pub(crate) retries: u32,
    pub(crate) warning: Option<Warning>,
    pub(crate) parallelism: u32,
    pub(crate) completions: u32,
    pub(crate) max_runtime: Option<Duration>,
    pub(crate) after: Vec<String>,
    pub(crate) host: HostLimits,
    pub(crate) service: Option<ServiceSpec>,
    pub(crate) gang: bool,
}

pub(crate) fn wish(project: &str, name: &str, gpus: &str, script: &str) -> Wish {
    Wish {
        project: project.into(),
        name: name.into(),
        gpus: gpus.into(),
        command: ["sh", "-c", script].map(String::from).to_vec(),
        workdir: "/".into(),
        kind: JobKind::Training,
        retries: 0,
        warning: None,
        parallelism: 1,
        completions: 1,
        max_runtime: None,
        after: Vec::new(),
        host: HostLimits::default(),
        service: None,
        gang: false,
    }
}

impl From<Wish> for Submission {
    fn from(wish: Wish) -> Self {
        let size = match wish.gpus.parse().unwrap() {
            Share::Fraction(fraction) => Size::Part(fraction),
            Share::Whole(count) => Size::Whole(count),
            Share::Memory(_) => unreachable!("no wish is made in bytes"),
        };
        let path = std::env::var("PATH").unwrap();
        Self {
            spec: JobSpec {
                project: wish.project.parse().unwrap(),
                name: wish.name.parse().unwrap(),
                size,
                part: None,
                kind: wish.kind,
                preemptible: wish.kind == JobKind::Training,
                priority: Priority::DEFAULT,
                parallelism: NonZeroU32::new(wish.parallelism).unwrap(),
                completions: NonZeroU32::new(wish.completions).unwrap(),
                latency: None,
                gang: wish.gang,
                service: wish.service,
            },
            launch: LaunchSpec {
                command: wish.command,
                environment: vec![("PATH".into(), path)],
                workdir: wish.workdir,
                container: None,
            },
            terms: JobTerms {
                max_runtime: wish.max_runtime,
                retries: wish.retries,
                farewell: TerminationPolicy { warning: wish.warning, grace: Duration::from_millis(300) },
                host: wish.host,
            },
            after: wish.after.iter().map(|name| name.parse().unwrap()).collect(),
            ticket: None,
        }
    }
}

impl RunningController {
    /// Crashes the daemon and leaves its jobs running.
    pub(crate) fn dies(mut self) {
        self.dies = true;
    }

    pub(crate) fn create(&self, name: &str, quota: &str) -> Result<(), JobsError> {
        self.controller.create_project(Project::new(name.parse().unwrap(), quota.parse().unwrap()), false)
    }

    pub(crate) fn project(&self, name: &str, quota: &str) {
        self.create(name, quota).unwrap();
    }

    pub(crate) fn change(&self, name: &str, change: ProjectChange) {
        self.controller.update_project(&name.parse().unwrap(), change, false).unwrap();
    }

    pub(crate) fn submit(&self, wish: Wish) -> Result<(), JobsError> {
        self.submit_as(wish, ADMIN)
    }

    pub(crate) fn submit_as(&self, wish: Wish, requester: Requester) -> Result<(), JobsError> {
        let owner = JobOwner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        self.controller.submit(wish.into(), owner, requester)
    }

    pub(crate) fn delete(&self, project: &str, name: &str) -> Result<(), JobsError> {
        self.controller.delete(&project.parse().unwrap(), &name.parse().unwrap(), ADMIN)
    }

    pub(crate) fn suspend(&self, project: &str, name: &str, suspended: bool) -> Result<(), JobsError> {
        self.controller.suspend(&project.parse().unwrap(), &name.parse().unwrap(), suspended, ADMIN)
    }

    pub(crate) fn view(&self, project: &str, name: &str) -> Option<JobView> {
        let views =
            self.controller.jobs(Some(&project.parse().unwrap()), Some(&name.parse().unwrap()), ADMIN);
        views.ok().map(|mut views| views.remove(0))
    }

    pub(crate) fn log(&self, project: &str, name: &str, index: u32) -> String {
        let (project, name) = (project.parse().unwrap(), name.parse().unwrap());
        let part = self.controller.log(&project, &name, index, LogFrom::Byte(0), ADMIN).unwrap();
        String::from_utf8(part.bytes).unwrap()
    }

    /// Names and thousandths of GPUs of all entries of the history.
    fn standing(&self, project: &str) -> ProjectView {
        self.controller.projects().into_iter().find(|view| view.project.name.as_str() == project).unwrap()
    }

    /// GPUs that a project has.
    pub(crate) fn allocated(&self, project: &str) -> String {
        self.standing(project).allocated.to_string()
    }

    /// GPUs of those that are idle.
    pub(crate) fn idle(&self, project: &str) -> String {
        self.standing(project).idle.to_string()
    }

    /// Rows of the report of all times.
    pub(crate) fn report(&self, by: ReportKey) -> Vec<ReportRow> {
        let query = ReportQuery { until_unix_ms: u64::MAX, by, ..ReportQuery::default() };
        self.controller.report(query).unwrap().rows
    }

    pub(crate) fn history(&self) -> Vec<(String, u32)> {
        let points = self.controller.history(0).unwrap();
        points.into_iter().map(|point| (point.job, point.gpus.get())).collect()
    }

    /// Waits until a job is in a state.
    pub(crate) async fn until(&self, project: &str, name: &str, state: JobState) -> JobView {
        let there = async {
            loop {
                match self.view(project, name) {
                    Some(view) if view.state == state => return view,
                    _ => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let waited = timeout(Duration::from_secs(30), there).await;
        waited.unwrap_or_else(|_| panic!("{name} is never {state}: {:?}", self.view(project, name)))
    }

    pub(crate) async fn gone(&self, project: &str, name: &str) {
        let gone = async {
            while self.view(project, name).is_some() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), gone).await.expect("it never goes");
    }
}

/// Kills a process and waits until it has ended.
pub(crate) async fn killed(pid: u32) {
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    until(&format!("{pid} has ended"), || start_time(pid).is_none()).await;
}

/// Waits until a file exists.
pub(crate) async fn appears(path: &Path) {
    until(&format!("{} appears", path.display()), || path.exists()).await;
}

/// Waits for a predicate.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let there = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), there).await.unwrap_or_else(|_| panic!("never: {what}"));
}
