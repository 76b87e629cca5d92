//! Other nodes below the first line, by the figures of their pages.

use std::thread;
use std::time::{Duration, Instant};

use tranche_domain::jobs::MilliGpus;
use tranche_nodes::{NodeAddress, NodeFigures};

use super::sheet::{Strip, Tone};

/// Time between two readings of a node.
const INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of nodes that have a line of their own.
const MOST_LINES: usize = 8;

/// The part of a node's overview that is shown.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize)]
struct OverviewFigures {
    figures: NodeFigures,
}

/// Another node with its last known state.
#[derive(Clone, Debug)]
pub(super) struct NodeLine {
    name: String,
    /// Figures of the latest answer.
    figures: Option<NodeFigures>,
    /// Failure of the latest reading.
    failure: Option<String>,
}

/// Result of a reading, of the node with this number.
pub(super) type ReadNode = (usize, Result<NodeFigures, String>);

impl NodeLine {
    /// A node that has not been read yet.
    pub(super) fn new(address: &NodeAddress) -> Self {
        Self { name: address.name.clone(), figures: None, failure: None }
    }

    /// Enters the result of a reading. Figures stay when a later one fails.
    pub(super) fn enter(&mut self, read: Result<NodeFigures, String>) {
        match read {
            Ok(figures) => (self.figures, self.failure) = (Some(figures), None),
            Err(failure) => self.failure = Some(failure),
        }
    }

    fn line(&self) -> (String, Tone) {
        let name = &self.name;
        match (&self.figures, &self.failure) {
            (None, None) => (format!("{name}: not read yet"), Tone::Dim),
            (None, Some(failure)) => (format!("{name}: no answer: {failure}"), Tone::Bad),
            (Some(figures), None) => (format!("{name}: {}", sums(figures)), Tone::Plain),
            (Some(figures), Some(failure)) => {
                (format!("{name}: {}, before it stopped to answer: {failure}", sums(figures)), Tone::Bad)
            }
        }
    }
}

/// Figures of a node in the words of the first line.
fn sums(figures: &NodeFigures) -> String {
    let NodeFigures { gpus, running, pending, .. } = figures;
    let [held, idle] = [figures.allocated_milligpus, figures.idle_milligpus].map(MilliGpus::new);
    let gpus = if *gpus == 1 { "1 GPU".to_owned() } else { format!("{gpus} GPUs") };
    format!("{gpus}: {held} allocated ({idle} idle) | {running} running, {pending} pending")
}

/// Lines of the other nodes; the last one counts those that have none.
pub(super) fn strips(nodes: &[NodeLine], width: u16) -> Vec<Strip> {
    let shown = if nodes.len() > MOST_LINES { MOST_LINES - 1 } else { nodes.len() };
    let line = |node: &NodeLine| {
        let (text, tone) = node.line();
        Strip::of(&text, width, tone)
    };
    let mut strips: Vec<Strip> = nodes.iter().take(shown).map(line).collect();
    let more = nodes.len() - shown;
    strips.extend((more > 0).then(|| Strip::of(&format!("... {more} more nodes"), width, Tone::Dim)));
    strips
}

/// Reads each node again and again in a thread of its own, until results are no longer taken.
pub(super) fn follow<P>(addresses: Vec<NodeAddress>, pass: P)
where
    P: Fn(ReadNode) -> bool + Clone + Send + 'static,
{
    for (number, address) in addresses.into_iter().enumerate() {
        let pass = pass.clone();
        thread::spawn(move || {
            loop {
                let begin = Instant::now();
                if !pass((number, read(&address))) {
                    return;
                }
                thread::sleep(INTERVAL.saturating_sub(begin.elapsed()));
            }
        });
    }
}

/// Reads a node once.
pub(super) fn read(address: &NodeAddress) -> Result<NodeFigures, String> {
    address.read::<OverviewFigures>().map(|overview| overview.figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeLine {
        NodeLine::new(&format!("{name}=http://a").parse().unwrap())
    }

    #[test]
    fn node_keeps_its_figures_when_it_stops_to_answer() {
        let mut gpu2 = node("gpu2");
        assert_eq!(gpu2.line().0, "gpu2: not read yet");
        gpu2.enter(Err("refused".into()));
        assert_eq!(gpu2.line().0, "gpu2: no answer: refused");
        let figures =
            NodeFigures { gpus: 8, allocated_milligpus: 6500, idle_milligpus: 500, running: 3, pending: 2 };
        gpu2.enter(Ok(figures));
        let sums = "gpu2: 8 GPUs: 6.5 allocated (0.5 idle) | 3 running, 2 pending";
        assert_eq!(gpu2.line().0, sums);
        gpu2.enter(Err("late".into()));
        assert_eq!(gpu2.line().0, format!("{sums}, before it stopped to answer: late"));
    }

    #[test]
    fn many_nodes_take_few_lines() {
        let nodes: Vec<NodeLine> = (0..30).map(|number| node(&format!("gpu{number}"))).collect();
        assert_eq!(strips(&nodes[..MOST_LINES], 80).len(), MOST_LINES);
        assert_eq!(strips(&nodes, 80).len(), MOST_LINES);
        assert!(strips(&[], 80).is_empty());
    }
}
