//! Holders of the room that a refused request would need.

use std::cmp::Reverse;

use tranche_domain::id::GpuSelector;
use tranche_domain::request::SliceRequest;
use tranche_domain::view::{NodeView, SliceView};

use crate::client::Daemon;
use crate::errors::Failure;
use crate::owners::Owners;

/// Greatest number of holders that are named.
const NAMED: usize = 4;

/// The failure of a request; with the holders of the room if it is for want of room.
pub fn explained(daemon: &mut Daemon, request: &SliceRequest, failure: Failure) -> Failure {
    if !failure.is_no_room() {
        return failure;
    }
    match (failure, daemon.snapshot()) {
        (Failure::Refused(refusal), Ok(node)) => match holders(&node, &request.gpus, &Owners::default()) {
            Some(holders) => Failure::NoRoom { refusal, holders },
            None => Failure::Refused(refusal),
        },
        (failure, _) => failure,
    }
}

/// Slices on these GPUs, or on all if none are named, in words; the largest first.
fn holders(node: &NodeView, gpus: &[GpuSelector], owners: &Owners) -> Option<String> {
    let concerns = |slice: &&SliceView| {
        let mut parts = slice.devices.iter();
        slice.parked.is_none()
            && (gpus.is_empty()
                || parts.any(|part| gpus.iter().any(|gpu| gpu.names(part.gpu_index, part.gpu_uuid))))
    };
    in_use_by(node.slices.iter().filter(concerns).collect(), owners)
        .map(|holders| format!("{holders}; `tranche smi` shows all"))
}

/// Slices that have room, in words; the largest first. `None` without any.
pub fn in_use_by(mut slices: Vec<&SliceView>, owners: &Owners) -> Option<String> {
    let memory = |slice: &SliceView| slice.devices.iter().map(|part| part.cap).max();
    slices.sort_by_key(|slice| Reverse((slice.devices.len(), memory(slice))));
    let named = slices
        .iter()
        .take(NAMED)
        .map(|slice| format!("{} ({} of {})", slice.name, slice.share, owners.user(slice)));
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match slices.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!slices.is_empty()).then(|| format!("in use by {named}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn holders_are_those_of_the_named_gpus_the_largest_first() {
        let mut node = sample::node();
        let owners = sample::owners();
        let all = holders(&node, &[], &owners).unwrap();
        let at = |name: &str| all.find(name).unwrap_or_else(|| panic!("{name} is missing: {all}"));
        assert!(at("frac05 (0.5 of ") < at("frac03 (0.3 of "), "{all}");
        assert!(all.ends_with("; `tranche smi` shows all"), "{all}");
        let absent = GpuSelector::Index(77);
        assert_eq!(holders(&node, &[absent], &owners), None);
        node.slices = vec![node.slices[0].clone(); NAMED + 3];
        assert!(holders(&node, &[], &owners).unwrap().contains(" and 3 more; "));
    }
}
