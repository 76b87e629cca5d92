//! The page as elements, in parts that are sent again when they change.

mod allocation;
mod figures;
mod gpus;
mod rows;
mod shown;

use crate::colour::Colours;
use crate::element::Element;

pub(crate) use shown::ShownNode;

/// Maximum number of rows of a table of the only node.
const ROWS_OF_ONE: usize = 200;
/// Maximum number of rows of a table of each of several nodes.
const ROWS_OF_SEVERAL: usize = 40;

/// Parts of the page in their order; the root of each has its name as its id.
pub(crate) fn parts(nodes: &[ShownNode<'_>]) -> Vec<(String, Element)> {
    let known = || nodes.iter().filter_map(|node| node.last.map(|(overview, _)| overview));
    let listed = known().flat_map(|overview| overview.projects.iter().map(|project| project.name.as_str()));
    let drawn = known().filter_map(|overview| overview.allocation.as_ref());
    let drawn = drawn.flat_map(|allocation| allocation.bands.iter().map(|band| band.project.as_str()));
    let colours = Colours::of(listed.chain(drawn));
    let most = if nodes.len() > 1 { ROWS_OF_SEVERAL } else { ROWS_OF_ONE };
    let mut parts = vec![("figures".to_owned(), figures::figures(nodes))];
    if nodes.len() > 1 {
        parts.push(("nodes".to_owned(), rows::nodes(nodes)));
    }
    for (number, node) in nodes.iter().enumerate() {
        let Some((overview, _)) = node.last else { continue };
        let place = rows::NodePlace { number, name: (nodes.len() > 1).then_some(node.name), most };
        parts.extend([
            figures::projects(overview, &colours, &place),
            rows::jobs(overview, &colours, &place),
            rows::pending(overview, &colours, &place),
            rows::slices(overview, &colours, &place),
            allocation::allocation(overview, &colours, &place),
            gpus::gpus(overview, &colours, &place),
        ]);
    }
    parts.into_iter().map(|(id, element)| (id.clone(), element.with("id", id))).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::overview::{JobRow, Overview};
    use crate::sample;

    fn only(overview: &Overview) -> Vec<(String, Element)> {
        parts(&[ShownNode { name: "gpu1", last: Some((overview, Duration::ZERO)), failure: None }])
    }

    fn html(parts: &[(String, Element)], id: &str) -> String {
        parts.iter().find(|(part, _)| part == id).unwrap().1.to_string()
    }

    /// HTML with a line for each element that begins a row, card or drawing.
    fn lines(html: &str) -> String {
        let breaks = ["<section", "<div", "<tr", "<li", "<p", "<svg", "<table", "</section>"];
        breaks
            .iter()
            .fold(html.to_owned(), |html, tag| html.replace(tag, &format!("\n{tag}")))
            .trim()
            .to_owned()
            + "\n"
    }

    #[test]
    fn hostile_node_is_rendered_as_text() {
        let parts = only(&sample::hostile());
        for (id, golden) in [
            ("figures", include_str!("render/golden/figures.html")),
            ("n0-projects", include_str!("render/golden/projects.html")),
            ("n0-jobs", include_str!("render/golden/jobs.html")),
            ("n0-pending", include_str!("render/golden/pending.html")),
            ("n0-slices", include_str!("render/golden/slices.html")),
            ("n0-allocation", include_str!("render/golden/allocation.html")),
            ("n0-gpus", include_str!("render/golden/gpus.html")),
        ] {
            let rendered = lines(&html(&parts, id));
            assert!(rendered == golden, "{id} is not as in its golden file, but\n{rendered}");
        }
        let all: String = parts.iter().map(|(_, element)| element.to_string()).collect();
        assert!(!all.contains("<script") && !all.contains('\u{202e}') && all.contains("&lt;script&gt;"));
    }

    #[test]
    fn page_of_a_large_node_is_below_200_kb() {
        let large = sample::large();
        let size: usize = only(&large).iter().map(|(_, element)| element.to_string().len()).sum();
        assert!(size < 200_000, "{size} bytes");
        // Several nodes share the rows.
        let node = ShownNode { name: "gpu1", last: Some((&large, Duration::ZERO)), failure: None };
        let size: usize = parts(&[node; 2]).iter().map(|(_, element)| element.to_string().len()).sum();
        assert!(size < 200_000, "{size} bytes");
    }

    /// Tags and names of attributes in a tree.
    fn words(tree: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
        if let Some([tag, attributes, content @ ..]) = tree.as_array().map(Vec::as_slice) {
            found.extend(tag.as_str().map(str::to_owned));
            found.extend(attributes.as_object().into_iter().flat_map(|names| names.keys().cloned()));
            content.iter().for_each(|child| words(child, found));
        }
    }

    #[test]
    fn script_knows_every_tag_and_attribute() {
        let (one, other) = (sample::hostile(), sample::large());
        let shown =
            |overview| ShownNode { name: "n", last: Some((overview, Duration::ZERO)), failure: Some("x") };
        let mut found = std::collections::BTreeSet::new();
        for (_, element) in parts(&[shown(&one), shown(&other)]) {
            words(&element.json(), &mut found);
        }
        let script = include_str!("../assets/page.js");
        let unknown: Vec<_> = found.iter().filter(|word| !script.contains(&format!("\"{word}\""))).collect();
        assert!(found.len() > 20 && unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn thirteen_idle_jobs_are_counted() {
        let job = JobRow { idle_ms: Some(720_000), ..JobRow::default() };
        let mut overview = Overview { jobs: vec![job; 13], ..Overview::default() };
        overview.figures.idle_milligpus = 16_000;
        let figures = html(&only(&overview), "figures");
        assert!(figures.contains("<dt>Idle allocated</dt><dd>16</dd>"), "{figures}");
        assert!(figures.contains("13 jobs, longest 12 min"), "{figures}");
    }

    #[test]
    fn parked_part_is_named_and_not_drawn() {
        let mut overview = sample::hostile();
        overview.gpus.truncate(1);
        let shown = html(&only(&overview), "n0-gpus");
        overview.gpus[0].parts[0].parked = true;
        overview.slices[0].parked = true;
        let parts = only(&overview);
        let parked = html(&parts, "n0-gpus");
        // The background of bar and strip stay.
        assert_eq!((shown.matches("<rect").count(), parked.matches("<rect").count()), (3, 2), "{parked}");
        assert!(parked.contains(", parked") && !parked.contains(", idle"), "{parked}");
        assert!(html(&parts, "n0-slices").contains("<td>parked</td>"));
    }

    #[test]
    fn silent_node_is_shown_with_the_age_of_its_figures() {
        let (one, other) = (sample::hostile(), sample::large());
        let own = ShownNode { name: "gpu1", last: Some((&one, Duration::ZERO)), failure: None };
        let away = ShownNode {
            name: "gpu2",
            last: Some((&other, Duration::from_secs(95))),
            failure: Some("timeout: global"),
        };
        let never = ShownNode { name: "gpu3", last: None, failure: Some("connection refused") };
        let parts = parts(&[own, away, never]);
        let nodes = html(&parts, "nodes");
        assert!(nodes.contains("no answer; these are of 1 min ago: timeout: global"), "{nodes}");
        assert!(nodes.contains("no answer yet: connection refused"), "{nodes}");
        let figures = html(&parts, "figures");
        assert!(figures.contains("<dd>3</dd><dd class=\"remark\">1 of them answer</dd>"), "{figures}");
        assert!(
            html(&parts, "n1-jobs").contains("Running jobs on gpu2")
                && parts.iter().all(|(id, _)| id != "n2-jobs")
        );
    }
}
