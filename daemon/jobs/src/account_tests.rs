//! Laws of the account over random histories, with crashes, reboots and steps of the system time.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tranche_domain::compute::Priority;
use tranche_domain::id::GpuUuid;
use tranche_domain::jobs::{
    HostLimits, JobKind, JobSpec, JobTerms, LaunchSpec, MemberId, MilliGpus, Phase, PoolGpu, Project,
    QuotaScheduler, Size, Submission, TerminationPolicy, UserSlice,
};
use tranche_domain::units::Bytes;

use crate::account::{GpuHolder, HeldPart, MeterId, UseAccount, UseSum};
use crate::clock::{Clock, ClockReading, Now};
use crate::folder::Folders;
use crate::record::{JobOwner, JobRecord, Run};
use crate::restore;
use crate::runner_protocol::CommandOutcome;
use crate::site::SliceUse;
use crate::state::ControllerState;
use crate::store::Store;

const GPUS: u8 = 4;

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    Submit {
        project: u8,
        size: Size,
        parallelism: u32,
    },
    /// A running member ends.
    End(usize),
    Delete(usize),
    /// A user's slice on this GPU begins.
    Slice {
        project: u8,
        gpu: u8,
    },
    /// All users' slices end.
    NoSlices,
    Idle(bool),
    Quota {
        project: u8,
        quota: u32,
    },
    /// The daemon saves what has changed, and nothing else happens.
    Save,
    /// The daemon starts again without saving.
    Crash,
    Reboot,
    /// The system time is set ahead or back by this many milliseconds.
    Set(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![
        (1u32..=999).prop_map(|part| Size::Part(part.try_into().unwrap())),
        (1u32..=3).prop_map(|count| Size::Whole(NonZeroU32::new(count).unwrap())),
    ];
    prop_oneof![
        4 => (0u8..2, size, 1u32..3).prop_map(|(project, size, parallelism)| Step::Submit { project, size, parallelism }),
        3 => (0usize..8).prop_map(Step::End),
        1 => (0usize..8).prop_map(Step::Delete),
        2 => (0u8..3, 0..GPUS).prop_map(|(project, gpu)| Step::Slice { project, gpu }),
        1 => Just(Step::NoSlices),
        1 => any::<bool>().prop_map(Step::Idle),
        1 => (0u8..2, 0u32..4_000).prop_map(|(project, quota)| Step::Quota { project, quota }),
        1 => Just(Step::Save),
        1 => Just(Step::Crash),
        1 => Just(Step::Reboot),
        2 => (-9_000_000i64..9_000_000).prop_map(Step::Set),
    ]
}

fn project(number: u8, quota: u32) -> Project {
    let name = ["a", "b", "default"][usize::from(number)];
    Project::new(name.parse().unwrap(), MilliGpus::new(quota))
}

fn gpu(number: u8) -> GpuUuid {
    GpuUuid::from_bytes([number + 1; 16])
}

/// A daemon's life, in a folder.
struct Life<'a> {
    store: Store,
    folders: Folders,
    folder: &'a Path,
    state: ControllerState,
    clock: Clock,
    reading: ClockReading,
    slices: Vec<UserSlice>,
    idle: bool,
    boots: u32,
    made: u64,
}

impl<'a> Life<'a> {
    fn begin(folder: &'a Path) -> Self {
        let store = Store::open(&folder.join("jobs.redb")).unwrap();
        let folders = Folders::open(folder.join("jobs")).unwrap();
        let reading = ClockReading { unix_ms: 1_000_000_000_000, uptime: Duration::from_secs(100) };
        let (state, clock) = (ControllerState::default(), Clock::default());
        let slices = Vec::new();
        let mut life =
            Self { store, folders, folder, state, clock, reading, slices, idle: false, boots: 0, made: 0 };
        life.start(false);
        for number in 0..2 {
            life.state.scheduler.set_project(project(number, 1_000), true).unwrap();
            life.state.unsaved.projects.push(project(number, 1_000));
        }
        life.round();
        life
    }

    fn boot(&self) -> String {
        self.boots.to_string()
    }

    fn now(&self) -> Now {
        self.clock.at(self.reading)
    }

    /// Starts a daemon with what is in the store.
    fn start(&mut self, rebooted: bool) {
        let all = self.store.read().unwrap();
        self.clock = Clock::again(all.node.clock, rebooted, self.reading);
        let gpus = (0..GPUS).map(|number| PoolGpu {
            index: number.into(),
            uuid: gpu(number),
            island: 0,
            capacity: Bytes::mib(16 << 10),
            outside: MilliGpus::ZERO,
            cordon: None,
            targets: Vec::new(),
        });
        self.state = restore::state(QuotaScheduler::new(gpus.collect()), all, &self.boot(), &self.folders);
    }

