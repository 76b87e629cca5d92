//! Two slices that fill the rest of the GPU while a route is tried.

use std::fmt;

use e2e::{Node, Process, eventually};
use tranche_domain::units::Bytes;

use crate::observer::Observer;
use crate::trial::program;

/// A slice that is filled with plain memory and remains unchanged.
#[derive(Debug)]
struct Neighbour {
    cap: Bytes,
    observer: Observer,
    process: Process,
}

impl Neighbour {
    #[track_caller]
    fn fill(node: &Node, name: &str, cap: Bytes) -> Self {
        let memory = format!("{}Mi", cap.get() >> 20);
        let program = program();
        let words = [program.as_os_str(), "plain_large".as_ref()];
        let options = ["--memory", &memory, "--gpu", "0", "--name", name];
        let mut process = Process::start(&mut node.run_in_slice(&options, &words));
        assert_eq!(process.line().as_deref(), Some("full"), "{name}");
        let observer = Observer::of(&node.gpus(), process.pid());
        Self { cap, observer, process }
    }

    fn holds(&self) -> Bytes {
        self.observer.held()[0].memory
    }
}

/// All neighbours of a route; none if it is tried alone.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    all: Vec<Neighbour>,
    /// Sum of their memory on the device when they were full.
    full: Bytes,
}

impl fmt::Display for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.all.is_empty() { "alone" } else { "the rest full" })
    }
}

impl Neighbours {
    /// Fills the first GPU but for `spare`; fails if a MiB or more besides is uncommitted.
    #[track_caller]
    pub(crate) fn around(node: &Node, spare: Bytes) -> Self {
        let gpu = &node.smi().gpus[0];
        let rest = gpu.capacity.saturating_sub(spare);
        let large = Bytes::mib(rest.get() >> 21);
        let all: Vec<Neighbour> = [("large", large), ("rest", rest.saturating_sub(large))]
            .map(|(name, cap)| Neighbour::fill(node, name, cap))
            .into();
        let committed = node.smi().gpus[0].committed;
        assert!(committed.saturating_add(spare) > gpu.capacity.saturating_sub(Bytes::mib(1)), "{committed}");
        let mut neighbours = Self { all, full: Bytes::ZERO };
        neighbours.full = neighbours.hold();
        neighbours
    }

    /// Sum of their memory on the device.
    pub(crate) fn hold(&self) -> Bytes {
        self.all.iter().map(Neighbour::holds).sum()
    }

    /// An error unless each neighbour holds its cap, and all hold as much as when they were full.
    pub(crate) fn complaint(&self, reserve: Bytes) -> Option<String> {
        let held = self.hold();
        let promised = |neighbour: &Neighbour| {
            let plain = neighbour.holds();
            plain <= neighbour.cap && plain.saturating_add(reserve).get() * 1000 >= neighbour.cap.get() * 999
        };
        let kept = held == self.full && self.all.iter().all(promised);
        (!kept).then(|| format!("the neighbours held {} and hold {held}", self.full))
    }

    /// Ends them, and waits until their slices are deleted.
    #[track_caller]
    pub(crate) fn end(self, node: &Node) {
        for mut neighbour in self.all {
            neighbour.process.say("go on");
            assert_eq!(neighbour.process.end().code, Some(0));
        }
        eventually("the neighbours' slices are gone", || match node.smi().slices.len() {
            0 => Ok(()),
            left => Err(format!("{left} left")),
        });
    }
}
