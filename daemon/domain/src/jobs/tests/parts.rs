//! Memory and compute of members: what counts for them, and slices that can always be created.

use proptest::prelude::*;

use super::properties::PROJECTS;
use super::*;
use crate::id::GpuSelector;
use crate::jobs::{BadMemberPart, JobRefusal, MemberPart, Wait};
use crate::node::{Gpu, Node, Origin};
use crate::request::SliceRequest;
use crate::units::Permille;

/// Capacities in MiB: GPUs of several models in one node, one of them with an odd number.
const CAPACITIES: [u64; 4] = [16_160, 16_160, 32_510, 143_771];

#[derive(Clone, Debug)]
enum Step {
    Submit {
        project: usize,
        share: Option<&'static str>,
        memory: Option<u64>,
        compute: Option<u32>,
        members: u32,
    },
    /// A user's slice of this memory in MiB and compute on any GPU.
    Create(u64, u32),
    End(prop::sample::Index),
    /// The GPUs that a project may use.
    Permit(usize, BTreeSet<u32>),
}

fn step() -> impl Strategy<Value = Step> {
    let share = prop::option::of(prop::sample::select(&["0.001", "0.2", "0.5", "0.7", "0.999"][..]));
    let memory = || prop_oneof![1u64..=200, 1_000u64..=17_000, prop::sample::select(&CAPACITIES[..])];
    let amounts = (share, prop::option::of(memory()), prop::option::of(1u32..=1000));
    prop_oneof![
        6 => (0..PROJECTS.len(), amounts, 1u32..=3).prop_map(|(project, (share, memory, compute), members)| {
            Step::Submit { project, share, memory, compute, members }
        }),
        2 => (memory(), 1u32..=400).prop_map(|(memory, compute)| Step::Create(memory, compute)),
        3 => any::<prop::sample::Index>().prop_map(Step::End),
        1 => (0..PROJECTS.len(), prop::collection::btree_set(0u32..4, 0..=3))
            .prop_map(|(project, gpus)| Step::Permit(project, gpus)),
    ]
}

fn node() -> Node {
    let gpu = |(index, capacity): (usize, &u64)| Gpu {
        index: index as u32,
        uuid: GpuUuid::from_bytes([index as u8; 16]),
        island: 0,
        capacity: Bytes::mib(*capacity),
        obstacle: None,
    };
    Node::new(CAPACITIES.iter().enumerate().map(gpu).collect())
}

/// The quota scheduler and the node's slices, as the daemon keeps them together.
struct Sliced {
    scheduler: QuotaScheduler,
    node: Node,
    /// Members with a slice.
    started: BTreeSet<MemberId>,
}

impl Sliced {
    fn new() -> Self {
        let node = node();
        let mut scheduler = QuotaScheduler::new(node.for_jobs(&BTreeSet::new()));
        for (name, quota) in PROJECTS.iter().zip(["2", "1", "0.5"]) {
            scheduler.set_project(project(name, quota), false).unwrap();
        }
        Self { scheduler, node, started: BTreeSet::new() }
    }

    fn take(&mut self, at: usize, step: &Step) {
        match step {
            Step::Submit { project, share, memory, compute, members } => {
                let compute = compute.and_then(|compute| Permille::try_from(compute).ok());
                let Ok((size, part)) = MemberPart::of(share.map(size), memory.map(Bytes::mib), compute)
                else {
                    return;
                };
                let members = NonZeroU32::new(*members).unwrap();
                let plain = spec(PROJECTS[*project], &std::format!("j-{at}"), "1", JobKind::Training);
                let wide = JobSpec { size, part, parallelism: members, completions: members, ..plain };
                // Refused where no GPU has the memory.
                let _ = self.scheduler.submit(wide);
            }
            Step::Create(memory, compute) => {
                self.node.set_kept(self.scheduler.kept());
                let (share, compute) =
                    (Share::Memory(Bytes::mib(*memory)), Permille::try_from(*compute).ok());
                let request = request(std::format!("u-{at}"), (share, None, compute), Vec::new());
                // Refused where there is no room.
                let _ = self.node.create(&request, Origin { uid: 7, now_unix_ms: at as u64, job: None });
            }
            Step::End(which) => {
                let all: Vec<_> =
                    self.node.slices().values().map(|slice| (slice.name.clone(), slice.job)).collect();
                if !all.is_empty() {
                    let (name, member) = &all[which.index(all.len())];
                    self.node.delete(name).unwrap();
                    if let Some(member) = member {
                        self.started.remove(member);
                        self.scheduler.member_exited(*member, Exit::Completed);
                    }
                }
            }
            Step::Permit(project, gpus) => {
                let mut permitted =
                    self.scheduler.project(&PROJECTS[*project].parse().unwrap()).unwrap().clone();
                permitted.affinity.clear();
                permitted.affinity.extend((!gpus.is_empty()).then(|| (JobKind::Training, gpus.clone())));
                self.scheduler.set_project(permitted, true).unwrap();
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        for _ in 0..200 {
            self.scheduler.set_user_slices(self.node.user_slices());
            let actions = self.scheduler.decide();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    Action::Start { member, gpus } => self.start(member, &gpus),
                    Action::Stop { member, .. } => self.stop(member),
                    Action::Unpark { member } | Action::Recall { member, .. } => {
                        panic!("{member:?} was never parked, nor of a gang")
                    }
                }
            }
        }
        panic!("the node never comes to rest");
    }

