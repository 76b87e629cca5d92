//! Events of the node and the users who caused them, to the wire and back.

use tranche_domain::event::{Actor, Event};

use crate::mirror::mirror;
use crate::v1;

mirror! {
    Event = v1::Event { seq, time_unix_ms, severity, kind, slice, gpu, pid, evidence, actor, cause }

    Actor = v1::Actor { uid, user, pid, command }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bad_message::BadMessage;
    use tranche_domain::event::{EventCause, EventHistory, EventKind, Happening};
    use tranche_domain::id::{GpuUuid, HostPid};

    #[test]
    fn an_event_survives_the_wire() {
        let mut history = EventHistory::keeping(1);
        let slice = "a".parse().unwrap();
        let happening = Happening::new(EventKind::UnderReported, "it holds more").of(&slice);
        let happening = happening
            .caused_by(EventCause::Drain)
            .asked_by(Actor::of_user(7, Some("ann")).by(HostPid::new(8), "tranche"));
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