    /// A round of the controller: sees the node, decides, saves.
    fn round(&mut self) {
        let used = |slice: &UserSlice| SliceUse {
            name: slice.name.clone(),
            created_unix_ms: slice.created_unix_ms,
            owner_uid: slice.owner_uid,
            user: "ann".into(),
            pod: None,
            is_jobs: false,
            gpus: slice.gpus.iter().map(|gpu| (*gpu, MilliGpus::ONE)).collect(),
            used: BTreeMap::new(),
            idle: self.idle,
        };
        self.state.node_use.slices = self.slices.iter().map(used).collect();
        self.state.scheduler.set_user_slices(self.slices.clone());
        self.state.knows_users = true;
        self.state.decide(self.now());
        self.state.actions.clear();
        self.save();
    }

    fn save(&mut self) {
        let changes = self.state.changes(&self.boot(), self.now().clock);
        self.store.save(&changes).unwrap();
        self.state.clear_saved(changes);
    }

    fn submit(&mut self, number: u8, size: Size, parallelism: u32) {
        self.made += 1;
        let count = NonZeroU32::new(parallelism).unwrap();
        let spec = JobSpec {
            project: project(number, 0).name,
            name: format!("j{}", self.made).parse().unwrap(),
            size,
            part: None,
            kind: JobKind::Training,
            preemptible: true,
            priority: Priority::DEFAULT,
            parallelism: count,
            completions: count,
            latency: None,
            gang: false,
            service: None,
        };
        let Ok(id) = self.state.scheduler.submit(spec.clone()) else { return };
        let farewell = TerminationPolicy { warning: None, grace: Duration::ZERO };
        let terms = JobTerms { max_runtime: None, retries: 0, farewell, host: HostLimits::default() };
        let launch = LaunchSpec {
            command: vec!["x".into()],
            environment: Vec::new(),
            workdir: "/".into(),
            container: None,
        };
        let submission = Submission { spec, launch, terms, after: [].into(), ticket: None };
        self.state.insert(
            id,
            JobRecord::new(&submission, submission.spec.clone(), JobOwner { uid: 7, gid: 7 }, self.now()),
        );
    }

    fn end(&mut self, at: usize) {
        let bound: Vec<MemberId> = self.state.places.keys().copied().collect();
        if let Some(member) = bound.get(at % bound.len().max(1)) {
            let told = self.state.places[member].phase == Phase::Stopping;
            self.state.left(*member, Run::Ended { outcome: CommandOutcome::Exit(0), told }, self.now());
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Submit { project, size, parallelism } => self.submit(*project, *size, *parallelism),
            Step::End(at) => self.end(*at),
            Step::Delete(at) => {
                let ids: Vec<_> = self.state.entries.keys().copied().collect();
                if let Some(id) = ids.get(at % ids.len().max(1)) {
                    self.state.scheduler.delete(*id);
                    if !self.state.scheduler.jobs().contains_key(id) {
                        self.state.remove(*id);
                    }
                }
            }
            Step::Slice { project: number, gpu: on } => {
                self.made += 1;
                self.slices.push(UserSlice {
                    name: format!("s{}", self.made).parse().unwrap(),
                    owner_uid: 9,
                    created_unix_ms: self.made,
                    project: (*number < 2).then(|| project(*number, 0).name),
                    gpus: vec![gpu(*on)],
                    size: Size::Whole(NonZeroU32::MIN),
                    latency: None,
                });
            }
            Step::NoSlices => self.slices.clear(),
            Step::Idle(idle) => self.idle = *idle,
            Step::Quota { project: number, quota } => {
                self.state.scheduler.set_project(project(*number, *quota), true).unwrap();
                self.state.unsaved.projects.push(project(*number, *quota));
            }
            Step::Save => self.save(),
            Step::Crash => self.start(false),
            Step::Reboot => {
                self.boots += 1;
                self.slices.clear();
                self.reading.uptime = Duration::from_secs(3);
                self.start(true);
            }
            Step::Set(by) => self.reading.unix_ms = self.reading.unix_ms.saturating_add_signed(*by),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.reading.uptime += Duration::from_millis(ms);
        self.reading.unix_ms += ms;
    }

    /// Amounts of the account by project and name, those in memory included.
    fn account(&self) -> BTreeMap<(String, String), UseSum> {
        let mut sums: BTreeMap<(String, String), UseSum> = BTreeMap::new();
        let mut each = |_, holder: GpuHolder, sum: UseSum| {
            let project = holder.project.map(String::from).unwrap_or_default();
            sums.entry((project, holder.name)).or_default().add(&sum);
            true
        };
        self.store.uses().unwrap().each(&(0..=u64::MAX - 1), &mut each).unwrap();
        for ((hour, holder), sum) in self.state.unentered() {
            each(*hour, holder.clone(), sum.clone());
        }
        sums
    }

    /// Integral of the history, in the same units.
    fn integral(&self, until: u64) -> BTreeMap<(String, String), u64> {
        let mut last: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
        let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
        for point in self.store.history(0).unwrap() {
            let key = (String::from(point.project), point.job);
            let at = point.clock_ms.unwrap();
            let (from, gpus) = last.insert(key.clone(), (at, point.gpus.get().into())).unwrap_or((at, 0));
            *sums.entry(key).or_default() += gpus * (at - from);
        }
        for (key, (from, gpus)) in last {
            *sums.entry(key).or_default() += gpus * (until - from);
        }
        sums
    }
}

/// Runs a history and compares its account with the integral of its log.
fn hold(steps: &[(Step, u64)]) -> Result<u64, TestCaseError> {
    // In memory where that is possible: thousands of transactions wait for the disk otherwise.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let mut life = Life::begin(folder.path());
    for (step, ms) in steps {
        life.take(step);
        if !matches!(step, Step::Crash | Step::Reboot | Step::Save) {
            life.round();
        }
        let unended = life.state.entries.values().filter(|entry| entry.ended_unix_ms.is_none()).count();
        assert_eq!(life.state.unended_of(7), unended, "after {step:?}");
        life.pass(*ms);
    }
    life.round();
    let until = life.now().moment().millis();
    let (account, integral) = (life.account(), life.integral(until));
    for (key, allocated) in &integral {
        let sum = account.get(key).cloned().unwrap_or_default();
        prop_assert_eq!(sum.allocated, *allocated, "{:?}", key);
    }
    for (key, sum) in &account {
        prop_assert!(integral.contains_key(key) || sum.allocated == 0, "{:?} is in no history", key);
        prop_assert!(sum.idle <= sum.allocated && sum.borrowed <= sum.allocated, "{:?}", sum);
    }
    assert!(life.folder.exists());
    Ok(integral.values().sum())
}

#[test]
fn account_is_the_integral_of_the_history() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 1_000, ..ProptestConfig::default() });
    let history = prop::collection::vec((step(), 0u64..5_000_000), 1..25);
    let total = std::cell::Cell::new(0_u64);
    runner
        .run(&history, |steps| {
            total.set(total.get() + hold(&steps)? / 1_000_000);
            Ok(())
        })
        .unwrap();
    assert!(total.get() > 0, "no GPU was held in any history");
}

