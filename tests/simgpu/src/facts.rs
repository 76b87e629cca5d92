//! Facts that can be seen of a GPU from outside: holdings, utilisation, vitals, and the log of its use.
#![forbid(unsafe_code)]

use serde::Serialize;

use crate::books::WINDOW;
use crate::ground::memory;
use crate::layout::{LOG, WINDOWS, Words, entry, gpu, holding, window, windows_of};
use crate::node::{Node, stamps};
use crate::process::Process;
use crate::units::{Blocks, Gpu, Time};
use crate::world::Stamp;

/// Complete windows that a sample looks back over: half a second.
const SAMPLE: u64 = 4;

/// Memory, contexts and time of one process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Holding {
    /// Its pid, as itself sees it.
    pub pid: u32,
    /// All its memory, contexts included.
    pub memory: Blocks,
    /// Number of its contexts.
    pub contexts: u64,
    /// Time in kernels since it registered, in nanoseconds.
    pub busy_ns: u64,
    /// Time in copies since it registered, in nanoseconds.
    pub copy_ns: u64,
}

/// Utilisation over the last half second, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Utilization {
    /// Time in which kernels ran.
    pub gpu: u32,
    /// Time in which memory was copied, and half of that in which kernels ran.
    pub memory: u32,
}

/// Utilisation of a GPU by one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUtilization {
    /// Pid of the process.
    pub pid: u32,
    /// End of the measured time.
    pub at: Time,
    /// Shares of time in kernels and copies.
    pub utilization: Utilization,
}

/// Physical state of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Vitals {
    /// Clock of the multiprocessors, in MHz.
    pub clock_mhz: u32,
    /// Power drawn, in mW.
    pub power_mw: u32,
    /// Temperature in degrees Celsius.
    pub temperature: u32,
}

/// A stretch of time in which one context had a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LogEntry {
    /// Pid of the process.
    pub pid: u32,
    /// The context's serial number.
    pub context: u64,
    /// Begin, in nanoseconds of the node's clock.
    pub from: Time,
    /// End, in nanoseconds of the node's clock.
    pub to: Time,
}

impl Node {
    /// Memory in use by living processes (the dead are reaped first). `cuMemGetInfo` is capacity less this.
    pub fn used(&self, gpu: Gpu) -> Blocks {
        self.reap();
        Blocks(self.gpu_words(gpu).header().get(gpu::USED))
    }

    /// Most memory in use at any instant since the last call of this.
    pub fn take_used_high(&self, gpu: Gpu) -> Blocks {
        self.reap();
        let ground = self.ground(gpu);
        let header = ground.words.header();
        let high = header.get(gpu::USED_HIGH);
        header.set(gpu::USED_HIGH, header.get(gpu::USED));
        Blocks(high)
    }

    /// The living processes that hold anything of a GPU.
    pub fn holdings(&self, gpu: Gpu) -> Vec<Holding> {
        self.reap();
        let (_ground, _) = self.bring(gpu);
        let words = self.gpu_words(gpu);
        let read = |(slot, stamp): (usize, u64)| holding(Stamp(stamp), words.holding(slot));
        stamps(self.words())
            .map(read)
            .filter(|held| held.contexts > 0 || held.memory > Blocks::ZERO)
            .collect()
    }

    /// Slots of processes and how many contexts each has on a GPU.
    pub(crate) fn holders(&self, gpu: Gpu) -> impl Iterator<Item = (usize, u64)> {
        stamps(self.words())
            .map(move |(slot, _)| (slot, self.gpu_words(gpu).holding(slot).get(holding::CONTEXTS)))
    }

    /// Kernel time of a GPU since its node was made, in nanoseconds.
    pub fn busy_ns(&self, gpu: Gpu) -> u64 {
        self.settle(gpu);
        self.gpu_words(gpu).header().get(gpu::BUSY)
    }

    /// Utilisation of a GPU over the last half second, in percent.
    pub fn utilization(&self, gpu: Gpu) -> Utilization {
        self.reap_now_and_then(gpu);
        self.settle(gpu);
        sample(self.gpu_words(gpu).windows(), self.now().0)
    }

