//! Tables of nodes, jobs, waiting requests and slices.

use tranche_domain::jobs::MilliGpus;

use super::shown::ShownNode;
use crate::colour::Colours;
use crate::element::{Element, element};
use crate::overview::Overview;
use crate::time::duration;

/// Place of a node on the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodePlace<'a> {
    pub(super) number: usize,
    /// Name of the node; absent where there is one node alone.
    pub(super) name: Option<&'a str>,
    /// Maximum number of rows of a table.
    pub(super) most: usize,
}

impl NodePlace<'_> {
    /// Name of a part of this node.
    pub(super) fn id(&self, part: &str) -> String {
        format!("n{}-{part}", self.number)
    }

    /// A section with a heading, which names the node where there are several.
    pub(super) fn section(&self, title: &str) -> Element {
        let of = self.name.map(|name| format!(" on {name}")).unwrap_or_default();
        element("section").add(element("h2").text(format!("{title}{of}")))
    }
}

/// GPUs in decimal form.
pub(super) fn gpus(milligpus: u32) -> String {
    MilliGpus::new(milligpus).to_string()
}

/// A drawing of this class in its own units, stretched to the width that it has.
pub(super) fn drawing(class: &'static str, width: usize, height: u64) -> Element {
    let drawing = element("svg").class(class).with("viewBox", format!("0 0 {width} {height}"));
    drawing.with("preserveAspectRatio", "none")
}

/// Square in the colour of a project.
pub(super) fn swatch(colours: &Colours, project: Option<&str>) -> Element {
    element("span").class(format!("dot {}", colours.class(project)))
}

/// Project with its colour.
pub(super) fn project(colours: &Colours, name: &str) -> Element {
    element("td").add(swatch(colours, Some(name))).text(name)
}

/// A table with these columns; a note replaces an empty one, and follows one that was cut.
fn table(
    kind: &'static str,
    columns: &[&'static str],
    rows: Vec<Element>,
    most: usize,
    nothing: &'static str,
) -> Vec<Element> {
    if rows.is_empty() {
        return vec![element("p").class("none").text(nothing)];
    }
    let more = rows.len().saturating_sub(most);
    let head = element("tr").all(columns.iter().map(|title| element("th").with("scope", "col").text(title)));
    let body = element("tbody").all(rows.into_iter().take(most));
    let table = element("table").class(kind).add(element("thead").add(head)).add(body);
    let note = (more > 0).then(|| element("p").class("more").text(format!("and {more} more")));
    std::iter::once(table).chain(note).collect()
}

fn cell(text: impl std::fmt::Display) -> Element {
    element("td").text(text)
}

fn percent(percent: Option<u32>) -> Element {
    cell(percent.map_or_else(|| "-".into(), |percent| format!("{percent} %")))
}

fn idle(idle_ms: Option<u64>) -> Element {
    match idle_ms {
        Some(ms) => cell(format!("idle {}", duration(ms))).class("warn"),
        None => cell("-"),
    }
}

fn indices(gpus: &[u32]) -> String {
    gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// Row of something that may be idle.
fn row(idle_ms: Option<u64>) -> Element {
    let row = element("tr");
    if idle_ms.is_some() { row.class("idle") } else { row }
}

/// All nodes with their figures and the age of these.
pub(super) fn nodes(nodes: &[ShownNode<'_>]) -> Element {
    const COLUMNS: [&str; 7] = ["Node", "State", "GPUs", "Allocated", "Idle", "Running", "Pending"];
    let row = |node: &ShownNode<'_>| {
        let age = node.last.map(|(_, age)| duration(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
        let state = match (node.failure, age) {
            (None, Some(_)) => cell("answers"),
            (None, None) => cell("is read for the first time"),
            (Some(why), None) => cell(format!("no answer yet: {why}")).class("warn"),
            (Some(why), Some(age)) => cell(format!("no answer; these are of {age} ago: {why}")).class("warn"),
        };
        let row = element("tr").add(cell(node.name)).add(state);
        let Some((Overview { figures, .. }, _)) = node.last else {
            return row.all((0..5).map(|_| cell("-")));
        };
        let amounts =
            [figures.gpus.to_string(), gpus(figures.allocated_milligpus), gpus(figures.idle_milligpus)];
        let counts = [figures.running.to_string(), figures.pending.to_string()];
        row.all(amounts.into_iter().chain(counts).map(cell))
    };
    let rows = nodes.iter().map(row).collect();
    let heading = element("h2").text("Nodes");
    element("section").add(heading).all(table("nodes", &COLUMNS, rows, usize::MAX, ""))
}

/// Table of the jobs that have GPUs.
pub(super) fn jobs(overview: &Overview, colours: &Colours, place: &NodePlace<'_>) -> (String, Element) {
    const COLUMNS: [&str; 9] =
        ["Project", "Job", "User", "State", "GPUs", "Devices", "Run time", "GPU use", "Idle"];
    let rows = overview.jobs.iter().map(|job| {
        let run = job.run_ms.map_or_else(|| "-".into(), duration);
        row(job.idle_ms)
            .add(project(colours, &job.project))
            .all([cell(&job.name), cell(&job.user), cell(&job.state), cell(gpus(job.milligpus))])
            .all([cell(indices(&job.gpus)), cell(run), percent(job.use_percent), idle(job.idle_ms)])
    });
    let table = table("jobs", &COLUMNS, rows.collect(), place.most, "No job has a GPU.");
    (place.id("jobs"), place.section("Running jobs").all(table))
}

/// Jobs and requests that wait.
pub(super) fn pending(overview: &Overview, colours: &Colours, place: &NodePlace<'_>) -> (String, Element) {
    const COLUMNS: [&str; 6] = ["Project", "Name", "User", "GPUs", "Waiting", "Reason"];
    let rows = overview.pending.iter().map(|pending| {
        let of = pending.project.as_deref().map(|name| project(colours, name));
        element("tr")
            .add(of.unwrap_or_else(|| cell("-")))
            .all([cell(&pending.name), cell(pending.user.as_deref().unwrap_or("-")), cell(&pending.share)])
            .all([cell(duration(pending.waiting_ms)), cell(&pending.reason).class("reason")])
    });
    let table = table("pending", &COLUMNS, rows.collect(), place.most / 2, "Nothing waits.");
    (place.id("pending"), place.section("Pending").all(table))
}

/// Slices without a job.
pub(super) fn slices(overview: &Overview, colours: &Colours, place: &NodePlace<'_>) -> (String, Element) {
    const COLUMNS: [&str; 8] = ["Project", "Slice", "User", "GPUs", "Devices", "Age", "GPU use", "Idle"];
    let rows = overview.slices.iter().map(|slice| {
        let of = slice.project.as_deref().map(|name| project(colours, name));
        row(slice.idle_ms)
            .add(of.unwrap_or_else(|| cell("-")))
            .all([cell(&slice.name), cell(&slice.user), cell(gpus(slice.milligpus))])
            .all([cell(indices(&slice.gpus)), cell(duration(slice.age_ms))])
            .add(percent(slice.use_percent))
            .add(if slice.parked { cell("parked") } else { idle(slice.idle_ms) })
    });
    let table = table("slices", &COLUMNS, rows.collect(), place.most / 2, "Every slice is a job's.");
    (place.id("slices"), place.section("Slices without a job").all(table))
}
