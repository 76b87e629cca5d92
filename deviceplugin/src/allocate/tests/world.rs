//! Simulation of a kubelet, a daemon and a restarted plugin, for events in any order.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::prefer::preferred;
use crate::release::GRACE;

const GPUS: u8 = 4;
const LAYOUT: &str = "[[profile]]\nname = 'p'\nfraction = 0.3\n[[layout]]\nprofiles = ['p', 'p', 'p']";

#[derive(Clone, Debug)]
enum Event {
    /// A pod is admitted: an init container and another, with these numbers of devices. The daemon fails the
    /// second one's step of number `fails_at`, if it has as many.
    Admit { init: usize, devices: usize, fails_at: usize },
    /// The next container of a pod starts, or the last one restarts.
    Start(usize),
    /// The container of a pod ends.
    Finish(usize),
    /// A pod ends, and the kubelet regards its devices as free.
    End(usize),
    /// Time passes, and the kubelet's list is read.
    Look(u64),
    /// Another plugin process takes over.
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0usize..4, 1usize..4, 0usize..8)
            .prop_map(|(init, devices, fails_at)| Event::Admit { init, devices, fails_at }),
        4 => (0usize..8).prop_map(Event::Start),
        3 => (0usize..8).prop_map(Event::Finish),
        2 => (0usize..8).prop_map(Event::End),
        3 => (0u64..40).prop_map(Event::Look),
        1 => Just(Event::Restart),
    ]
}

type Number = u32;

/// A pod in the kubelet's state.
#[derive(Clone, Debug, Default, PartialEq)]
struct Pod {
    /// Devices of each container, in the order of their start.
    containers: Vec<Bundle>,
    /// Number of containers started.
    started: usize,
    runs: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct World {
    headroom: NodeHeadroom,
    absences: Absences,
    now: Duration,
    pods: BTreeMap<Number, Pod>,
    next: Number,
}

impl World {
    fn new() -> Self {
        Self {
            headroom: idle(GPUS),
            absences: Absences::default(),
            now: Duration::ZERO,
            pods: BTreeMap::new(),
            next: 0,
        }
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Admit { init, devices, fails_at } => {
                self.next += 1;
                if self.admit(*init, *devices, *fails_at).is_none() {
                    self.pods.remove(&self.next);
                }
            }
            Event::Start(pod) => drop(self.nth(*pod).map(|pod| self.start(pod))),
            Event::Finish(pod) => drop(self.nth(*pod).map(|pod| self.finish(pod))),
            Event::End(pod) => drop(self.nth(*pod).map(|pod| self.end(pod))),
            Event::Look(seconds) => self.refresh(Duration::from_secs(*seconds)),
            Event::Restart => self.absences = Absences::default(),
        }
    }

    fn nth(&self, number: usize) -> Option<Number> {
        self.pods.keys().nth(number).copied()
    }

    /// Devices in the kubelet's list, which omits init containers.
    fn listed(&self) -> BTreeSet<DeviceId> {
        let last = self.pods.values().filter_map(|pod| pod.containers.last());
        last.flat_map(Bundle::devices).cloned().collect()
    }

    /// Devices that the kubelet has allocated.
    fn held(&self) -> BTreeSet<DeviceId> {
        let all = self.pods.values().flat_map(|pod| &pod.containers);
        all.flat_map(Bundle::devices).cloned().collect()
    }

    fn admit(&mut self, init: usize, devices: usize, fails_at: usize) -> Option<()> {
        self.pods.insert(self.next, Pod::default());
        let reusable = match init {
            0 => Vec::new(),
            count => self.give(&[], count, usize::MAX)?,
        };
        let must: Vec<_> = reusable.into_iter().take(devices).collect();
        self.give(&must, devices, fails_at).map(drop)
    }

    /// Allocates devices to another container of the pod under admission.
    fn give(&mut self, must: &[DeviceId], count: usize, fails_at: usize) -> Option<Vec<DeviceId>> {
        let (offer, held) = (offer(LAYOUT, GPUS), self.held());
        let free: Vec<_> = offer.devices.keys().filter(|device| !held.contains(device)).cloned().collect();
        let chosen = preferred(&self.headroom, &free, must, count);
        if chosen.len() < count {
            return None; // The kubelet finds too few devices.
        }
        let texts = vec![chosen.iter().map(ToString::to_string).collect()];
        let profile = "p".parse().unwrap();
        let bundle = read(&offer, &profile, &texts).expect("what is preferred is allowed").remove(0);
        let before = self.headroom.slices.clone();
        if !self.allocate(&bundle, fails_at) {
            let slices = &self.headroom.slices;
            assert!(slices.keys().all(|slice| before.contains_key(slice)), "half-made: {slices:?}");
            return None;
        }
        self.pods.entry(self.next).or_default().containers.push(bundle);
        Some(chosen)
    }

