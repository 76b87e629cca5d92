//! A GPU under its lock: its memory and its contexts.
#![forbid(unsafe_code)]

use crate::context::Context;
use crate::law::{Quirks, Rules};
use crate::layout::{CONTEXTS, GpuWords, QUEUE_LENGTH, Words, context, gpu, holding};
use crate::lock::Held;
use crate::node::{self, Node};
use crate::refusal::Refusal;
use crate::sys;
use crate::units::{Blocks, Gpu};

/// A GPU whose lock the caller holds.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) node: &'a Node,
    pub(crate) gpu: Gpu,
    pub(crate) words: GpuWords<'a>,
    _held: Held<'a>,
}

impl Node {
    /// Locks a GPU. Where the last holder died inside, sums are made anew from what each process holds.
    pub(crate) fn ground(&self, gpu: Gpu) -> Ground<'_> {
        let words = self.gpu_words(gpu);
        let held = words.header().lock(gpu::LOCK).hold();
        let inherited = held.inherited;
        let ground = Ground { node: self, gpu, words, _held: held };
        if inherited {
            ground.recount();
        }
        ground
    }

    /// Kills the calling process inside a GPU's lock, with sums half written. For the test that others survive it.
    #[doc(hidden)]
    pub fn die_holding_the_lock(&self, gpu: Gpu) -> ! {
        let ground = self.ground(gpu);
        ground.words.header().add(gpu::USED, 1_000_000);
        sys::die()
    }

    /// Time sharing of a GPU, from its model.
    pub(crate) fn rules(&self, gpu: Gpu) -> Rules {
        let compute = &self.gpu_spec(gpu).model.compute;
        let concurrent = compute.concurrent_kernels as usize;
        let nanos = |micros: u64| micros.saturating_mul(1000);
        Rules {
            slice: nanos(compute.slice_us.max(1)),
            switch: nanos(compute.switch_us),
            handover: nanos(compute.handover_us),
            concurrent,
            quirks: Quirks::NONE,
        }
    }
}

impl Ground<'_> {
    /// Memory that no process has.
    pub(crate) fn free(&self) -> Blocks {
        self.node.capacity(self.gpu).saturating_sub(Blocks(self.words.header().get(gpu::USED)))
    }

    /// Refuses if the GPU is lost.
    pub(crate) fn check_present(&self) -> Result<(), Refusal> {
        match self.words.header().get(gpu::LOST) {
            0 => Ok(()),
            _ => Err(Refusal::Lost(self.gpu)),
        }
    }

    fn check_free(&self, wanted: Blocks) -> Result<(), Refusal> {
        let free = self.free();
        if wanted <= free { Ok(()) } else { Err(Refusal::OutOfMemory { gpu: self.gpu, wanted, free }) }
    }

    pub(crate) fn take(&self, process: usize, wanted: Blocks) -> Result<(), Refusal> {
        self.check_present()?;
        self.check_free(wanted)?;
        self.words.holding(process).add(holding::BLOCKS, wanted.0);
        self.use_more(wanted);
        Ok(())
    }

    fn use_more(&self, blocks: Blocks) {
        let header = self.words.header();
        let used = header.add(gpu::USED, blocks.0);
        header.set(gpu::USED_HIGH, header.get(gpu::USED_HIGH).max(used));
    }

    pub(crate) fn give(&self, process: usize, blocks: Blocks) {
        let held = self.words.holding(process).get(holding::BLOCKS).min(blocks.0);
        self.words.holding(process).take(holding::BLOCKS, held);
        self.words.header().take(gpu::USED, held);
    }

    pub(crate) fn add_context(&self, process: usize) -> Result<Context, Refusal> {
        self.check_present()?;
        let header = self.words.header();
        let cost = Blocks(header.get(gpu::CONTEXT_BLOCKS));
        self.check_free(cost)?;
        let slot = (0..CONTEXTS)
            .find(|slot| self.words.context(*slot).get(context::SERIAL) == 0)
            .ok_or(Refusal::Contexts(self.gpu))?;
        let words = self.words.context(slot);
        words.clear();
        words.set(context::PROCESS, process as u64);
        words.set(context::BLOCKS, cost.0);
        if header.get(gpu::CONTEXTS_HIGH) <= slot as u64 {
            header.set(gpu::CONTEXTS_HIGH, slot as u64 + 1);
        }
        let serial = header.add(gpu::CONTEXT_SERIAL, 1);
        let held = self.words.holding(process);
        held.add(holding::CONTEXTS, 1);
        held.add(holding::CONTEXT_BLOCKS, cost.0);
        self.use_more(cost);
        words.set(context::SERIAL, serial);
        Ok(Context { gpu: self.gpu, slot: slot as u32, serial })
    }

    pub(crate) fn is_live(&self, context: Context) -> bool {
        self.words.context(context.slot as usize).get(context::SERIAL) == context.serial
    }

    /// Drops a context with its queue. The caller brought the GPU up to now before.
    pub(crate) fn drop_context(&self, slot: usize) {
        let words = self.words.context(slot);
        words.set(context::SERIAL, 0);
        let held = self.words.holding(words.get(context::PROCESS) as usize);
        let cost = words.get(context::BLOCKS);
        held.take(holding::CONTEXTS, 1);
        held.take(holding::CONTEXT_BLOCKS, cost);
        self.words.header().take(gpu::USED, cost);
        words.clear();
        let mut timeline = self.load();
        timeline.remove(slot);
        self.store(&timeline);
        self.announce();
    }

    /// Takes away everything a process holds here: its contexts, their queues, its memory.
    pub(crate) fn clear_process(&self, process: usize) {
        for slot in self.context_slots() {
            let words = self.words.context(slot);
            if words.get(context::SERIAL) != 0 && words.get(context::PROCESS) == process as u64 {
                self.drop_context(slot);
            }
        }
        self.words.holding(process).clear();
        self.leave_all(process);
        self.recount();
        self.announce();
    }

    /// Wakes all waiters for work, which may end earlier than they foresaw.
    pub(crate) fn announce(&self) {
        self.words.header().add(gpu::CHANGES, 1);
        sys::wake(self.words.header().word(gpu::CHANGES), i32::MAX);
    }

    pub(crate) fn context_slots(&self) -> impl Iterator<Item = usize> + use<> {
        0..(self.words.header().get(gpu::CONTEXTS_HIGH) as usize).min(CONTEXTS)
    }

    fn recount(&self) {
        for slot in self.context_slots() {
            let queued = (0..QUEUE_LENGTH).filter(|place| self.sequence(slot, *place) != 0).count();
            self.words.context(slot).set(context::QUEUED, queued as u64);
        }
        self.recount_shared();
        let held = |(slot, _): (usize, u64)| memory(self.words.holding(slot)).0;
        self.words.header().set(gpu::USED, node::stamps(self.node.words()).map(held).sum());
    }
}

/// All memory of a holding.
pub(crate) fn memory(holding: Words<'_>) -> Blocks {
    let parts = [holding::BLOCKS, holding::CONTEXT_BLOCKS, holding::SHARED_BLOCKS];
    Blocks(parts.iter().map(|field| holding.get(*field)).sum())
}
