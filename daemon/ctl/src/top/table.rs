//! Lines of the upper table: GPUs and slices, or users.

use tranche_domain::jobs::MilliGpus;
use tranche_domain::units::Bytes;
use tranche_domain::view::{ComputeState, GpuView, SliceDeviceView, SliceView};

use super::columns::{Grid, ScreenColumn};
use super::rows::{ScreenRow, Total};
use super::scene::Scene;
use super::sheet::{Strip, Tone};
use super::state::ScreenState;
use super::text::{bar, graph, memory, span};

/// Columns before the first one: a mark and the indentation of slices.
const LEFT: u16 = 3;

const fn column(title: &'static str, widths: (u16, u16), from: u16, right: bool) -> ScreenColumn {
    ScreenColumn { title, widths, from, right }
}

const SLICES: [ScreenColumn; 9] = [
    column("Slice", (14, 26), 0, false),
    column("User", (9, 16), 0, false),
    column("Share", (5, 6), 100, true),
    column("Project/job", (14, 32), 0, false),
    column("Of its memory", (10, 24), 100, false),
    column("Memory", (13, 13), 0, true),
    column("Busy", (5, 5), 0, true),
    column("State", (15, 20), 0, false),
    column("Processes", (20, 200), 140, false),
];
const NAME: usize = 0;
const USER: usize = 1;
const SHARE: usize = 2;
const PURPOSE: usize = 3;
const BAR: usize = 4;
const MEMORY: usize = 5;
const BUSY: usize = 6;
const STATE: usize = 7;
const NOTE: usize = 8;

const USERS: [ScreenColumn; 9] = [
    column("User", (14, 32), 0, false),
    column("Slices", (6, 6), 0, true),
    column("GPUs", (7, 7), 0, true),
    column("Idle", (7, 7), 0, true),
    column("Longest", (7, 7), 0, true),
    column("Memory", (15, 15), 0, true),
    column("Busy", (6, 6), 0, true),
    column("Jobs", (4, 4), 0, true),
    column("Wait", (4, 4), 0, true),
];

/// Heading and lines of the table on a screen of this width.
pub(super) fn strips(state: &ScreenState, rows: &[ScreenRow<'_>], width: u16) -> (Strip, Vec<Strip>) {
    let columns = if state.by_user { &USERS } else { &SLICES };
    let grid = Grid::new(columns, if state.by_user { 1 } else { LEFT }, width);
    let mut heading = grid.heading();
    if !state.by_user {
        heading.put(0, LEFT + 14, " GPU, slice", Tone::Bold);
    }
    let Some(scene) = &state.scene else { return (heading, Vec::new()) };
    let strip = |row: &ScreenRow<'_>| {
        let mut strip = match row {
            ScreenRow::Gpu(gpu) => of_gpu(state, gpu, &grid),
            ScreenRow::Part(slice, device) => of_part(scene, slice, device, &grid),
            ScreenRow::User(total) => of_user(scene, total, &grid),
            ScreenRow::Job(_) | ScreenRow::Request(_) => Strip::default(),
        };
        strip.mark(state.selected.as_ref() == Some(&row.subject()));
        strip
    };
    (heading, rows.iter().map(strip).collect())
}

fn of_gpu(state: &ScreenState, gpu: &GpuView, grid: &Grid) -> Strip {
    let mut strip = Strip::default();
    let before = grid.place(SHARE).or_else(|| grid.place(USER)).map_or(0, |place| place.end() - 1);
    strip.put(1, before, &format!("{:>2} {}", gpu.index, gpu.name), Tone::Bold);
    let filled =
        |at: usize| grid.place(at).map(|place| bar(gpu.used.get(), gpu.total.get(), place.width.into()));
    match filled(BAR) {
        Some(filled) => {
            grid.put(&mut strip, BAR, &filled, Tone::Good);
            grid.put(&mut strip, PURPOSE, &warmth(gpu), Tone::Plain);
        }
        None => grid.put(&mut strip, PURPOSE, &filled(PURPOSE).unwrap_or_default(), Tone::Good),
    }
    grid.put(&mut strip, MEMORY, &memory(gpu.used, gpu.total), Tone::Plain);
    let busy = gpu.utilization_percent.map_or_else(|| "-".into(), |percent| format!("{percent}%"));
    grid.put(&mut strip, BUSY, &busy, Tone::Plain);
    let note = note(gpu);
    let (place, wide) = (grid.place(STATE), grid.place(NOTE).is_some());
    match note {
        Some((note, tone)) if !wide => grid.put(&mut strip, STATE, &note, tone),
        other => {
            let columns = place.map_or(0, |place| place.width.into());
            let figures = state.busy.get(&gpu.uuid).into_iter().flatten().copied();
            grid.put(&mut strip, STATE, &graph(figures, columns), Tone::Good);
            other.into_iter().for_each(|(note, tone)| grid.put(&mut strip, NOTE, &note, tone));
        }
    }
    strip
}