    /// The plugin's sequence: read the kubelet's list, plan, execute each step.
    fn allocate(&mut self, bundle: &Bundle, fails_at: usize) -> bool {
        self.absences.observe(&self.headroom, &self.listed(), self.now);
        let plan = Transaction::plan(&self.headroom, &self.absences, std::slice::from_ref(bundle));
        let mut plan = plan.expect("the kubelet keeps its book");
        for number in 0.. {
            let Some(step) = plan.next().cloned() else { break };
            let success = number != fails_at;
            if success {
                self.act(&step);
            }
            plan.done(success);
        }
        plan.outcome() == Some(Outcome::Done)
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::End(bundle) => {
                self.headroom.slices.remove(bundle).expect("what is ended is there");
                self.absences.reset(bundle);
                for pod in self.pods.values().filter(|pod| pod.runs) {
                    assert_ne!(
                        &pod.containers[pod.started - 1],
                        bundle,
                        "a running container's slice was ended"
                    );
                }
            }
            Step::Make(bundle) => {
                let taken = self.headroom.slices.keys().find(|slice| slice.overlaps(bundle));
                assert_eq!(taken, None, "given away twice");
                self.headroom.slices.insert(bundle.clone(), Occupied::No);
            }
        }
    }

    fn start(&mut self, number: Number) {
        let Some(pod) = self.pods.get_mut(&number).filter(|pod| !pod.runs) else { return };
        pod.started = (pod.started + 1).min(pod.containers.len());
        let bundle = pod.containers[pod.started - 1].clone();
        if !self.headroom.slices.contains_key(&bundle) {
            assert!(self.allocate(&bundle, usize::MAX), "what is ready to start has its slice made");
        }
        self.headroom.slices.insert(bundle, Occupied::Yes);
        self.pods.entry(number).or_default().runs = true;
    }

    fn finish(&mut self, number: Number) {
        let Some(pod) = self.pods.get_mut(&number).filter(|pod| pod.runs) else { return };
        pod.runs = false;
        self.headroom.slices.insert(pod.containers[pod.started - 1].clone(), Occupied::No);
    }

    fn end(&mut self, number: Number) {
        self.finish(number);
        self.pods.remove(&number);
    }

    fn refresh(&mut self, later: Duration) {
        self.now += later;
        let listed = self.listed();
        for bundle in self.absences.observe(&self.headroom, &listed, self.now) {
            assert!(!bundle.devices().iter().any(|device| listed.contains(device)), "of a pod that is there");
            self.act(&Step::End(bundle));
        }
    }

    fn check(&self) {
        let mut seen = BTreeSet::new();
        for device in self.headroom.slices.keys().flat_map(Bundle::devices) {
            assert!(seen.insert(device), "{device} is in two slices");
        }
        let mut seen = BTreeSet::new();
        for (number, pod) in &self.pods {
            let devices: BTreeSet<_> = pod.containers.iter().flat_map(Bundle::devices).collect();
            assert!(devices.into_iter().all(|device| seen.insert(device)), "a device of two pods");
            let (slices, last) = (&self.headroom.slices, pod.containers.last().expect("every pod has one"));
            let plain = pod.containers.len() == 1;
            assert!(!plain || slices.contains_key(last), "pod {number} lost its slice");
            let running = pod.runs.then(|| &pod.containers[pod.started - 1]);
            assert!(running.is_none_or(|slice| slices.get(slice) == Some(&Occupied::Yes)), "pod {number}");
        }
    }
}

proptest! {
    #[test]
    fn no_device_is_duplicated_lost_or_leaked(events in prop::collection::vec(event(), 0..60)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
            world.check();
        }
        while let Some(pod) = world.nth(0) {
            world.end(pod);
        }
        world.refresh(Duration::ZERO);
        world.refresh(GRACE);
        prop_assert!(world.headroom.slices.is_empty(), "left behind: {:?}", world.headroom.slices);
    }

    #[test]
    fn equal_events_give_equal_states(events in prop::collection::vec(event(), 0..30)) {
        let end = || {
            let mut world = World::new();
            events.iter().for_each(|event| world.happen(event));
            world
        };
        prop_assert_eq!(end(), end());
    }
}
