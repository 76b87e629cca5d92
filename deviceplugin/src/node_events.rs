//! Content of node events: failures and recoveries of GPUs, and lost races.

use std::collections::BTreeMap;
use std::time::Duration;

use tranche_domain::id::GpuUuid;

use crate::device_states::DeviceStates;
use crate::health::{Broken, Health};

/// An event to post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeEvent {
    /// Reason, a stable identifier.
    pub(crate) reason: &'static str,
    /// True if the event requires attention.
    pub(crate) is_warning: bool,
    /// Text of the event, for the operator.
    pub(crate) message: String,
}

/// Minimum interval between events about lost races.
pub(crate) const RACES_EVERY: Duration = Duration::from_secs(60);

/// State of the events posted so far.
#[derive(Debug, Default)]
pub(crate) struct EventState {
    broken: BTreeMap<GpuUuid, Broken>,
    races: u64,
    races_at: Option<Duration>,
}

impl EventState {
    /// Events for a new publication and `races` lost races in total. `now` is a time on a monotonic clock.
    /// Without the daemon the GPUs' state is unknown and unchanged.
    pub(crate) fn news(&mut self, shown: &DeviceStates, races: u64, now: Duration) -> Vec<NodeEvent> {
        let mut news = if shown.daemon { self.of_gpus(shown) } else { Vec::new() };
        news.extend(self.of_races(races, now));
        news
    }

    fn of_gpus(&mut self, shown: &DeviceStates) -> Vec<NodeEvent> {
        let mut now = BTreeMap::new();
        for (device, health) in &shown.health {
            if let Health::Broken(broken) = health {
                now.entry(device.gpu).or_insert_with(|| broken.clone());
            }
        }
        let before = std::mem::replace(&mut self.broken, now);
        let broke = self.broken.iter().filter(|(gpu, why)| before.get(gpu) != Some(why));
        let recovered = before.iter().filter(|(gpu, _)| !self.broken.contains_key(gpu));
        let broke = broke.map(|(gpu, why)| is_broken(*gpu, why));
        broke.chain(recovered.map(|(gpu, why)| is_well(*gpu, why))).collect()
    }

    fn of_races(&mut self, races: u64, now: Duration) -> Option<NodeEvent> {
        let lost = races.checked_sub(self.races).filter(|lost| *lost > 0)?;
        if self.races_at.is_some_and(|at| now.saturating_sub(at) < RACES_EVERY) {
            return None;
        }
        (self.races, self.races_at) = (races, Some(now));
        let message = format!(
            "{lost} allocation(s) were refused because others had taken the room since the device was offered; their pods \
             have to be made again"
        );
        Some(NodeEvent { reason: "GpuRaceLost", is_warning: true, message })
    }
}

fn is_broken(gpu: GpuUuid, why: &Broken) -> NodeEvent {
    let message = format!("{gpu} is {}; no new pod gets a part of it", Health::Broken(why.clone()));
    NodeEvent { reason: "GpuBroken", is_warning: true, message }
}

fn is_well(gpu: GpuUuid, why: &Broken) -> NodeEvent {
    let message = format!("{gpu} can be had again; it was {}", Health::Broken(why.clone()));
    NodeEvent { reason: "GpuRecovered", is_warning: false, message }
}

/// Token bucket that limits events of a flapping GPU.
#[derive(Debug)]
pub(crate) struct Limiter {
    left: u32,
    refilled: Duration,
}

impl Limiter {
    const BURST: u32 = 25;
    const EVERY: Duration = Duration::from_secs(12);

    pub(crate) const fn new() -> Self {
        Self { left: Self::BURST, refilled: Duration::ZERO }
    }

    /// Takes a token; false if there is none.
    pub(crate) fn allows(&mut self, now: Duration) -> bool {
        while self.left < Self::BURST && now.saturating_sub(self.refilled) >= Self::EVERY {
            self.left += 1;
            self.refilled += Self::EVERY;
        }
        if self.left == Self::BURST {
            self.refilled = now;
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use tranche_domain::fault::Xid;

    use super::*;
    use crate::testing::{device, uuid};

    fn shown(health: [Health; 3]) -> DeviceStates {
        let devices = [device(0, "gpu-50", 0), device(0, "gpu-30", 0), device(1, "gpu-50", 0)];
        DeviceStates {
            health: devices.into_iter().zip(health).collect(),
            daemon: true,
            ..DeviceStates::default()
        }
    }

    fn fault(xid: u64) -> Health {
        Health::Broken(Broken::Fault(Xid::new(xid)))
    }

    fn told(told: &mut EventState, shown: &DeviceStates) -> Vec<(&'static str, String)> {
        let news = told.news(shown, 0, Duration::ZERO);
        news.into_iter().map(|news| (news.reason, news.message)).collect()
    }

    #[test]
    fn failure_and_recovery_give_one_event_each() {
        let well = || shown([Health::Healthy, Health::Healthy, Health::Healthy]);
        let ill = |xid| shown([fault(xid), fault(xid), Health::Healthy]);
        let mut known = EventState::default();
        assert_eq!(told(&mut known, &well()), []);
        let broke = told(&mut known, &ill(48));
        assert_eq!(broke.len(), 1, "{broke:?}");
        assert!(broke[0].0 == "GpuBroken" && broke[0].1.contains(&uuid(0).to_string()), "{broke:?}");
        assert!(broke[0].1.contains("Xid 48"), "{broke:?}");
        assert_eq!(told(&mut known, &ill(48)), []);
        assert_eq!(told(&mut known, &ill(79))[0].0, "GpuBroken", "another fault is news");
        let recovered = told(&mut known, &well());
        assert!(recovered[0].0 == "GpuRecovered" && recovered[0].1.contains("Xid 79"), "{recovered:?}");
        assert_eq!(told(&mut known, &well()), []);
    }

    #[test]
    fn absent_daemon_gives_no_events() {
        let mut known = EventState::default();
        told(&mut known, &shown([fault(48), fault(48), Health::Healthy]));
        let away = Health::Broken(Broken::NoDaemon);
        let away = DeviceStates { daemon: false, ..shown([away.clone(), away.clone(), away]) };
        assert_eq!(told(&mut known, &away), []);
        assert_eq!(told(&mut known, &shown([fault(48), fault(48), Health::Healthy])), []);
    }

    #[test]
    fn lost_races_are_summed_in_events() {
        let (mut known, nothing) = (EventState::default(), DeviceStates::default());
        let mut told = |races, seconds| {
            let news = known.news(&nothing, races, Duration::from_secs(seconds));
            news.first().map(|news| news.message.split(' ').next().unwrap_or_default().to_owned())
        };
        assert_eq!(told(0, 0), None);
        assert_eq!(told(1, 1), Some("1".into()));
        assert_eq!((told(2, 2), told(5, 60)), (None, None));
        assert_eq!((told(5, 61), told(5, 500)), (Some("4".into()), None));
    }

    #[test]
    fn limiter_cuts_floods_and_recovers() {
        let mut limiter = Limiter::new();
        let mut allowed = |second| limiter.allows(Duration::from_secs(second));
        assert_eq!((0..100).filter(|_| allowed(1000)).count(), 25);
        assert_eq!((1000..1120).filter(|second| allowed(*second)).count(), 9);
        assert_eq!((0..100).filter(|_| allowed(9000)).count(), 25);
    }
}