/// Temperature and power: `35 C  54/300 W`.
fn warmth(gpu: &GpuView) -> String {
    let watts = |milliwatts: u32| milliwatts.saturating_add(500) / 1000;
    let celsius = gpu.temperature_celsius.map(|celsius| format!("{celsius} C"));
    let power = match (gpu.power_milliwatts.map(watts), gpu.power_limit_milliwatts.map(watts)) {
        (Some(draw), Some(limit)) => Some(format!("{draw}/{limit} W")),
        (draw, _) => draw.map(|draw| format!("{draw} W")),
    };
    [celsius, power].into_iter().flatten().collect::<Vec<_>>().join("  ")
}

/// Remark on a GPU: a fault, an obstacle, a cordon, processes in no slice.
fn note(gpu: &GpuView) -> Option<(String, Tone)> {
    if let Some(fault) = gpu.faults.last() {
        return Some((format!("Xid {}", fault.xid), Tone::Bad));
    }
    if let Some(obstacle) = gpu.obstacle() {
        return Some((format!("no slices: {obstacle}"), Tone::Warn));
    }
    if gpu.cordon.is_some() {
        return Some(("cordoned".into(), Tone::Warn));
    }
    match gpu.foreign.as_slice() {
        [] => None,
        [one] => Some((format!("in no slice: {}", one.command), Tone::Warn)),
        several => Some((format!("{} in no slice", several.len()), Tone::Warn)),
    }
}

fn of_part(scene: &Scene, slice: &SliceView, device: &SliceDeviceView, grid: &Grid) -> Strip {
    let mut strip = Strip::default();
    let over = device.over_cap > Bytes::ZERO;
    let busy = device.compute_used_1s.get();
    grid.put(&mut strip, NAME, slice.name.as_str(), Tone::Plain);
    grid.put(&mut strip, USER, &scene.user(slice.owner_uid), Tone::Plain);
    grid.put(&mut strip, SHARE, &slice.share.to_string(), Tone::Plain);
    grid.put(&mut strip, PURPOSE, &scene.purpose(slice), Tone::Plain);
    if let Some(place) = grid.place(BAR) {
        let filled = bar(device.used.get(), device.cap.get(), place.width.into());
        grid.put(&mut strip, BAR, &filled, if over { Tone::Bad } else { Tone::Plain });
    }
    let tone = if over { Tone::Bad } else { Tone::Plain };
    grid.put(&mut strip, MEMORY, &memory(device.used, device.cap), tone);
    let tone = if busy > 0 { Tone::Good } else { Tone::Dim };
    grid.put(&mut strip, BUSY, &format!("{}%", busy.saturating_add(5) / 10), tone);
    let (text, tone) = condition(slice, over);
    grid.put(&mut strip, STATE, &text, tone);
    let commands: Vec<&str> = slice.processes.iter().map(|process| process.command.as_str()).collect();
    grid.put(&mut strip, NOTE, &commands.join("; "), Tone::Dim);
    strip
}

/// State of a slice, with the time for which it has been idle.
pub(super) fn condition(slice: &SliceView, over: bool) -> (String, Tone) {
    let idle = slice.idle_ms.map(span);
    match (slice.compute_state, idle) {
        _ if slice.is_away_by_turn() => ("away".into(), Tone::Cold),
        _ if slice.is_away() => ("parked".into(), Tone::Cold),
        (_, None) if slice.frozen => ("frozen".into(), Tone::Cold),
        (_, Some(idle)) if slice.frozen => (format!("frozen {idle}"), Tone::Cold),
        (_, Some(idle)) => (format!("idle {idle}"), Tone::Warn),
        _ if over => ("over its cap".into(), Tone::Bad),
        (ComputeState::Running, None) => ("running".into(), Tone::Good),
        (state, None) => (state.to_string(), Tone::Plain),
    }
}

fn of_user(scene: &Scene, total: &Total, grid: &Grid) -> Strip {
    let mut strip = Strip::default();
    let count = |count: usize| if count == 0 { "-".to_owned() } else { count.to_string() };
    let gpus = |gpus: MilliGpus| if gpus == MilliGpus::ZERO { "-".to_owned() } else { gpus.to_string() };
    let longest = if total.idle_ms == 0 { "-".to_owned() } else { span(total.idle_ms) };
    let cells = [
        (scene.user(total.uid), Tone::Plain),
        (count(total.slices), Tone::Plain),
        (gpus(total.gpus), Tone::Plain),
        (gpus(total.idle), Tone::Warn),
        (longest, Tone::Warn),
        (memory(total.used, total.cap), Tone::Plain),
        (format!("{}%", total.time.saturating_add(5) / 10), Tone::Good),
        (count(total.running), Tone::Plain),
        (count(total.pending), Tone::Plain),
    ];
    cells.iter().enumerate().for_each(|(at, (text, tone))| grid.put(&mut strip, at, text, *tone));
    strip
}
