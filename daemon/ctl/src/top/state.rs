//! State of the display: the latest scene, what is selected, and how it is shown.

use std::collections::{BTreeMap, VecDeque};

use tranche_domain::id::{GpuUuid, HostPid, SliceName};
use tranche_domain::jobs::{JobName, ProjectName};

use super::deed::Deed;
use super::others::NodeLine;
use super::scene::Scene;

/// Number of figures kept for each GPU.
const REMEMBERED: usize = 512;

/// A line that can be selected. It keeps its meaning when the scene changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A GPU, by its index.
    Gpu(u32),
    /// A slice on a GPU.
    Part(u32, SliceName),
    /// A job in the queue.
    Job(ProjectName, JobName),
    /// A request for a slice, by the process that waits.
    Request(HostPid),
    /// A user, by uid.
    User(u32),
}

/// Order of slices below their GPU, and of users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// By name, in ascending order.
    #[default]
    Name,
    /// By memory in use, most first.
    Memory,
    /// By GPU time used, most first.
    Time,
    /// By the time without use, longest first.
    Idle,
}

impl Sort {
    /// The order that follows on the key `s`.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Name => Self::Memory,
            Self::Memory => Self::Time,
            Self::Time => Self::Idle,
            Self::Idle => Self::Name,
        }
    }

    /// Its name in the last line.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Memory => "memory",
            Self::Time => "time",
            Self::Idle => "idle",
        }
    }
}

/// Part of the display that keys act on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Focus {
    /// GPUs or users, and the queue.
    #[default]
    Tables,
    /// The filter, while it is written.
    Filter,
    /// A question, to be answered by y or n.
    Question(Deed),
    /// Details of the selected line, from this line on.
    Details(usize),
    /// The list of keys.
    Help,
}

/// A message in the last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) text: String,
    /// True if something failed.
    pub(super) failed: bool,
}

/// A daemon that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    /// Local time of its last answer, or of the start.
    pub(super) since: String,
    /// Error of the latest attempt.
    pub(super) why: String,
}

/// State of the display.
#[derive(Clone, Debug, Default)]
pub(super) struct ScreenState {
    /// The latest answer of the daemon.
    pub(super) scene: Option<Scene>,
    /// Set while the daemon does not answer.
    pub(super) silence: Option<Silence>,
    /// Other nodes, in the order in which they are shown.
    pub(super) others: Vec<NodeLine>,
    /// Path of its socket, for messages.
    pub(super) socket: String,
    /// Name of the node.
    pub(super) host: String,
    /// Uid of the user in front of it.
    pub(super) own_uid: u32,
    /// Busy percentages of each GPU since the start.
    pub(super) busy: BTreeMap<GpuUuid, VecDeque<u8>>,
    pub(super) selected: Option<Subject>,
    /// Number of the selected line when it was selected.
    pub(super) at: usize,
    pub(super) sort: Sort,
    pub(super) filter: String,
    /// True if only the user's own slices and jobs are shown.
    pub(super) mine: bool,
    /// True if totals of users are shown instead of GPUs.
    pub(super) by_user: bool,
    pub(super) focus: Focus,
    pub(super) notice: Option<Notice>,
    /// First visible line of the table and of the queue.
    pub(super) first: [usize; 2],
    /// Lines of the table in the latest frame, for a page.
    pub(super) page: usize,
}

impl ScreenState {
    /// Replaces the scene, and remembers how busy its GPUs are.
    pub(super) fn show(&mut self, scene: Scene) {
        for gpu in &scene.node.gpus {
            let Some(percent) = gpu.utilization_percent else { continue };
            let figures = self.busy.entry(gpu.uuid).or_default();
            if figures.len() == REMEMBERED {
                figures.pop_front();
            }
            figures.push_back(u8::try_from(percent.min(100)).unwrap_or(100));
        }
        self.silence = None;
        self.scene = Some(scene);
    }

    /// Sets the message in the last line.
    pub(super) fn note(&mut self, failed: bool, text: impl Into<String>) {
        self.notice = Some(Notice { text: text.into(), failed });
    }
}
