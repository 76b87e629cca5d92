//! The daemon's messages: audit findings with a remedy, others verbatim.

use tranche_domain::event::EventKind;

use crate::doctor::check::{Check, warning};

/// A finding's message begins with its event kind.
pub(super) fn check(note: &str) -> Check {
    let finding = note.split_once(':').and_then(|(kind, found)| {
        let kind = EventKind::from(kind.to_owned());
        Some((cure(&kind)?, kind, found.trim()))
    });
    match finding {
        Some((remedy, kind, found)) => warning(kind.as_str(), found, Some(remedy)),
        None => warning("note", note, None),
    }
}

/// Remedy for a finding; `None` for other messages.
fn cure(kind: &EventKind) -> Option<&'static str> {
    Some(match kind {
        EventKind::ForeignProcess => {
            "start it by `tranche run`, end it, or keep the GPU for it alone; `foreigners = \"refuse\"` puts no further \
             slice beside it"
        }
        EventKind::UnderReported => {
            "it holds what its slice is not charged for: end it, or have the daemon do so (`violations = \"kill\"`)"
        }
        EventKind::GateBypassed => {
            "it launches without waiting for its turn: end it, or have the daemon do so (`violations = \"kill\"`)"
        }
        EventKind::GpuHeldIdle => {
            "its processes say that they have work and the GPU does none of it: a program that hangs, or one that writes \
             what the library alone writes; look which, and end it"
        }
        EventKind::UsageTampered => {
            "a process in the slice writes what the library alone writes: find out which, and delete the slice"
        }
        EventKind::UnshimmedProcess => {
            "it dropped LD_PRELOAD, is linked statically or loads the driver by a way of its own: start it so that \
             the library is in it, or run it in a container, where it stands in the driver's place"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_get_a_remedy_and_other_messages_none() {
        let found = check("unshimmed-process: process 7 of slice a: it uses GPU 0 without the library");
        assert_eq!(found.check, "unshimmed-process");
        assert_eq!(found.found, "process 7 of slice a: it uses GPU 0 without the library");
        assert!(found.remedy.unwrap().contains("LD_PRELOAD"));
        let note = "GPU 0 has a fault: the driver reports Xid 48";
        let other = check(note);
        assert_eq!((other.check.as_str(), other.found.as_str(), other.remedy), ("note", note, None));
    }
}