    /// Creates a member's slice, which must not fail.
    fn start(&mut self, member: MemberId, gpus: &[GpuUuid]) {
        let spec = self.scheduler.jobs()[&member.job].spec.clone();
        let name = std::format!("{}.{}.{}", spec.project, spec.name, member.index);
        let request = request(name, spec.amounts(), gpus.iter().map(|gpu| GpuSelector::Uuid(*gpu)).collect());
        let created = self.node.create(&request, Origin { uid: 7, now_unix_ms: 0, job: Some(member) });
        assert!(created.is_ok(), "{spec:?} on {gpus:?}: {created:?}");
        self.started.insert(member);
    }

    fn stop(&mut self, member: MemberId) {
        if let Some(slice) = self.scheduler.user_slice(member) {
            drop(self.node.delete(&slice.name.clone()));
            return;
        }
        let slice = self.node.slices().values().find(|slice| slice.job == Some(member));
        let name = slice.map(|slice| slice.name.clone()).unwrap();
        self.node.delete(&name).unwrap();
        self.started.remove(&member);
        self.scheduler.member_exited(member, Exit::Requeued);
    }

    /// Each member counts for at least what its slice takes, and no GPU has more than itself.
    fn check(&self) {
        for (slice, parts) in self.node.holdings().filter(|(slice, _)| slice.job.is_some()) {
            let spec = &self.scheduler.jobs()[&slice.job.unwrap().job].spec;
            for (_, part) in &parts {
                assert!(*part <= spec.size.of_each(), "{spec:?} has {part} and counts for {}", spec.size);
            }
            let total = parts.iter().map(|(_, part)| *part).sum::<MilliGpus>();
            assert!(total <= spec.size.total(), "{spec:?} has {total}");
        }
        for gpu in self.node.gpus() {
            let (memory, compute) = self.node.committed(gpu.uuid);
            assert!(memory <= gpu.capacity && compute <= Permille::WHOLE);
            let jobs = self.started.iter().filter_map(|member| {
                let (_, gpus) = self.scheduler.binding(*member)?;
                let spec = &self.scheduler.jobs()[&member.job].spec;
                gpus.contains(&gpu.uuid).then(|| spec.size.of_each())
            });
            let sum: MilliGpus = jobs.sum();
            assert!(sum <= MilliGpus::ONE, "the jobs of GPU {} count for {sum}", gpu.index);
        }
    }
}

fn request(
    name: String,
    (share, memory, compute): (Share, Option<Bytes>, Option<Permille>),
    gpus: Vec<GpuSelector>,
) -> SliceRequest {
    SliceRequest { name: Some(name.parse().unwrap()), memory, compute, gpus, ..SliceRequest::of(share) }
}

proptest! {
    #[test]
    fn slice_of_a_bound_member_fits_and_counts_for_at_least_what_it_takes(
        steps in prop::collection::vec(step(), 1..24),
    ) {
        let mut world = Sliced::new();
        for (at, step) in steps.iter().enumerate() {
            world.take(at, step);
            world.check();
        }
    }

    #[test]
    fn job_counts_as_a_user_s_slice_of_the_same_amounts_does(
        capacity in 1_000u64..200_000,
        memory in prop::option::of(1u64..=200_000),
        share in prop::option::of(1u32..=999),
        compute in prop::option::of(1u32..=1000),
    ) {
        let share = share.map(|share| Size::Part(share.try_into().unwrap()));
        let compute = compute.and_then(|compute| Permille::try_from(compute).ok());
        let memory = memory.map(|memory| Bytes::mib(memory.min(capacity)));
        prop_assume!(memory.is_some() || share.is_some() && compute.is_some());
        let (size, part) = MemberPart::of(share, memory, compute).unwrap();
        let gpu = Gpu {
            index: 0,
            uuid: GpuUuid::from_bytes([0; 16]),
            island: 0,
            capacity: Bytes::mib(capacity),
            obstacle: None,
        };
        let mut node = Node::new(vec![gpu]);
        let mut scheduler = QuotaScheduler::new(node.for_jobs(&BTreeSet::new()));
        scheduler.set_project(project("a", "1"), false).unwrap();
        let id = scheduler.submit(JobSpec { size, part, ..spec("a", "j", "1", JobKind::Training) }).unwrap();
        let spec = scheduler.jobs()[&id].spec.clone();
        // A share of a GPU counts as such, and its memory is rounded down to whole MiB.
        let request = request("u".into(), spec.amounts(), vec![GpuSelector::Index(0)]);
        if node.create(&request, Origin { uid: 7, now_unix_ms: 0, job: None }).is_ok() {
            let user = node.user_slices().remove(0).size;
            prop_assert!(user.total() <= spec.size.total());
            if memory.is_some() {
                prop_assert_eq!(user, spec.size);
            }
        }
    }
}

