//! Contexts and memory of one process.
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::context::Context;
use crate::faults::{ComputeMode, Presence, Setting};
use crate::ground::memory;
use crate::layout::{PROCESSES, context, gpu, holding, node};
use crate::node::{Node, stamps};
use crate::refusal::Refusal;
use crate::units::{Blocks, Gpu};
use crate::world::Stamp;

/// The calling process's record on a node. Cheap to clone, shared by threads. What it holds is reaped when the
/// process is dead, never on drop. After `fork` the child must not use it ([`Process::is_mine`]).
#[derive(Clone, Debug)]
pub struct Process {
    node: Node,
    slot: usize,
    stamp: Stamp,
}

impl Node {
    /// Makes a record of the calling process, which it needs to hold anything. To be done once per process, at
    /// `cuInit`; an earlier record of the same process (before `execve`) is cleared away with all it held.
    pub fn register(&self) -> Result<Process, Refusal> {
        self.enter(self.world().myself())
    }

    /// Does so for another process, which has a driver of its own in it that knows nothing of this one. Nothing if it
    /// does not live.
    pub fn introduce(&self, pid: u32) -> Option<Result<(), Refusal>> {
        Some(self.enter(self.world().other(pid)?).map(drop))
    }

    fn enter(&self, stamp: Stamp) -> Result<Process, Refusal> {
        self.reap();
        self.forget(stamp.0);
        let _held = self.words().header().lock(node::LOCK).hold();
        let slot = (0..PROCESSES)
            .find(|slot| self.words().process(*slot).load(Acquire) == 0)
            .ok_or(Refusal::Processes)?;
        self.clear_requests(slot);
        self.words().process(slot).store(stamp.0, Release);
        Ok(Process { node: self.clone(), slot, stamp })
    }

    /// Takes away what dead processes held, unless a GPU is set to keep that for a while.
    pub fn reap(&self) {
        for (slot, stamp) in stamps(self.words()) {
            if !self.world().is_alive(Stamp(stamp)) && !self.lingers(slot) {
                self.forget(stamp);
            }
        }
    }

    /// True if some GPU still keeps what a dead process holds of it.
    fn lingers(&self, slot: usize) -> bool {
        let now = self.now().0.max(1); // zero stands for a process that lives
        let keeps = |gpu: Gpu| {
            let span = self.gpu_words(gpu).header().get(gpu::LINGER);
            let held = self.gpu_words(gpu).holding(slot);
            if span == 0 || memory(held) == Blocks::ZERO {
                return false;
            }
            let since = held.word(holding::DEAD_SINCE);
            let since = since.compare_exchange(0, now, AcqRel, Acquire).map_or_else(|since| since, |_| now);
            now.saturating_sub(since) < span
        };
        self.gpus().any(keeps)
    }

    /// Takes memory of a GPU for a process, as a driver does for purposes of its own. Nothing if it knows no such
    /// process.
    pub fn take_for(&self, gpu: Gpu, pid: u32, blocks: Blocks) -> Option<Result<(), Refusal>> {
        let (slot, _) = stamps(self.words()).find(|(_, stamp)| Stamp(*stamp).id() == pid)?;
        Some(self.ground(gpu).take(slot, blocks))
    }

    /// Reaps at most once in 10 ms by the node's clock, for callers that poll.
    pub(crate) fn reap_now_and_then(&self, gpu: Gpu) {
        const INTERVAL: u64 = 10_000_000;
        let last = self.gpu_words(gpu).header().word(gpu::REAPED);
        let (seen, now) = (last.load(Acquire), self.now().0);
        let due = now.saturating_sub(seen) >= INTERVAL;
        if due && last.compare_exchange(seen, now, AcqRel, Acquire).is_ok() {
            self.reap();
        }
    }

    /// Clears every record with a stamp. A slot is free again only when no GPU has anything of it. Each GPU
    /// is cleared under its lock, after a check that the slot is not another process's by now.
    fn forget(&self, stamp: u64) {
        for (slot, _) in stamps(self.words()).filter(|(_, found)| *found == stamp) {
            let word = self.words().process(slot);
            if self.gpus().any(|gpu| self.takes_down(gpu, slot)) {
                self.take_down();
            }
            for gpu in self.gpus() {
                let (ground, _) = self.bring(gpu);
                if word.load(Acquire) == stamp {
                    ground.clear_process(slot);
                }
            }
            let _ = word.compare_exchange(stamp, 0, AcqRel, Acquire);
        }
    }
}

