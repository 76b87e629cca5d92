//! Events: domain to wire and back.

use tranche_domain::event::{Actor, Event, EventKind};
use tranche_domain::id::{GpuUuid, HostPid};

use crate::convert::BadMessage;
use crate::v1;

impl From<Event> for v1::Event {
    fn from(event: Event) -> Self {
        Self {
            seq: event.seq,
            time_unix_ms: event.time_unix_ms,
            severity: event.severity.as_str().into(),
            kind: event.kind.into(),
            slice: event.slice.map(String::from),
            gpu: event.gpu.map(String::from),
            pid: event.pid.map(HostPid::get),
            evidence: event.evidence,
            actor: event.actor.map(Into::into),
        }
    }
}

impl TryFrom<v1::Event> for Event {
    type Error = BadMessage;

    fn try_from(wire: v1::Event) -> Result<Self, BadMessage> {
        Ok(Self {
            seq: wire.seq,
            time_unix_ms: wire.time_unix_ms,
            severity: wire.severity.parse()?,
            kind: EventKind::from(wire.kind),
            slice: wire.slice.map(|name| name.parse()).transpose()?,
            gpu: wire.gpu.map(|gpu| gpu.parse::<GpuUuid>()).transpose()?,
            pid: wire.pid.map(HostPid::new),
            evidence: wire.evidence,
            actor: wire.actor.map(Into::into),
        })
    }
}

impl From<Actor> for v1::Actor {
    fn from(Actor { uid, user, pid, command }: Actor) -> Self {
        Self { uid, user, pid: pid.map(HostPid::get), command }
    }
}

impl From<v1::Actor> for Actor {
    fn from(v1::Actor { uid, user, pid, command }: v1::Actor) -> Self {
        Self { uid, user, pid: pid.map(HostPid::new), command }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::event::{EventHistory, Happening};

    #[test]
    fn an_event_survives_the_wire() {
        let mut history = EventHistory::keeping(1);
        let slice = "a".parse().unwrap();
        let happening = Happening::new(EventKind::UnderReported, "it holds more").of(&slice);
        let happening = happening.asked_by(Actor::of_user(7, Some("ann")).by(HostPid::new(8), "tranche"));
        let event = history.enter(happening.on(GpuUuid::from_bytes([7; 16])).by(HostPid::new(9)), 5).clone();
        assert_eq!(Event::try_from(v1::Event::from(event.clone())), Ok(event));
    }

    #[test]
    fn nonsense_from_the_wire_is_refused() {
        let event = |severity: &str| v1::Event { severity: severity.into(), ..v1::Event::default() };
        assert!(Event::try_from(event("info")).is_ok());
        assert!(matches!(Event::try_from(event("loud")), Err(BadMessage::Severity(_))));
    }
}
