//! GPUs with their slices and their use over the last day.

use super::rows::{NodePlace, drawing, gpus as amount};
use crate::colour::Colours;
use crate::element::{Element, element};
use crate::limits::BINS_OF_DAY;
use crate::overview::{GpuRow, Overview, PartRow};
use crate::time::duration;

/// GPUs of a node as cards.
pub(super) fn gpus(overview: &Overview, colours: &Colours, place: &NodePlace<'_>) -> (String, Element) {
    let cards = element("div").class("gpus").all(overview.gpus.iter().map(|gpu| card(gpu, colours)));
    let note = "The strip is the use of the last 24 hours, in parts of ten minutes, as far as this page's process has \
                seen it: it keeps them in memory since its start.";
    let section = place.section("GPUs").add(cards).add(element("p").class("more").text(note));
    (place.id("gpus"), section)
}

fn card(gpu: &GpuRow, colours: &Colours) -> Element {
    let title = element("p")
        .add(element("b").text(format!("GPU {}", gpu.index)))
        .add(element("span").text(format!(" {}", gpu.name)));
    let card = element("div").class("gpu").add(title).add(element("p").class("state").text(state(gpu)));
    let closed =
        gpu.closed.as_ref().map(|why| element("p").class("warn").text(format!("takes no slices: {why}")));
    let foreign = (gpu.foreign > 0)
        .then(|| element("p").class("warn").text(format!("{} processes in no slice", gpu.foreign)));
    let list = element("ul").all(gpu.parts.iter().map(|part| entry(part, colours)));
    card.add(division(gpu, colours)).all(closed).all(foreign).add(list).add(strip(&gpu.day))
}

fn state(gpu: &GpuRow) -> String {
    const MIB: u64 = 1 << 20;
    let or_dash =
        |value: Option<u32>, unit| value.map_or_else(|| "-".into(), |value| format!("{value} {unit}"));
    let (used, total) = (gpu.used_bytes / MIB, gpu.total_bytes / MIB);
    let (load, heat) = (or_dash(gpu.use_percent, "%"), or_dash(gpu.temperature_celsius, "C"));
    format!("{load}, {used} of {total} MiB, {heat}")
}

/// Bar of the slices on a GPU.
fn division(gpu: &GpuRow, colours: &Colours) -> Element {
    let mut svg = drawing("bar", 1000, 20)
        .with("aria-hidden", true)
        .add(element("rect").class("ground").with("width", 1000).with("height", 20));
    let mut from = 0;
    for part in gpu.parts.iter().filter(|part| !part.parked) {
        let width = part.milligpus.min(1000 - from);
        let faint = if part.idle_ms.is_some() { " faint" } else { "" };
        let class = format!("{}{faint}", colours.class(part.project.as_deref()));
        // Four units narrower than the part, so that neighbours of one project stay apart.
        let width_drawn = width.saturating_sub(4).max(1);
        svg = svg
            .add(element("rect").class(class).with("x", from).with("width", width_drawn).with("height", 20));
        from += width;
    }
    svg
}

fn entry(part: &PartRow, colours: &Colours) -> Element {
    let name = part.job.as_ref().unwrap_or(&part.slice);
    let text = format!("{} {name}, {}", amount(part.milligpus), part.user);
    let entry = element("li").add(super::rows::swatch(colours, part.project.as_deref())).text(text);
    let state = match part.idle_ms {
        _ if part.parked => Some(", parked".to_owned()),
        idle_ms => idle_ms.map(|ms| format!(", idle {}", duration(ms))),
    };
    entry.all(state.map(|state| element("span").class("warn").text(state)))
}

/// Use of the last day as bars of ten minutes.
fn strip(day: &[Option<u8>]) -> Element {
    let mut path = String::new();
    for (at, percent) in day.iter().enumerate() {
        if let Some(percent) = percent {
            // A bar of at least one unit, so that idle differs from unknown.
            path += &format!("M{at} 100v-{}h1V100", (*percent).clamp(1, 100));
        }
    }
    drawing("strip", BINS_OF_DAY, 100)
        .with("role", "img")
        .with("aria-label", "Use of the last 24 hours")
        .add(element("rect").class("ground").with("width", BINS_OF_DAY).with("height", 100))
        .add(element("path").class("use").with("d", path))
}
