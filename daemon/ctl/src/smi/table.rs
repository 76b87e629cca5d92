//! Tables of the node, in the order and words of nvidia-smi.

use std::time::SystemTime;

use tranche_domain::id::SliceName;
use tranche_domain::units::Bytes;
use tranche_domain::view::{ComputeState, GpuView, NodeView, SliceDeviceView, SliceView};

use super::parts::by_gpu;
use crate::owners::Owners;
use crate::table::{Cell, Column, Page, Section, Tint, or_dash};
use crate::terminal::Canvas;
use crate::waiting;
use crate::when::{self, Clock};

mod who;

/// Context of the display.
pub(super) struct Onlooker<'a> {
    /// Version of this program.
    pub(super) version: &'a str,
    /// The slice that the display is restricted to, if any.
    pub(super) inside: Option<&'a SliceName>,
    pub(super) now: SystemTime,
    pub(super) clock: Clock,
    /// Users and jobs of the slices.
    pub(super) owners: &'a Owners,
    /// Bounds of the output.
    pub(super) canvas: Canvas,
}

/// Renders `node` as tables.
pub(super) fn render(node: &NodeView, onlooker: &Onlooker<'_>) -> Page {
    let mut page = Page::on(onlooker.canvas);
    page.line(&onlooker.clock.seconds(onlooker.now));
    page.boxed(&header(node, onlooker));
    gpus(&mut page, node, onlooker.inside);
    section(&mut page, slices(node, onlooker.owners));
    section(&mut page, who::pods(node));
    section(&mut page, who::processes(node));
    section(&mut page, waiting::requests(node, onlooker.owners, onlooker.now));
    remarks(node).iter().for_each(|remark| page.line(remark));
    page
}

/// Adds a table, unless it has no rows.
fn section(page: &mut Page, (columns, rows): Section) {
    if !rows.is_empty() {
        page.table(&columns, &rows);
    }
}

fn header(node: &NodeView, onlooker: &Onlooker<'_>) -> Vec<String> {
    let cuda = format!("CUDA {}.{}", node.cuda_version / 1000, node.cuda_version % 1000 / 10);
    let mut cells = vec![
        format!("tranche {}", onlooker.version),
        format!("tranched {}", node.daemon_version),
        format!("driver {}", node.driver_version),
        cuda,
    ];
    cells.extend(node.simulated.then(|| "SIMULATED: no real GPU".to_owned()));
    cells.extend(onlooker.inside.map(|name| format!("inside slice {name}")));
    cells
}

fn gpus(page: &mut Page, node: &NodeView, inside: Option<&SliceName>) {
    const COLUMNS: [Column; 8] = [
        Column::right("GPU"),
        Column::left("Name").cut(12),
        Column::left("Bus id").drop(1),
        Column::right("Temp").drop(3),
        Column::right("Power").drop(2),
        Column::right("Memory"),
        Column::right("Util").drop(4),
        Column::right("In slices"),
    ];
    if node.gpus.is_empty() {
        return page.line("no GPU was found: `tranche doctor` says why and what to do");
    }
    // Inside a slice its GPU is not divided further, so the last column is left out.
    let columns = if inside.is_some() { COLUMNS.len() - 1 } else { COLUMNS.len() };
    let rows: Vec<Vec<Cell>> =
        node.gpus.iter().map(|one| gpu(one).into_iter().take(columns).map(Cell::from).collect()).collect();
    page.table(&COLUMNS[..columns], &rows);
}

fn gpu(gpu: &GpuView) -> Vec<String> {
    let watts = |milliwatts: u32| format!("{} W", milliwatts.saturating_add(500) / 1000);
    let power = match (gpu.power_milliwatts, gpu.power_limit_milliwatts) {
        (Some(draw), Some(limit)) => Some(format!("{} / {}", watts(draw), watts(limit))),
        (draw, _) => draw.map(watts),
    };
    let in_slices = match (gpu.obstacle(), &gpu.cordon) {
        (Some(_), _) => "none possible".into(),
        (None, Some(_)) => part_of(gpu.committed, gpu.capacity) + " CORDONED",
        (None, None) => part_of(gpu.committed, gpu.capacity),
    };
    vec![
        gpu.index.to_string(),
        gpu.name.clone(),
        gpu.pci_bus_id.clone(),
        or_dash(gpu.temperature_celsius.map(|celsius| format!("{celsius} C"))),
        or_dash(power),
        part_of(gpu.used, gpu.total),
        percent(gpu.utilization_percent),
        in_slices,
    ]
}

