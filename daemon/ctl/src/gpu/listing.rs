//! The list of GPUs.

use std::collections::BTreeSet;

use tranche_domain::view::{GpuView, NodeView, SliceView};

use crate::listing::{Entry, GPU, Listing, NAME, PROJECT, STATE, USER};
use crate::owners::Owners;
use crate::table::{Cell, Column, Tint, or_dash};

const COLUMNS: [Column; 8] = [
    Column::right("GPU"),
    Column::left("UUID").drop(1),
    Column::left("Name").cut(10),
    Column::right("Slices"),
    Column::left("Users").cut(8),
    Column::right("In slices"),
    Column::left("State"),
    Column::prose("Reason"),
];

/// The GPUs with their users.
pub(super) fn of(node: NodeView, owners: &Owners) -> Listing<GpuView> {
    let NodeView { gpus, slices, .. } = node;
    let entry = |gpu: GpuView| {
        let here: Vec<_> = slices.iter().filter(|slice| is_on(slice, &gpu)).collect();
        let users: BTreeSet<String> = here.iter().map(|slice| owners.user(slice)).collect();
        let mut traits =
            vec![(GPU, gpu.index.to_string()), (NAME, gpu.name.clone()), (NAME, gpu.uuid.to_string())];
        traits.push((STATE, state(&gpu).to_owned()));
        traits.extend(here.is_empty().then(|| (STATE, "empty".to_owned())));
        traits.extend(users.iter().map(|user| (USER, user.clone())));
        traits.extend(here.iter().map(|slice| (USER, slice.owner_uid.to_string())));
        let purposes = here.iter().filter_map(|slice| owners.purpose(slice));
        traits.extend(
            purposes.map(|purpose| (PROJECT, purpose.split('/').next().unwrap_or_default().to_owned())),
        );
        let cells = cells(&gpu, here.len(), &users);
        Entry { name: gpu.index.to_string(), cells, traits, view: gpu }
    };
    let entries = gpus.into_iter().map(entry).collect();
    Listing {
        columns: COLUMNS.to_vec(),
        entries,
        empty: "no GPU was found: `tranche doctor` says why and what to do",
    }
}

fn is_on(slice: &SliceView, gpu: &GpuView) -> bool {
    slice.devices.iter().any(|device| device.gpu_uuid == gpu.uuid)
}

fn cells(gpu: &GpuView, slices: usize, users: &BTreeSet<String>) -> Vec<Cell> {
    let users: Vec<_> = users.iter().map(String::as_str).collect();
    let state = state(gpu);
    let tint = if gpu.obstacle().is_some() { Tint::Red } else { Tint::Plain };
    vec![
        gpu.index.to_string().into(),
        gpu.uuid.to_string().into(),
        gpu.name.clone().into(),
        slices.to_string().into(),
        or_dash(Some(users.join(", ")).filter(|users| !users.is_empty())).into(),
        Cell::from(format!("{} / {} MiB", gpu.committed.whole_mib(), gpu.capacity.whole_mib())),
        Cell::from(state).tinted(tint),
        or_dash(gpu.not_sliceable.as_ref()).into(),
    ]
}

fn state(gpu: &GpuView) -> &'static str {
    match (gpu.obstacle(), &gpu.cordon) {
        (Some(_), _) => "takes none",
        (None, Some(_)) => "cordoned",
        (None, None) => "takes slices",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::terminal::Canvas;

    #[test]
    fn gpus_fit_the_terminal() {
        let listing = of(sample::node(), &sample::owners());
        for (width, golden) in [
            (80, include_str!("golden/list-80.txt")),
            (120, include_str!("golden/list-120.txt")),
            (200, include_str!("golden/list-200.txt")),
        ] {
            let page = listing.page(Canvas::of_width(width));
            sample::assert_golden(page.text(), golden, &format!("gpu/golden/list-{width}.txt"));
            assert!(page.text().lines().all(|line| line.len() <= width));
        }
    }

    #[test]
    fn list_shows_slices_users_and_obstacles() {
        let listing = of(sample::node(), &sample::owners());
        let texts = |at: usize| listing.entries[at].cells.iter().map(Cell::text).collect::<Vec<_>>();
        assert_eq!(texts(0)[3..7], ["2", "ann", "26008 / 32510 MiB", "takes slices"]);
        assert!(texts(3)[7].contains("MIG") && texts(3)[6] == "takes none");
    }
}
