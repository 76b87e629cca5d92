//! Figures of all nodes together, and the bars of projects.

use super::rows::{NodePlace, drawing, gpus, swatch};
use super::shown::ShownNode;
use tranche_nodes::NodeFigures;

use crate::colour::Colours;
use crate::element::{Element, element};
use crate::overview::{Overview, ProjectRow};
use crate::time::{duration, moment};

/// The figures, and what is wrong with nodes.
pub(super) fn figures(nodes: &[ShownNode<'_>]) -> Element {
    let known: Vec<&Overview> = nodes.iter().filter_map(|node| Some(node.last?.0)).collect();
    let sum = known.iter().map(|overview| overview.figures).fold(NodeFigures::default(), plus);
    let answering = nodes.iter().filter(|node| node.failure.is_none() && node.last.is_some()).count();
    let of_nodes = (answering < nodes.len()).then(|| format!("{answering} of them answer"));
    let figure = |title: &str, value: String, remark: Option<String>| {
        let box_ = element("div").add(element("dt").text(title)).add(element("dd").text(value));
        box_.all(remark.map(|remark| element("dd").class("remark").text(remark)))
    };
    let idle = figure("Idle allocated", gpus(sum.idle_milligpus), idle_remark(&known));
    let idle = if sum.idle_milligpus > 0 { idle.class("figure warn") } else { idle.class("figure") };
    let plain = |title, value, remark| figure(title, value, remark).class("figure");
    let boxes = element("dl")
        .class("figures")
        .add(plain("Nodes", nodes.len().to_string(), of_nodes))
        .add(plain("GPUs", sum.gpus.to_string(), simulated(&known)))
        .add(plain("Allocated", gpus(sum.allocated_milligpus), None))
        .add(idle)
        .add(plain("Running", sum.running.to_string(), None))
        .add(plain("Pending", sum.pending.to_string(), None));
    let as_of = known.iter().map(|overview| overview.time_unix_ms).max();
    let as_of = as_of.map(|time| element("p").class("asof").text("State of ").add(moment(time)));
    let omitted = known.iter().map(|overview| overview.omitted).fold(0, u64::saturating_add);
    let omitted = (omitted > 0).then(|| {
        element("p").class("more").text(format!("{omitted} rows are left out of the tables for their length"))
    });
    element("section").add(boxes).all(nodes.iter().filter_map(failure)).all(as_of).all(omitted)
}

fn plus(one: NodeFigures, other: NodeFigures) -> NodeFigures {
    NodeFigures {
        gpus: one.gpus.saturating_add(other.gpus),
        allocated_milligpus: one.allocated_milligpus.saturating_add(other.allocated_milligpus),
        idle_milligpus: one.idle_milligpus.saturating_add(other.idle_milligpus),
        running: one.running.saturating_add(other.running),
        pending: one.pending.saturating_add(other.pending),
    }
}

fn simulated(known: &[&Overview]) -> Option<String> {
    let simulated = known.iter().filter(|overview| overview.simulated);
    let gpus = simulated.map(|overview| overview.figures.gpus).fold(0, u32::saturating_add);
    (gpus > 0).then(|| format!("{gpus} of them simulated"))
}

/// Number of idle jobs and slices, and the longest time.
fn idle_remark(known: &[&Overview]) -> Option<String> {
    let jobs = known.iter().flat_map(|overview| overview.jobs.iter().filter_map(|job| job.idle_ms));
    let slices = known.iter().flat_map(|overview| overview.slices.iter().filter_map(|slice| slice.idle_ms));
    let longest = jobs.clone().chain(slices.clone()).max()?;
    let count = |count: usize, one: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {one}s")),
    };
    let parts = [count(jobs.count(), "job"), count(slices.count(), "slice")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    Some(format!("{}, longest {}", parts.join(", "), duration(longest)))
}

fn failure(node: &ShownNode<'_>) -> Option<Element> {
    let why = node.failure?;
    let text = match node.last {
        Some((_, age)) => {
            let age = duration(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            format!("{} does not answer: what is shown of it is {age} old ({why})", node.name)
        }
        None => format!("{} has not answered yet ({why})", node.name),
    };
    Some(element("p").class("failure warn").text(text))
}

/// Bars of projects with their quota.
pub(super) fn projects(overview: &Overview, colours: &Colours, place: &NodePlace<'_>) -> (String, Element) {
    let section = place.section("Projects");
    let capacity = overview.figures.gpus.saturating_mul(1000);
    let most = overview.projects.iter().map(|one| one.allocated_milligpus.max(one.quota_milligpus)).max();
    let scale = most.unwrap_or_default().max(capacity).max(1);
    let section = match overview.projects.as_slice() {
        [] => section.add(element("p").class("none").text("The node has no projects.")),
        projects => section.all(projects.iter().map(|project| bar(project, scale, colours))),
    };
    (place.id("projects"), section)
}

fn bar(project: &ProjectRow, scale: u32, colours: &Colours) -> Element {
    let x = |milligpus: u32| u64::from(milligpus) * 1000 / u64::from(scale);
    let busy = project.allocated_milligpus.saturating_sub(project.idle_milligpus);
    let rect = |from: u32, to: u32| {
        let width = x(to).saturating_sub(x(from));
        element("rect").with("x", x(from)).with("y", 2).with("width", width).with("height", 16)
    };
    let quota = x(project.quota_milligpus).min(998);
    let drawing = drawing("bar", 1000, 20)
        .with("aria-hidden", true)
        .add(element("rect").class("ground").with("y", 2).with("width", 1000).with("height", 16))
        .add(rect(0, busy).class(colours.class(Some(&project.name))))
        .add(
            rect(busy, project.allocated_milligpus)
                .class(format!("{} faint", colours.class(Some(&project.name)))),
        )
        .add(element("rect").class("quota").with("x", quota).with("width", 3).with("height", 20));
    let idle = match project.idle_milligpus {
        0 => String::new(),
        idle => format!(", {} of them idle", gpus(idle)),
    };
    let text = format!(
        "{} GPUs{idle}, quota {}; {} running, {} pending",
        gpus(project.allocated_milligpus),
        gpus(project.quota_milligpus),
        project.running,
        project.pending
    );
    let label = element("p")
        .add(swatch(colours, Some(&project.name)))
        .add(element("b").text(&project.name))
        .add(element("span").text(text));
    element("div").class("project").add(label).add(drawing)
}