fn part_of(part: Bytes, whole: Bytes) -> String {
    format!("{} / {} MiB", part.whole_mib(), whole.whole_mib())
}

fn percent(share: Option<u32>) -> String {
    or_dash(share.map(|share| format!("{share} %")))
}

fn slices(node: &NodeView, owners: &Owners) -> Section {
    const COLUMNS: [Column; 12] = [
        Column::right("GPU"),
        Column::left("Slice").cut(12),
        Column::left("User").cut(8),
        Column::right("Share").drop(6),
        Column::right("Memory"),
        Column::right("Compute").drop(4),
        Column::right("1 s"),
        Column::right("60 s").drop(5),
        Column::left("Mode").drop(2),
        Column::right("Prio").drop(1),
        Column::left("State"),
        Column::left("Tier").drop(3),
    ];
    let rows = by_gpu(node).into_iter().map(|(slice, _, device)| {
        vec![
            device.gpu_index.to_string().into(),
            slice.name.to_string().into(),
            owners.user(slice).into(),
            slice.share.to_string().into(),
            held_of(device).into(),
            compute(slice).into(),
            device.compute_used_1s.to_string().into(),
            device.compute_used_60s.to_string().into(),
            slice.mode.to_string().into(),
            slice.priority.to_string().into(),
            state(slice),
            slice.tier.clone().into(),
        ]
    });
    let (mut columns, mut rows) = (COLUMNS.to_vec(), rows.collect::<Vec<_>>());
    let purposes: Vec<_> = by_gpu(node).into_iter().map(|(slice, ..)| owners.purpose(slice)).collect();
    if purposes.iter().any(Option::is_some) {
        columns.insert(3, Column::left("Project/job").cut(12));
        rows.iter_mut().zip(purposes).for_each(|(row, purpose)| row.insert(3, or_dash(purpose).into()));
    }
    (columns, rows)
}

/// State of a slice's compute; without work the time for which it is idle, if it counts as that.
pub(crate) fn state(slice: &SliceView) -> Cell {
    if slice.parked.is_some() {
        return Cell::from(slice.state()).tinted(Tint::Yellow);
    }
    match (slice.compute_state, slice.idle_ms) {
        (ComputeState::NoWork, Some(idle_ms)) => Cell::from(when::idle(idle_ms)).tinted(Tint::Yellow),
        (ComputeState::Running, _) => Cell::from(slice.compute_state.to_string()).tinted(Tint::Green),
        _ => slice.compute_state.to_string().into(),
    }
}

/// Compute request and limit: `30 / 100 %`.
fn compute(slice: &SliceView) -> String {
    let request = slice.compute.to_string();
    format!("{} / {}", request.trim_end_matches(" %"), slice.limit)
}

/// Memory charged and cap, with a remark if it is over.
fn held_of(device: &SliceDeviceView) -> String {
    let part = part_of(device.used, device.cap);
    if device.over_cap > Bytes::ZERO { format!("{part} OVER CAP") } else { part }
}