#[test]
fn account_is_saved_once_it_changes_and_each_minute_of_use() {
    let folder = tempfile::tempdir().unwrap();
    let mut life = Life::begin(folder.path());
    let saves = |life: &mut Life<'_>| {
        life.state.decide(life.now());
        let changes = life.state.changes(&life.boot(), life.now().clock);
        life.store.save(&changes).unwrap();
        let saves = changes.account.is_some();
        life.state.clear_saved(changes);
        saves
    };
    life.submit(0, Size::Whole(NonZeroU32::MIN), GPUS.into());
    assert!(saves(&mut life), "all GPUs are held");
    life.pass(59_999);
    life.submit(0, Size::Whole(NonZeroU32::MIN), 1);
    assert!(!saves(&mut life) && life.state.unentered().count() > 0, "a job waits beside it");
    life.pass(1);
    assert!(saves(&mut life) && life.state.unentered().count() == 0, "a minute has passed");
    life.end(0);
    assert!(saves(&mut life), "another job has its GPU");
    life.start(false);
    assert!(saves(&mut life), "the row may be an earlier release's");
}

#[test]
fn use_of_a_slice_that_is_no_longer_held_is_entered_until_it_ends() {
    let holder = GpuHolder { project: None, uid: 7, name: "j".into(), gpu: gpu(0) };
    let id = MeterId { slice: "a.j.0".parse().unwrap(), created_unix_ms: 1, gpu: gpu(0) };
    let ms = Duration::from_millis;
    let part = |used| HeldPart {
        holder: holder.clone(),
        gpus: MilliGpus::ONE,
        idle: false,
        meter: Some((id.clone(), ms(used))),
    };
    let now = Clock::default().at(ClockReading { unix_ms: 5, uptime: Duration::ZERO });
    let live = |used| BTreeMap::from([(id.clone(), ms(used))]);
    let none = BTreeMap::new;
    let used = |account: &UseAccount| account.unsaved.values().map(|sum| sum.used_us).sum::<u64>();
    let mut account = UseAccount::default();
    account.observe(now, vec![part(10)], &live(10), &none(), |_| None);
    // Its member stops, and works on; then it has left, which is known before its slice's end is.
    account.observe(now, Vec::new(), &live(25), &none(), |_| None);
    account.observe(now, Vec::new(), &live(25), &none(), |_| None);
    assert_eq!(used(&account), 25_000);
    let ended = BTreeMap::from([((id.slice.clone(), id.gpu), ms(40))]);
    account.observe(now, Vec::new(), &BTreeMap::new(), &ended, |_| None);
    account.observe(now, Vec::new(), &BTreeMap::new(), &BTreeMap::new(), |_| None);
    assert_eq!(used(&account), 40_000);
    // The counters of the next daemon begin at zero.
    account.observe(now, vec![part(3)], &live(3), &none(), |_| None);
    let mut next = UseAccount::again(account.saved());
    next.observe(now, vec![part(5)], &live(5), &none(), |_| None);
    assert_eq!(used(&next), 5_000);
}