    /// Utilisation of a GPU by each process that holds a context there.
    pub fn process_utilization(&self, gpu: Gpu) -> Vec<ProcessUtilization> {
        self.reap();
        let (_ground, _) = self.bring(gpu);
        let now = self.now().0;
        let at = Time(now / WINDOW * WINDOW);
        let read = |(slot, stamp): (usize, u64)| {
            let held = self.gpu_words(gpu).holding(slot);
            let utilization = sample(windows_of(held), now);
            (held.get(holding::CONTEXTS) > 0).then_some(ProcessUtilization {
                pid: Stamp(stamp).id(),
                at,
                utilization,
            })
        };
        stamps(self.words()).filter_map(read).collect()
    }

    /// Physical state of a GPU: plausible functions of its utilisation.
    pub fn vitals(&self, gpu: Gpu) -> Vitals {
        let busy = self.utilization(gpu).gpu;
        let model = &self.gpu_spec(gpu).model;
        let has_context = self.holders(gpu).any(|(_, contexts)| contexts > 0);
        let between = |idle: u32, full: u32| idle + (full - idle) * busy / 100;
        Vitals {
            clock_mhz: if busy > 0 || has_context { model.clocks.max_mhz } else { model.clocks.idle_mhz },
            power_mw: 1000 * between(model.power.idle_watts, model.power.limit_watts * 9 / 10),
            temperature: between(model.temperature.idle_celsius, model.temperature.busy_celsius),
        }
    }

    /// Stretches of time on a GPU with their contexts, oldest first, as far as the log reaches.
    pub fn log(&self, gpu: Gpu) -> Vec<LogEntry> {
        self.log_from(gpu, 0).1
    }

    /// The same from the stretch of a number on, and the number of the first that is still there. The last
    /// one may still grow, so a reader that follows the log reads it again.
    pub fn log_from(&self, gpu: Gpu, number: u64) -> (u64, Vec<LogEntry>) {
        let (_ground, _) = self.bring(gpu);
        let words = self.gpu_words(gpu);
        let count = words.header().get(gpu::LOG_COUNT);
        let first = number.max(count.saturating_sub(LOG as u64));
        (first, (first..count).map(|entry| log_entry(words.log(entry))).collect())
    }
}

impl Process {
    /// Kernel time of this process on a GPU, in nanoseconds.
    pub fn busy_ns(&self, gpu: Gpu) -> u64 {
        self.node().settle(gpu);
        self.node().gpu_words(gpu).holding(self.slot()).get(holding::BUSY)
    }

    /// Memory of this process on a GPU, without its contexts.
    pub fn blocks(&self, gpu: Gpu) -> Blocks {
        Blocks(self.node().gpu_words(gpu).holding(self.slot()).get(holding::BLOCKS))
    }
}

fn holding(stamp: Stamp, words: Words<'_>) -> Holding {
    Holding {
        pid: stamp.id(),
        memory: memory(words),
        contexts: words.get(holding::CONTEXTS),
        busy_ns: words.get(holding::BUSY),
        copy_ns: words.get(holding::BUSY_COPY),
    }
}

fn log_entry(words: Words<'_>) -> LogEntry {
    LogEntry {
        pid: Stamp(words.get(entry::PROCESS)).id(),
        context: words.get(entry::CONTEXT),
        from: Time(words.get(entry::FROM)),
        to: Time(words.get(entry::TO)),
    }
}

fn sample(windows: Words<'_>, now: u64) -> Utilization {
    let current = now / WINDOW;
    let recent = current.saturating_sub(SAMPLE)..current;
    let sum = |field: usize| -> u64 {
        (0..WINDOWS)
            .map(|index| windows.record(0, window::WORDS, index))
            .filter(|words| recent.contains(&words.get(window::NUMBER)))
            .map(|words| words.get(field))
            .sum()
    };
    let percent = |busy: u64| ((busy * 100).div_ceil(SAMPLE * WINDOW)).min(100) as u32;
    let (kernels, copies) = (sum(window::KERNELS), sum(window::COPIES));
    Utilization { gpu: percent(kernels), memory: percent(copies.max(kernels / 2)) }
}