fn submit(
    scheduler: &mut QuotaScheduler,
    name: &str,
    amounts: (Option<&str>, Option<u64>, Option<u32>),
) -> Result<JobId, JobRefusal> {
    let (share, memory, compute) = amounts;
    let compute = compute.map(|compute| Permille::try_from(compute).unwrap());
    let (size, part) = MemberPart::of(share.map(size), memory.map(Bytes::mib), compute).unwrap();
    scheduler.submit(JobSpec { size, part, ..spec("a", name, "1", JobKind::Training) })
}

#[test]
fn size_is_the_larger_of_memory_and_compute_on_the_smallest_gpu_that_has_the_memory() {
    let mut world = Sliced::new();
    let mut counts = |name: &str, amounts| {
        let id = submit(&mut world.scheduler, name, amounts).unwrap();
        world.scheduler.jobs()[&id].spec.size.to_string()
    };
    assert_eq!(counts("memory", (None, Some(8_080), None)), "0.5");
    assert_eq!(counts("odd", (None, Some(8_081), None)), "0.501");
    assert_eq!(counts("busy", (None, Some(8_080), Some(700))), "0.7");
    assert_eq!(counts("both", (Some("0.2"), Some(8_080), None)), "0.5");
    assert_eq!(counts("slow", (Some("0.5"), None, Some(100))), "0.5");
    assert_eq!(counts("small", (Some("0.5"), Some(1), Some(100))), "0.1");
    assert_eq!(counts("large", (None, Some(30_000), None)), "0.923", "it is larger than the smallest GPUs");
    assert_eq!(counts("all", (None, Some(16_160), None)), "1");
    let refused = submit(&mut world.scheduler, "huge", (None, Some(143_772), None)).unwrap_err();
    assert!(refused.to_string().contains("143771 MiB"), "{refused}");
}

#[test]
fn member_waits_with_a_reason_where_no_permitted_gpu_has_its_memory_within_its_size() {
    let mut world = Sliced::new();
    let permit = |world: &mut Sliced, gpus: &[u32]| {
        world.take(0, &Step::Permit(0, gpus.iter().copied().collect()));
    };
    permit(&mut world, &[3]);
    let id = submit(&mut world.scheduler, "large", (None, Some(16_000), None)).unwrap();
    assert_eq!(world.scheduler.jobs()[&id].spec.size.to_string(), "0.112", "of the GPU that it may use");
    permit(&mut world, &[0, 1, 2]);
    let wait = world.scheduler.wait(id).unwrap();
    assert!(matches!(wait, Wait::Memory { .. }), "{wait:?}");
    assert!(wait.to_string().contains("16000 MiB within 0.112"), "{wait}");
    permit(&mut world, &[]);
    assert_eq!((world.scheduler.wait(id), world.started.len()), (None, 1));
}

#[test]
fn contradictory_amounts_are_refused() {
    let refused = |share: Option<&str>, memory: Option<u64>, compute: Option<Permille>| {
        MemberPart::of(share.map(size), memory.map(Bytes::mib), compute).unwrap_err()
    };
    let some = Permille::try_from(5).ok();
    assert_eq!(refused(None, None, some), BadMemberPart::Missing);
    assert_eq!(refused(Some("2"), Some(5), None), BadMemberPart::WholeGpus);
    assert_eq!(refused(Some("1"), None, some), BadMemberPart::WholeGpus);
    assert_eq!(refused(None, Some(0), None), BadMemberPart::NoMemory);
    assert_eq!(refused(Some("0.5"), None, Some(Permille::ZERO)), BadMemberPart::NoCompute);
}