impl Node {
    /// True if the end of a process takes the GPUs down: its contexts were restored, and it is scripted so.
    fn takes_down(&self, gpu: Gpu, slot: usize) -> bool {
        let held = self.gpu_words(gpu).holding(slot);
        let restored = held.get(holding::RESTORED) != 0 && held.get(holding::CONTEXTS) > 0;
        restored && self.settings(gpu).restored_hangs
    }

    fn take_down(&self) {
        for gpu in self.gpus() {
            self.set(gpu, Setting::Presence(Presence::Lost));
            self.set(gpu, Setting::Hangs(true));
        }
    }
}

impl Process {
    /// The node it is on.
    pub const fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) const fn slot(&self) -> usize {
        self.slot
    }

    /// True if the caller is still the process that registered, and not a child that `fork` made of it.
    pub fn is_mine(&self) -> bool {
        self.node.world().is_me(self.stamp)
    }

    /// Makes a context and charges its cost by the model.
    pub fn create_context(&self, gpu: Gpu) -> Result<Context, Refusal> {
        self.check_compute_mode(gpu)?;
        self.with_reaping(|| self.node.ground(gpu).add_context(self.slot))
    }

    fn check_compute_mode(&self, gpu: Gpu) -> Result<(), Refusal> {
        let others = || self.node.holders(gpu).any(|(slot, contexts)| slot != self.slot && contexts > 0);
        match self.node.settings(gpu).compute_mode {
            ComputeMode::Default => Ok(()),
            ComputeMode::ExclusiveProcess => {
                self.node.reap();
                if others() { Err(Refusal::ComputeMode(gpu)) } else { Ok(()) }
            }
            ComputeMode::Prohibited => Err(Refusal::ComputeMode(gpu)),
        }
    }

    /// Drops a context, its queued work and its charge. Memory taken with [`Process::take_blocks`] stays: it is
    /// counted by process, and giving it back is the caller's business.
    pub fn destroy_context(&self, context: Context) {
        let (ground, _) = self.node.bring(context.gpu);
        if ground.is_live(context) {
            ground.drop_context(context.slot as usize);
        }
    }

    /// Takes memory, all of it or none.
    pub fn take_blocks(&self, gpu: Gpu, blocks: Blocks) -> Result<(), Refusal> {
        self.with_reaping(|| self.node.ground(gpu).take(self.slot, blocks))
    }

    /// Gives memory back; never more than was taken.
    pub fn give_blocks(&self, gpu: Gpu, blocks: Blocks) {
        self.node.ground(gpu).give(self.slot, blocks);
    }

    /// True if a context has no work queued, or is gone.
    pub fn is_drained(&self, context: Context) -> bool {
        let (ground, _) = self.node.bring(context.gpu);
        !ground.is_live(context) || ground.words.context(context.slot as usize).get(context::QUEUED) == 0
    }

    /// Notes that contexts of this process came back from a checkpoint, or that they left.
    pub fn note_restored(&self, gpu: Gpu, restored: bool) {
        let ground = self.node.ground(gpu);
        ground.words.holding(self.slot).set(holding::RESTORED, u64::from(restored));
    }

    /// Charges the cost of a loaded module by the model.
    pub fn load_module(&self, gpu: Gpu) -> Result<(), Refusal> {
        self.take_blocks(gpu, self.node.gpu_spec(gpu).model.module())
    }

    /// Takes the charge of a module back.
    pub fn unload_module(&self, gpu: Gpu) {
        self.give_blocks(gpu, self.node.gpu_spec(gpu).model.module());
    }

    /// Retries after a reap, so that the dead cause no refusal.
    fn with_reaping<T>(&self, attempt: impl Fn() -> Result<T, Refusal>) -> Result<T, Refusal> {
        match attempt() {
            Err(Refusal::OutOfMemory { .. } | Refusal::Contexts(_)) => {
                self.node.reap();
                attempt()
            }
            settled => settled,
        }
    }
}
