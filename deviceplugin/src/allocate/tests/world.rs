//! A kubelet, a daemon and a plugin that is restarted at will, in any order.

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
    /// A pod of so many devices is admitted; the daemon fails the step of that number, if there are as many.
    Admit { devices: usize, fails_at: usize, init_container: bool },
    /// A pod's program starts.
    Run(usize),
    /// A pod ends: the kubelet takes its devices for free.
    End(usize),
    /// Time passes, and the kubelet is asked.
    Look(u64),
    /// A new plugin takes over.
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1usize..4, 0usize..8, any::<bool>())
            .prop_map(|(devices, fails_at, init_container)| Event::Admit { devices, fails_at, init_container }),
        3 => (0usize..8).prop_map(Event::Run),
        3 => (0usize..8).prop_map(Event::End),
        3 => (0u64..40).prop_map(Event::Look),
        1 => Just(Event::Restart),
    ]
}

type Pod = u32;

#[derive(Clone, Debug, PartialEq)]
struct World {
    scene: Scene,
    absences: Absences,
    now: Duration,
    /// The kubelet's book, and for whom each slice was last made or given again.
    pods: BTreeMap<Pod, Vec<DeviceId>>,
    slices_for: BTreeMap<DeviceId, Pod>,
    next: Pod,
}

impl World {
    fn new() -> Self {
        Self {
            scene: idle(GPUS),
            absences: Absences::default(),
            now: Duration::ZERO,
            pods: BTreeMap::new(),
            slices_for: BTreeMap::new(),
            next: 0,
        }
    }

    fn listed(&self) -> BTreeSet<DeviceId> {
        self.pods.values().flatten().cloned().collect()
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Admit { devices, fails_at, init_container } => {
                self.admit(*devices, *fails_at, *init_container);
            }
            Event::Run(pod) => self.run(*pod),
            Event::End(pod) => drop(self.nth(*pod).and_then(|pod| self.end(pod))),
            Event::Look(seconds) => self.look(Duration::from_secs(*seconds)),
            Event::Restart => self.absences = Absences::default(),
        }
    }

    fn nth(&self, number: usize) -> Option<Pod> {
        self.pods.keys().nth(number).copied()
    }

    fn admit(&mut self, count: usize, fails_at: usize, init_container: bool) {
        let offer = offer(LAYOUT, GPUS);
        let held = self.listed();
        let free: Vec<_> = offer.devices.keys().filter(|device| !held.contains(device)).cloned().collect();
        let chosen = preferred(&self.scene, &free, &[], count);
        if chosen.len() < count {
            return; // Insufficient, says the kubelet.
        }
        let texts = vec![chosen.iter().map(ToString::to_string).collect()];
        let profile = "p".parse().unwrap();
        let devices = read(&offer, &profile, &texts).expect("what is preferred is allowed").remove(0);
        self.next += 1;
        let before = self.scene.slices.clone();
        if self.allocate(&devices, fails_at) {
            self.pods.insert(self.next, devices.clone());
            if init_container {
                let made = self.scene.clone();
                assert!(
                    self.allocate(&devices, usize::MAX),
                    "the app container gets what the init container had"
                );
                assert_eq!(self.scene, made, "as it was");
            }
        } else {
            // Nothing half-made; at most an earlier pod's remains are gone.
            assert!(
                self.scene.slices.iter().all(|slice| before.contains_key(slice.0)),
                "{:?}",
                self.scene.slices
            );
        }
    }

    /// As the plugin does it: it asks the kubelet, plans, and does one step after the other.
    fn allocate(&mut self, devices: &[DeviceId], fails_at: usize) -> bool {
        self.absences.observe(&self.scene, &self.listed(), self.now);
        let mut plan =
            Transaction::plan(&self.scene, &self.absences, devices).expect("the kubelet keeps its book");
        for number in 0.. {
            let Some(step) = plan.next().cloned() else { break };
            let success = number != fails_at;
            if success {
                self.act(&step);
            }
            plan.done(success);
        }
        let done = plan.outcome() == Some(Outcome::Done);
        if done {
            self.slices_for.extend(devices.iter().map(|device| (device.clone(), self.next)));
        }
        done
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::End(device) => {
                self.scene.slices.remove(device).expect("what is ended is there");
                self.absences.begin_anew(device);
                assert!(!self.listed().contains(device), "a listed pod's slice was ended");
            }
            Step::Make(device) => {
                let before = self.scene.slices.insert(device.clone(), Occupied::No);
                assert_eq!(before, None, "given away twice");
            }
        }
    }

    fn run(&mut self, pod: usize) {
        for device in self.nth(pod).and_then(|pod| self.pods.get(&pod)).into_iter().flatten() {
            self.scene.slices.insert(device.clone(), Occupied::Yes);
        }
    }

    fn end(&mut self, pod: Pod) -> Option<()> {
        for device in self.pods.remove(&pod)? {
            *self.scene.slices.get_mut(&device)? = Occupied::No;
        }
        Some(())
    }

    fn look(&mut self, later: Duration) {
        self.now += later;
        for device in self.absences.observe(&self.scene, &self.listed(), self.now) {
            self.act(&Step::End(device));
        }
    }

    fn check(&self) {
        for (pod, devices) in &self.pods {
            let gpus: BTreeSet<_> = devices.iter().map(|device| device.gpu).collect();
            assert_eq!(gpus.len(), devices.len(), "two parts of one GPU");
            for device in devices {
                assert!(self.scene.slices.contains_key(device), "{device} of pod {pod} is no slice");
                assert_eq!(self.slices_for[device], *pod, "{device} is another pod's as well");
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_no_device_is_given_twice_lost_or_kept(events in prop::collection::vec(event(), 0..60)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
            world.check();
        }
        while let Some(pod) = world.nth(0) {
            world.end(pod);
        }
        world.look(Duration::ZERO);
        world.look(GRACE);
        prop_assert!(world.scene.slices.is_empty(), "left behind: {:?}", world.scene.slices);
    }

    #[test]
    fn the_same_events_make_the_same_world(events in prop::collection::vec(event(), 0..30)) {
        let end = || {
            let mut world = World::new();
            events.iter().for_each(|event| world.happen(event));
            world
        };
        prop_assert_eq!(end(), end());
    }
}
