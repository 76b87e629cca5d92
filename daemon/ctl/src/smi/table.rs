//! Tables of the node, in the order and words of nvidia-smi.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comfy_table::Table;
use comfy_table::presets::ASCII_FULL_CONDENSED;
use tranche_domain::id::SliceName;
use tranche_domain::units::Bytes;
use tranche_domain::view::{GpuView, NodeView, SliceDeviceView, SliceView, WaitingView};

use super::parts::by_gpu;
use crate::table::{Section, Side, draw, or_dash};

mod who;

/// Context of the display.
pub(super) struct Onlooker<'a> {
    /// Version of this program.
    pub(super) version: &'a str,
    /// The slice that the display is restricted to, if any.
    pub(super) inside: Option<&'a SliceName>,
    pub(super) now: SystemTime,
}

/// Renders `node` as tables.
pub(super) fn render(node: &NodeView, onlooker: &Onlooker<'_>) -> String {
    let time = humantime::format_rfc3339_seconds(onlooker.now).to_string();
    let mut parts = vec![time, header(node, onlooker), gpus(node, onlooker.inside)];
    parts.extend(section(slices(node)));
    parts.extend(section(who::pods(node)));
    parts.extend(section(who::processes(node)));
    parts.extend(section(waiting(node, onlooker.now)));
    parts.extend(remarks(node));
    parts.join("\n") + "\n"
}

/// A table, or `None` without rows.
fn section((columns, rows): Section<'_>) -> Option<String> {
    if rows.is_empty() { None } else { Some(draw(columns, rows)) }
}

fn header(node: &NodeView, onlooker: &Onlooker<'_>) -> String {
    let cuda = format!("CUDA {}.{}", node.cuda_version / 1000, node.cuda_version % 1000 / 10);
    let mut cells = vec![
        format!("tranche {}", onlooker.version),
        format!("tranched {}", node.daemon_version),
        format!("driver {}", node.driver_version),
        cuda,
    ];
    cells.extend(node.simulated.then(|| "SIMULATED: no real GPU".to_owned()));
    cells.extend(onlooker.inside.map(|name| format!("inside slice {name}")));
    let mut table = Table::new();
    table.load_style(ASCII_FULL_CONDENSED).add_row(cells);
    table.to_string()
}

fn gpus(node: &NodeView, inside: Option<&SliceName>) -> String {
    const COLUMNS: [(&str, Side); 8] = [
        ("GPU", Side::Right),
        ("Name", Side::Left),
        ("Bus id", Side::Left),
        ("Temp", Side::Right),
        ("Power", Side::Right),
        ("Memory", Side::Right),
        ("Util", Side::Right),
        ("In slices", Side::Right),
    ];
    if node.gpus.is_empty() {
        return "no GPU was found: `tranche doctor` says why and what to do".into();
    }
    // Inside a slice its GPU is not divided further, so the last column is left out.
    let columns = if inside.is_some() { COLUMNS.len() - 1 } else { COLUMNS.len() };
    draw(&COLUMNS[..columns], node.gpus.iter().map(|one| gpu(one).into_iter().take(columns).collect()))
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

fn slices(node: &NodeView) -> Section<'static> {
    const COLUMNS: [(&str, Side); 11] = [
        ("GPU", Side::Right),
        ("Slice", Side::Left),
        ("Share", Side::Right),
        ("Memory", Side::Right),
        ("Compute", Side::Right),
        ("1 s", Side::Right),
        ("60 s", Side::Right),
        ("Mode", Side::Left),
        ("Prio", Side::Right),
        ("State", Side::Left),
        ("Tier", Side::Left),
    ];
    let rows = by_gpu(node).into_iter().map(|(slice, _, device)| {
        vec![
            device.gpu_index.to_string(),
            slice.name.to_string(),
            slice.share.to_string(),
            held_of(device),
            compute(slice),
            device.compute_used_1s.to_string(),
            device.compute_used_60s.to_string(),
            slice.mode.to_string(),
            slice.priority.to_string(),
            slice.compute_state.to_string(),
            slice.tier.clone(),
        ]
    });
    (&COLUMNS, rows.collect())
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

fn waiting(node: &NodeView, now: SystemTime) -> Section<'static> {
    const COLUMNS: [(&str, Side); 5] = [
        ("Waiting", Side::Left),
        ("Share", Side::Right),
        ("PID", Side::Right),
        ("Since", Side::Right),
        ("For what", Side::Left),
    ];
    let rows = node.waiting.iter().map(|request| {
        vec![
            or_dash(request.name.as_ref()),
            request.share.to_string(),
            request.pid.to_string(),
            waited(request, now),
            request.reason.clone(),
        ]
    });
    (&COLUMNS, rows.collect())
}

fn waited(request: &WaitingView, now: SystemTime) -> String {
    let since = UNIX_EPOCH + Duration::from_millis(request.since_unix_ms);
    // The wall clock may have been set back.
    let seconds = now.duration_since(since).unwrap_or_default().as_secs();
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
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
        let now = UNIX_EPOCH + Duration::from_secs(1_767_323_090);
        render(
            &NodeView { daemon_version: "0.1.0".into(), ..node.clone() },
            &Onlooker { version: "0.1.0", inside, now },
        )
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
        assert_eq!(drawn, include_str!("golden/node.txt"), "\n{drawn}");
    }

    #[test]
    fn tenant_view_shows_slice_as_gpu() {
        let name = "frac05".parse().unwrap();
        let drawn = drawn(&tenant::project(&sample::node(), &name).unwrap(), Some(&name));
        assert_eq!(drawn, include_str!("golden/tenant.txt"), "\n{drawn}");
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
        assert_eq!(drawn, include_str!("golden/empty.txt"), "\n{drawn}");
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
