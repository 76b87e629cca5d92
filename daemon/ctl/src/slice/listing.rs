//! The list of slices.

use tranche_domain::view::{ComputeState, SliceDeviceView, SliceView};

use crate::listing::{Entry, GPU, Listing, NAME, POD, PROJECT, STATE, USER};
use crate::owners::Owners;
use crate::smi::state;
use crate::table::{Cell, Column, or_dash};

const COLUMNS: [Column; 11] = [
    Column::left("Slice").cut(12),
    Column::left("User").cut(8),
    Column::right("Share").drop(6),
    Column::left("GPU"),
    Column::right("Memory"),
    Column::right("Compute").drop(5),
    Column::left("State"),
    Column::left("Mode").drop(3),
    Column::left("Tier").drop(2),
    Column::right("Processes").drop(4),
    Column::left("Ends").drop(1),
];

/// Slices as a list; the columns of projects with jobs, and of pods, are present if any slice has one.
pub(super) fn of(slices: Vec<SliceView>, owners: &Owners) -> Listing<SliceView> {
    let with_purpose = slices.iter().any(|slice| owners.purpose(slice).is_some());
    let with_pod = slices.iter().any(|slice| slice.pod.is_some());
    let mut columns = COLUMNS.to_vec();
    if with_purpose {
        columns.insert(2, Column::left("Project/job").cut(12));
    }
    if with_pod {
        columns.insert(1, Column::left("Pod").cut(16).drop(5));
    }
    let entry = |slice: SliceView| {
        let mut cells = cells(&slice, owners);
        if with_purpose {
            cells.insert(2, or_dash(owners.purpose(&slice)).into());
        }
        if with_pod {
            cells.insert(1, or_dash(pod(&slice)).into());
        }
        Entry { name: slice.name.to_string(), cells, traits: traits(&slice, owners), view: slice }
    };
    let empty = "no slices: `tranche slice create NAME -g 0.5` makes one";
    Listing { columns, entries: slices.into_iter().map(entry).collect(), empty }
}

fn cells(slice: &SliceView, owners: &Owners) -> Vec<Cell> {
    let used: u64 = slice.devices.iter().map(|device| device.used.get()).sum();
    vec![
        slice.name.to_string().into(),
        owners.user(slice).into(),
        slice.share.to_string().into(),
        Cell::lines(slice.devices.iter().map(|device| device.gpu_index.to_string())),
        Cell::lines(slice.devices.iter().map(memory)).ranked(used),
        slice.compute.to_string().into(),
        state(slice),
        format!("{}{}", slice.mode, if slice.frozen { ", frozen" } else { "" }).into(),
        slice.tier.clone().into(),
        slice.processes.len().to_string().into(),
        lifetime(slice).into(),
    ]
}

/// Namespace and name of a slice's pod.
fn pod(slice: &SliceView) -> Option<String> {
    slice.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name))
}

fn memory(device: &SliceDeviceView) -> String {
    let over = if device.used > device.cap { " (over)" } else { "" };
    format!("{} / {} MiB{over}", device.used.whole_mib(), device.cap.whole_mib())
}

fn traits(slice: &SliceView, owners: &Owners) -> Vec<(&'static str, String)> {
    let mut traits = vec![
        (NAME, slice.name.to_string()),
        (USER, owners.user(slice)),
        (USER, slice.owner_uid.to_string()),
        (STATE, slice.state()),
    ];
    // It is found as parked as well, as it was in earlier releases.
    let is_away = slice.is_away_by_turn();
    traits.extend(["away", "parked"].into_iter().filter(|_| is_away).map(|word| (STATE, word.to_owned())));
    let is_idle =
        slice.compute_state == ComputeState::NoWork && slice.idle_ms.is_some() && slice.parked.is_none();
    traits.extend(is_idle.then(|| (STATE, "idle".to_owned())));
    let purpose = owners.purpose(slice);
    traits.extend(purpose.iter().map(|purpose| (PROJECT, purpose.clone())));
    traits
        .extend(purpose.iter().filter_map(|purpose| Some((PROJECT, purpose.split_once('/')?.0.to_owned()))));
    traits.extend(pod(slice).map(|pod| (POD, pod)));
    traits.extend(slice.pod.iter().map(|pod| (POD, pod.name.to_string())));
    traits.extend(slice.devices.iter().map(|device| (GPU, device.gpu_index.to_string())));
    traits
}

/// End of a slice, in words.
pub(super) fn lifetime(slice: &SliceView) -> &'static str {
    if slice.ephemeral { "with its last process" } else { "when deleted" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::terminal::Canvas;

    #[test]
    fn slices_fit_the_terminal() {
        let listing = of(sample::node().slices, &sample::owners());
        for (width, golden) in [
            (80, include_str!("golden/list-80.txt")),
            (120, include_str!("golden/list-120.txt")),
            (200, include_str!("golden/list-200.txt")),
        ] {
            let page = listing.page(Canvas::of_width(width));
            sample::assert_golden(page.text(), golden, &format!("slice/golden/list-{width}.txt"));
            assert!(page.text().lines().all(|line| line.len() <= width));
        }
    }

    #[test]
    fn parked_slice_is_found_by_its_stage_and_not_as_frozen() {
        let slice = SliceView { compute_state: ComputeState::Frozen, ..sample::parked() };
        let states: Vec<_> =
            traits(&slice, &sample::owners()).into_iter().filter(|(key, _)| *key == STATE).collect();
        assert_eq!(states, [(STATE, "parked".to_owned())]);
        let away = traits(&sample::away(), &sample::owners()).into_iter().filter(|(key, _)| *key == STATE);
        let away: Vec<String> = away.map(|(_, word)| word).collect();
        assert_eq!(away, ["away (rotates)", "away", "parked"]);
    }

    #[test]
    fn idle_slices_and_those_of_a_project_are_found() {
        let found = |key: &str, value: &str| {
            let listing = of(sample::node().slices, &sample::owners());
            let meets =
                |entry: &&Entry<SliceView>| entry.traits.iter().any(|(name, is)| *name == key && is == value);
            listing.entries.iter().filter(meets).map(|entry| entry.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(found("state", "idle"), ["pair"]);
        assert_eq!(found("project", "vision"), ["frac05"]);
        assert_eq!(found("project", "vision/train"), ["frac05"]);
        assert_eq!(found("gpu", "2"), ["pair"]);
        assert_eq!(found("user", "1000"), ["frac03", "frac05"]);
        assert_eq!(
            (found("pod", "train-0"), found("pod", "default/train-0")),
            (vec!["frac05".into()], vec!["frac05".into()])
        );
    }
}