fn remarks(node: &NodeView) -> Vec<String> {
    let unsliceable = node.gpus.iter().filter_map(|gpu| {
        gpu.obstacle().map(|reason| format!("GPU {} takes no slices: {reason}", gpu.index))
    });
    let cordons = node.gpus.iter().filter_map(|gpu| {
        gpu.cordon.as_ref().map(|cordon| format!("GPU {} takes no further slices: it is {cordon}", gpu.index))
    });
    let compute = format!("compute: {}", node.compute_enforcement);
    let notes = node.notes.iter().map(|note| format!("note: {note}"));
    std::iter::once(compute).chain(unsliceable).chain(cordons).chain(notes).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tenant;
    use super::*;
    use crate::sample;
    use tranche_domain::cordon::Cordon;

    fn drawn(node: &NodeView, inside: Option<&SliceName>) -> String {
        on(node, inside, Canvas::PLAIN)
    }

    fn on(node: &NodeView, inside: Option<&SliceName>, canvas: Canvas) -> String {
        let now = when::at(1_767_323_090_000);
        let node = NodeView { daemon_version: "0.1.0".into(), ..node.clone() };
        let clock = Clock::Utc;
        let onlooker = Onlooker { version: "0.1.0", inside, now, clock, owners: &sample::owners(), canvas };
        render(&node, &onlooker).text().to_owned()
    }

    #[test]
    fn tables_fit_the_terminal() {
        for (width, expected) in [
            (80, include_str!("golden/full-80.txt")),
            (120, include_str!("golden/full-120.txt")),
            (200, include_str!("golden/full-200.txt")),
        ] {
            let drawn = on(&sample::full(), None, Canvas::of_width(width));
            assert!(drawn.lines().all(|line| line.chars().count() <= width), "\n{drawn}");
            sample::assert_golden(&drawn, expected, &format!("smi/golden/full-{width}.txt"));
        }
        for width in [80, 120] {
            let drawn = on(&sample::node(), None, Canvas::of_width(width));
            assert!(drawn.lines().all(|line| line.chars().count() <= width), "\n{drawn}");
        }
    }

    #[test]
    fn slice_over_its_cap_is_marked() {
        let mut node = sample::node();
        let device = &mut node.slices[0].devices[0];
        assert!(!held_of(device).contains("OVER"));
        (device.used, device.over_cap) = (Bytes::mib(9800), Bytes::mib(47));
        assert!(held_of(device).ends_with("OVER CAP"), "{}", held_of(device));
    }

    #[test]
    fn cordoned_gpu_shows_use_and_reason() {
        let mut node = sample::node();
        let told = "cordoned by root (uid 0) since noon: fan".to_owned();
        node.gpus[0].not_sliceable = Some(told.clone());
        node.gpus[0].cordon = Some(Cordon { by_uid: 0, since_unix_ms: 5, reason: "fan".parse().ok(), told });
        assert!(gpu(&node.gpus[0])[7].ends_with("/ 32510 MiB CORDONED"));
        let remarks = remarks(&node);
        let cordons = remarks.iter().filter(|line| line.contains("GPU 0"));
        let expected = "GPU 0 takes no further slices: it is cordoned by root (uid 0) since noon: fan";
        assert_eq!(cordons.collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn node_table_matches_golden_text() {
        let drawn = drawn(&sample::node(), None);
        sample::assert_golden(&drawn, include_str!("golden/node.txt"), "smi/golden/node.txt");
    }

    #[test]
    fn tenant_view_shows_slice_as_gpu() {
        let name = "frac05".parse().unwrap();
        let drawn = drawn(&tenant::project(&sample::node(), &name).unwrap(), Some(&name));
        sample::assert_golden(&drawn, include_str!("golden/tenant.txt"), "smi/golden/tenant.txt");
    }

    #[test]
    fn empty_node_has_a_message() {
        let empty = NodeView {
            simulated: false,
            gpus: Vec::new(),
            slices: Vec::new(),
            waiting: Vec::new(),
            notes: Vec::new(),
            ..sample::node()
        };
        let drawn = drawn(&empty, None);
        sample::assert_golden(&drawn, include_str!("golden/empty.txt"), "smi/golden/empty.txt");
    }

    #[test]
    fn untrusted_commands_are_escaped() {
        let mut node = sample::node();
        node.slices[1].processes[0].command = "\x1b]0;owned\x07 \u{9b}31m\n".into();
        let drawn = drawn(&node, None);
        assert!(!drawn.contains(['\x1b', '\x07', '\u{9b}']), "{drawn:?}");
        assert!(drawn.contains("\\u{1b}]0;owned\\u{7} \\u{9b}31m\\n"), "{drawn}");
    }
}
