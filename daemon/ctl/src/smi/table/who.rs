//! Tables of the pods of slices, and of processes.

use tranche_domain::view::{ForeignProcessView, NodeView, ProcessView};

use crate::smi::parts::by_gpu;
use crate::table::{Cell, Column, Section, or_dash, printable};

/// Slices with a pod.
pub(super) fn pods(node: &NodeView) -> Section {
    const COLUMNS: [Column; 4] = [
        Column::left("Slice").cut(12),
        Column::left("Namespace").cut(8),
        Column::left("Pod").cut(12),
        Column::left("Container").cut(8),
    ];
    let rows = node.slices.iter().filter_map(|slice| {
        let pod = slice.pod.as_ref()?;
        let names = [pod.namespace.as_str(), pod.name.as_str(), pod.container.as_str()];
        Some([slice.name.as_str()].into_iter().chain(names).map(Cell::from).collect())
    });
    (COLUMNS.to_vec(), rows.collect())
}

/// One process on one GPU.
struct Line<'a> {
    gpu: u32,
    slice: &'a str,
    pid: u32,
    /// Pid in its own namespace, if different.
    inside: Option<u32>,
    command: &'a str,
    used: Option<String>,
}

/// All processes on the GPUs; the column of inner pids is present if any differs.
pub(super) fn processes(node: &NodeView) -> Section {
    const PLAIN: [Column; 5] = [
        Column::right("GPU"),
        Column::left("Slice").cut(12),
        Column::right("PID"),
        Column::left("Process").cut(12),
        Column::right("Memory"),
    ];
    let mut lines: Vec<_> = members(node).chain(strangers(node)).collect();
    lines.sort_by_key(|line| line.gpu);
    let with_inside = lines.iter().any(|line| line.inside.is_some());
    let mut columns = PLAIN.to_vec();
    if with_inside {
        columns.insert(3, Column::right("Inside"));
    }
    (columns, lines.into_iter().map(|line| line.cells(with_inside)).collect())
}

fn members(node: &NodeView) -> impl Iterator<Item = Line<'_>> {
    by_gpu(node).into_iter().flat_map(|(slice, position, device)| {
        slice.processes.iter().map(move |process: &ProcessView| Line {
            gpu: device.gpu_index,
            slice: slice.name.as_str(),
            pid: process.pid.get(),
            inside: process.inner_pid.map(|pid| pid.get()),
            command: &process.command,
            used: process.used.get(position).map(|bytes| format!("{} MiB", bytes.whole_mib())),
        })
    })
}

fn strangers(node: &NodeView) -> impl Iterator<Item = Line<'_>> {
    node.gpus.iter().flat_map(|gpu| {
        gpu.foreign.iter().map(|process: &ForeignProcessView| Line {
            gpu: gpu.index,
            slice: "(in no slice)",
            pid: process.pid.get(),
            inside: None,
            command: &process.command,
            used: process.used.map(|bytes| format!("{} MiB", bytes.whole_mib())),
        })
    })
}

impl Line<'_> {
    fn cells(self, with_inside: bool) -> Vec<Cell> {
        let mut cells = vec![self.gpu.to_string(), self.slice.to_owned(), self.pid.to_string()];
        cells.extend(with_inside.then(|| or_dash(self.inside)));
        cells.extend([printable(self.command), or_dash(self.used)]);
        cells.into_iter().map(Cell::from).collect()
    }
}
