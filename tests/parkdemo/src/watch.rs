//! Memory of the notebook, the training and the host over time.

use std::thread::sleep;
use std::time::{Duration, Instant};

use e2e::Node;
use serde_json::Value;
use tranche_domain::units::Bytes;

use crate::curves::{self, Sample};

/// Pause between two samples.
const PAUSE: Duration = Duration::from_millis(50);

/// Samples and steps so far.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    node: &'a Node,
    began: Instant,
    samples: Vec<Sample>,
    steps: Vec<(f64, String)>,
    /// Pid of the notebook, once it is there.
    notebook: u32,
}

impl<'a> Watch<'a> {
    pub(crate) fn begin(node: &'a Node) -> Self {
        Self { node, began: Instant::now(), samples: Vec::new(), steps: Vec::new(), notebook: 0 }
    }

    /// Prints a step, and enters it in the drawing.
    pub(crate) fn step(&mut self, what: &str) {
        let at = self.began.elapsed().as_secs_f64();
        println!("\n[{at:5.1} s] {what}");
        self.steps.push((at, what.into()));
    }

    /// Separates the notebook's memory from that of others.
    pub(crate) fn has_notebook(&mut self, pid: u32) {
        self.notebook = pid;
    }

    /// Samples until a predicate holds; false if it does not within `patience`.
    pub(crate) fn until(&mut self, patience: Duration, mut holds: impl FnMut(&Sample) -> bool) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            let sample = self.sample();
            self.samples.push(sample);
            if holds(&sample) {
                return true;
            }
            sleep(PAUSE);
        }
        false
    }

    /// Largest sum of both programs' memory on the GPU.
    pub(crate) fn most(&self) -> Bytes {
        let sums = self.samples.iter().map(|sample| sample.notebook.saturating_add(sample.training));
        sums.max().unwrap_or_default()
    }

    pub(crate) fn draw(&self) -> String {
        curves::draw(&self.samples, &self.steps)
    }

    fn sample(&self) -> Sample {
        let device = self.node.device();
        let all: Vec<u32> = device.gpus[0].processes.iter().map(|held| held.pid).collect();
        let (notebook, all) = (device.held_by(0, &[self.notebook]), device.held_by(0, &all));
        let shown: Value =
            serde_json::from_str(&self.node.tranche(&["smi", "--json"]).success()).unwrap_or_default();
        let slices = shown["slices"].as_array().into_iter().flatten();
        let host = slices.filter_map(|slice| slice["parked"]["host"].as_u64()).map(Bytes::new).sum();
        let at = self.began.elapsed().as_secs_f64();
        Sample { at, notebook, training: all.saturating_sub(notebook), host }
    }
}
