//! Output of `simgpu`, as tables or JSON.

use std::io::{self, Write};

use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};
use serde::Serialize;
use simgpu::{
    Blocks, Controlled, Gpu, Holding, Node, NodeSpec, ProcessState, Settings, Utilization, Vitals, Xid,
};

use crate::failure::Failure;

/// A node as JSON has it.
#[derive(Serialize)]
struct NodeShown {
    preset: String,
    driver: String,
    simulated: bool,
    gpus: Vec<GpuShown>,
    /// Processes that do not run freely: locked, checkpointed or failed.
    stopped: Vec<StoppedShown>,
}

#[derive(Serialize)]
struct StoppedShown {
    pid: u32,
    state: ProcessState,
    kept_bytes: u64,
}

impl From<Controlled> for StoppedShown {
    fn from(process: Controlled) -> Self {
        Self { pid: process.pid(), state: process.state(), kept_bytes: process.kept_bytes() }
    }
}

#[derive(Serialize)]
struct GpuShown {
    index: usize,
    name: String,
    uuid: String,
    pci_bus_id: String,
    island: Option<u32>,
    capacity_mib: u64,
    used_mib: u64,
    busy_ns: u64,
    utilization: Utilization,
    vitals: Vitals,
    settings: Settings,
    processes: Vec<ProcessShown>,
    xids: Vec<Xid>,
}

#[derive(Serialize)]
struct ProcessShown {
    pid: u32,
    memory_mib: u64,
    contexts: u64,
    busy_ns: u64,
    copy_ns: u64,
}

impl From<Holding> for ProcessShown {
    fn from(held: Holding) -> Self {
        let Holding { pid, memory, contexts, busy_ns, copy_ns } = held;
        Self { pid, memory_mib: memory.mib(), contexts, busy_ns, copy_ns }
    }
}

impl GpuShown {
    fn of(node: &Node, gpu: Gpu) -> Self {
        let spec = node.gpu_spec(gpu);
        let processes: Vec<ProcessShown> = node.holdings(gpu).into_iter().map(Into::into).collect();
        Self {
            index: gpu.index(),
            name: spec.model.name.clone(),
            uuid: spec.uuid_text(),
            pci_bus_id: spec.pci_bus_id(),
            island: spec.island,
            capacity_mib: node.capacity(gpu).mib(),
            used_mib: node.used(gpu).mib(),
            busy_ns: node.busy_ns(gpu),
            utilization: node.utilization(gpu),
            vitals: node.vitals(gpu),
            settings: node.settings(gpu),
            processes,
            xids: node.xids_after(gpu, 0),
        }
    }
}

/// Prints a node as tables or JSON.
pub(crate) fn node(node: &Node, json: bool) -> Result<(), Failure> {
    let gpus = node.gpus().map(|gpu| GpuShown::of(node, gpu)).collect();
    let shown = NodeShown {
        preset: node.spec().preset.clone(),
        driver: node.spec().driver.version.clone(),
        simulated: true,
        gpus,
        stopped: node.stopped().into_iter().map(Into::into).collect(),
    };
    let text = if json { as_json(&shown)? } else { as_table(&shown) };
    Ok(writeln!(io::stdout(), "{text}")?)
}

fn as_json(shown: &NodeShown) -> Result<String, Failure> {
    serde_json::to_string_pretty(shown).map_err(|error| Failure::Write(error.into()))
}

fn as_table(shown: &NodeShown) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(["GPU", "Name", "Island", "Memory", "Busy", "Modes and faults", "Processes"]);
    for gpu in &shown.gpus {
        table.add_row([
            gpu.index.to_string(),
            gpu.name.clone(),
            gpu.island.map_or("-".into(), |island| island.to_string()),
            format!("{} / {} MiB", gpu.used_mib, gpu.capacity_mib),
            format!("{} %", gpu.utilization.gpu),
            modes(gpu),
            lines(gpu.processes.iter().map(|held| format!("{} ({} MiB)", held.pid, held.memory_mib))),
        ]);
    }
    format!("Simulated node, preset {}, driver {}\n{table}", shown.preset, shown.driver)
}

fn modes(gpu: &GpuShown) -> String {
    let normal = Settings { context: gpu.settings.context, ..Settings::default() };
    let settings = (gpu.settings != normal).then(|| {
        let Settings { compute_mode, virtualization, presence, needs, mig, linger_ms, .. } = gpu.settings;
        format!(
            "compute {compute_mode:?}, {presence:?}, needs {needs:?}, MIG {mig:?}, virtualization {virtualization:?}, the dead stay \
             {linger_ms} ms"
        )
    });
    let xids = gpu.xids.iter().map(|xid| format!("Xid {}", xid.code));
    lines(settings.into_iter().chain(xids))
}

fn lines(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join("\n")
}

/// Shows who really ran when.
pub(crate) fn log(node: &Node, gpus: &[Gpu]) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for gpu in gpus {
        for entry in node.log(*gpu) {
            let (from, to) = (entry.from.0, entry.to.0);
            writeln!(out, "{}\t{}\t{}\t{from}\t{to}", gpu.index(), entry.pid, entry.context)?;
        }
    }
    Ok(out.flush()?)
}

/// Shows what is built in.
pub(crate) fn models() -> Result<(), Failure> {
    let mut models = Table::new();
    models.load_style(UTF8_BORDERS_ONLY).set_header(["Model", "Name", "Memory", "Context", "SMs"]);
    for (key, model) in simgpu::models() {
        let memory = model.capacity();
        let row = [key.into(), model.name.clone(), memory.to_string(), Blocks::to_string(&model.context())];
        models.add_row(row.into_iter().chain([model.compute.sm_count.to_string()]));
    }
    let mut drivers = Table::new();
    drivers.load_style(UTF8_BORDERS_ONLY).set_header(["Driver", "Version", "CUDA"]);
    for driver in simgpu::personalities() {
        let cuda = format!("{}.{}", driver.cuda / 1000, driver.cuda % 1000 / 10);
        drivers.add_row([driver.key, driver.version, cuda]);
    }
    let mut presets = Table::new();
    presets.load_style(UTF8_BORDERS_ONLY).set_header(["Preset", "GPUs", "What it is"]);
    for (name, about) in simgpu::presets() {
        presets.add_row([name.into(), NodeSpec::preset(name)?.gpus.len().to_string(), about]);
    }
    Ok(writeln!(io::stdout(), "{models}\n{presets}\n{drivers}")?)
}
