//! A GPU under its lock: memory sums, contexts, and the queue decoded from and encoded to shared words.
#![forbid(unsafe_code)]

use std::ops::ControlFlow::{self, Continue};
use std::sync::atomic::Ordering::Acquire;

use crate::layout::{
    self, CONTEXTS, GpuWords, QUEUE_LENGTH, context, entry, gpu, holding, mark, piece, window,
};
use crate::lock::Held;
use crate::node::{self, Node};
use crate::process::{Context, Refusal};
use crate::schedule::{After, Piece, Queue, Ran, Rules, Timeline, Witness};
use crate::sys;
use crate::units::{Blocks, Gpu};
use crate::work::{Lane, Ticket, WorkKind};

/// Length of a busy window in nanoseconds.
pub(crate) const WINDOW: u64 = 125_000_000;

/// A GPU whose lock the caller holds.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    node: &'a Node,
    gpu: Gpu,
    words: GpuWords<'a>,
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

    /// How a GPU shares its time.
    pub(crate) fn rules(&self, gpu: Gpu) -> Rules {
        let compute = &self.gpu_spec(gpu).model.compute;
        let concurrent = compute.concurrent_kernels as usize;
        Rules { slice: 1000 * compute.slice_us.max(1), switch: 1000 * compute.switch_us, concurrent }
    }
}

impl Ground<'_> {
    /// Memory that nobody has.
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
        self.words.header().add(gpu::USED, wanted.0);
        Ok(())
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
        header.add(gpu::USED, cost.0);
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
        self.recount();
        self.announce();
    }

    /// Tells those who wait for work that it may end earlier than they foresaw.
    pub(crate) fn announce(&self) {
        self.words.header().add(gpu::CHANGES, 1);
        sys::wake(self.words.header().word(gpu::CHANGES), i32::MAX);
    }

    fn context_slots(&self) -> impl Iterator<Item = usize> + use<> {
        0..(self.words.header().get(gpu::CONTEXTS_HIGH) as usize).min(CONTEXTS)
    }

    fn recount(&self) {
        for slot in self.context_slots() {
            let queued = (0..QUEUE_LENGTH).filter(|place| self.sequence(slot, *place) != 0).count();
            self.words.context(slot).set(context::QUEUED, queued as u64);
        }
        let held = |(slot, _): (usize, u64)| {
            let words = self.words.holding(slot);
            words.get(holding::BLOCKS) + words.get(holding::CONTEXT_BLOCKS)
        };
        self.words.header().set(gpu::USED, node::stamps(self.node.words()).map(held).sum());
    }

    fn sequence(&self, slot: usize, place: usize) -> u64 {
        self.words.piece(slot, place).get(piece::SEQUENCE)
    }

    /// Decodes the GPU's time and queues.
    pub(crate) fn load(&self) -> Timeline {
        let header = self.words.header();
        let busy = |slot: &usize| {
            let words = self.words.context(*slot);
            words.get(context::SERIAL) != 0 && words.get(context::QUEUED) != 0
        };
        Timeline {
            now: header.get(gpu::NOW),
            turn: (header.get(gpu::TURN) as usize).checked_sub(1),
            slice_left: header.get(gpu::SLICE_LEFT),
            switch_left: header.get(gpu::SWITCH_LEFT),
            queues: self.context_slots().filter(busy).map(|slot| self.load_queue(slot)).collect(),
        }
    }

    fn load_queue(&self, slot: usize) -> Queue {
        let mut left = self.words.context(slot).get(context::QUEUED);
        let mut pieces = Vec::with_capacity(left as usize);
        for place in 0..QUEUE_LENGTH {
            if left == 0 {
                break;
            }
            if let Some(piece) = self.load_piece(slot, place) {
                pieces.push(piece);
                left -= 1;
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.sequence);
        Queue { context: slot, pieces }
    }

    fn load_piece(&self, slot: usize, place: usize) -> Option<Piece> {
        let words = self.words.piece(slot, place);
        let sequence = Some(words.get(piece::SEQUENCE)).filter(|sequence| *sequence != 0)?;
        Some(Piece {
            sequence,
            place,
            lane: decode_lane(words.get(piece::LANE)),
            kind: decode_kind(words.get(piece::KIND)),
            remaining: words.get(piece::REMAINING),
            after: match words.get(piece::AFTER) {
                AFTER_PIECE => After::Piece(words.get(piece::AFTER_SEQUENCE)),
                AFTER_MOMENT => After::Moment(words.get(piece::AFTER_SEQUENCE)),
                AFTER_ELSEWHERE => After::Elsewhere,
                _ => After::Nothing,
            },
        })
    }

    /// Encodes what time has changed.
    fn store(&self, timeline: &Timeline) {
        let header = self.words.header();
        header.set(gpu::NOW, timeline.now);
        header.set(gpu::TURN, timeline.turn.map_or(0, |slot| slot as u64 + 1));
        header.set(gpu::SLICE_LEFT, timeline.slice_left);
        header.set(gpu::SWITCH_LEFT, timeline.switch_left);
        for queue in &timeline.queues {
            for piece in &queue.pieces {
                self.words.piece(queue.context, piece.place).set(piece::REMAINING, piece.remaining);
            }
        }
    }

    /// Brings the GPU up to now.
    pub(crate) fn advance(&self, timeline: &mut Timeline) {
        let now = self.node.now().0;
        let mut books = Books { ground: self };
        timeline.advance(now, self.node.rules(self.gpu), &mut books);
        timeline.now = timeline.now.max(now);
        self.store(timeline);
    }

    /// Which other GPUs hold back something queued here.
    pub(crate) fn waits_for(&self, timeline: &Timeline) -> Vec<Gpu> {
        let elsewhere = self.elsewhere(timeline).map(|(_, ticket)| ticket.context.gpu);
        let mut gpus: Vec<Gpu> = elsewhere.collect();
        gpus.sort_unstable();
        gpus.dedup();
        gpus
    }

    fn elsewhere<'t>(
        &'t self,
        timeline: &'t Timeline,
    ) -> impl Iterator<Item = ((usize, usize), Ticket)> + 't {
        let held = |piece: &&Piece| piece.after == After::Elsewhere;
        timeline.queues.iter().flat_map(move |queue| {
            queue.pieces.iter().filter(held).map(|piece| {
                let at = (queue.context, piece.place);
                (at, self.foreign(at))
            })
        })
    }

    fn foreign(&self, (slot, place): (usize, usize)) -> Ticket {
        let words = self.words.piece(slot, place);
        let packed = words.get(piece::AFTER_PLACE);
        let gpu = self.node.gpu((packed >> 32) as usize).unwrap_or(self.gpu);
        let context = Context { gpu, slot: packed as u32 >> 16, serial: 0 };
        Ticket { context, sequence: words.get(piece::AFTER_SEQUENCE), slot: packed as u32 & 0xffff }
    }

    /// Turns what has happened on other GPUs meanwhile into moments.
    pub(crate) fn resolve(&self, timeline: &mut Timeline) {
        let happened: Vec<_> =
            self.elsewhere(timeline).filter(|(_, ticket)| !self.node.is_queued(*ticket)).collect();
        for ((slot, place), ticket) in happened {
            let moment = self.node.mark_time(ticket).unwrap_or(0);
            let words = self.words.piece(slot, place);
            words.set(piece::AFTER_SEQUENCE, moment);
            words.set(piece::AFTER, AFTER_MOMENT);
            let queue = timeline.queues.iter_mut().find(|queue| queue.context == slot);
            let piece = queue.and_then(|queue| queue.pieces.iter_mut().find(|piece| piece.place == place));
            piece.expect("the piece was found in this timeline").after = After::Moment(moment);
        }
    }

    /// Queues a piece; `None` if the queue is full.
    pub(crate) fn push(&self, context: Context, work: crate::Work) -> Option<Ticket> {
        let slot = context.slot as usize;
        let place = (0..QUEUE_LENGTH).find(|place| self.sequence(slot, *place) == 0)?;
        let words = self.words.piece(slot, place);
        words.set(piece::LANE, encode_lane(work.lane));
        words.set(piece::KIND, work.kind as u64);
        words.set(piece::REMAINING, length(work));
        self.set_after(words, work.after);
        let sequence = self.words.header().add(gpu::SEQUENCE, 1);
        self.words.context(slot).add(context::QUEUED, 1);
        words.set(piece::SEQUENCE, sequence);
        Some(Ticket { context, sequence, slot: place as u32 })
    }

    fn set_after(&self, words: layout::Words<'_>, after: Option<Ticket>) {
        let Some(ticket) = after.filter(|ticket| self.node.is_queued(*ticket)) else {
            return words.set(piece::AFTER, 0);
        };
        let place = (ticket.context.gpu.0 as u64) << 32
            | u64::from(ticket.context.slot) << 16
            | u64::from(ticket.slot);
        words.set(piece::AFTER_SEQUENCE, ticket.sequence);
        words.set(piece::AFTER_PLACE, place);
        let here = ticket.context.gpu == self.gpu;
        words.set(piece::AFTER, if here { AFTER_PIECE } else { AFTER_ELSEWHERE });
    }

    pub(crate) fn open_gate(&self, ticket: Ticket) {
        let words = self.words.piece(ticket.context.slot as usize, ticket.slot as usize);
        let is_it = words.get(piece::SEQUENCE) == ticket.sequence;
        if is_it && decode_kind(words.get(piece::KIND)) == WorkKind::Gate {
            words.set(piece::REMAINING, 0);
            self.announce();
        }
    }

    fn busy(&self, windows: layout::Words<'_>, what: Ran, from: u64, to: u64) {
        let (first, last) = (from / WINDOW, (to - 1) / WINDOW);
        for number in first.max(last.saturating_sub(layout::WINDOWS as u64 - 1))..=last {
            let words = windows.record(0, window::WORDS, number as usize % layout::WINDOWS);
            if words.get(window::NUMBER) != number {
                words.clear();
                words.set(window::NUMBER, number);
            }
            let share = to.min((number + 1) * WINDOW) - from.max(number * WINDOW);
            words.add(window::KERNELS, if what.kernels { share } else { 0 });
            words.add(window::COPIES, if what.copies { share } else { 0 });
        }
    }

    fn log(&self, process: u64, serial: u64, from: u64, to: u64) {
        let header = self.words.header();
        let count = header.get(gpu::LOG_COUNT);
        let last = self.words.log(count.wrapping_sub(1));
        if count > 0 && last.get(entry::CONTEXT) == serial && last.get(entry::TO) == from {
            return last.set(entry::TO, to);
        }
        let words = self.words.log(count);
        words.set(entry::PROCESS, process);
        words.set(entry::CONTEXT, serial);
        words.set(entry::FROM, from);
        words.set(entry::TO, to);
        header.set(gpu::LOG_COUNT, count + 1);
    }
}

/// Writes down what happens.
struct Books<'a> {
    ground: &'a Ground<'a>,
}

impl Witness for Books<'_> {
    fn ran(&mut self, slot: usize, what: Ran, from: u64, to: u64) {
        let ground = self.ground;
        let words = ground.words.context(slot);
        let process = words.get(context::PROCESS) as usize;
        let held = ground.words.holding(process);
        let header = ground.words.header();
        if what.kernels {
            held.add(holding::BUSY, to - from);
            header.add(gpu::BUSY, to - from);
        }
        if what.copies {
            held.add(holding::BUSY_COPY, to - from);
            header.add(gpu::BUSY_COPY, to - from);
        }
        ground.busy(ground.words.windows(), what, from, to);
        ground.busy(layout::windows_of(held), what, from, to);
        let stamp = ground.node.words().process(process).load(Acquire);
        ground.log(stamp, words.get(context::SERIAL), from, to);
    }

    fn finished(&mut self, slot: usize, piece: &Piece, at: u64) -> ControlFlow<()> {
        let words = self.ground.words.context(slot);
        if piece.kind == WorkKind::Mark {
            let count = words.get(context::MARKS_COUNT);
            let mark = self.ground.words.mark(slot, count);
            mark.set(mark::AT, at);
            mark.set(mark::SEQUENCE, piece.sequence);
            words.set(context::MARKS_COUNT, count + 1);
        }
        self.ground.words.piece(slot, piece.place).set(piece::SEQUENCE, 0);
        words.take(context::QUEUED, 1);
        Continue(())
    }
}

const AFTER_PIECE: u64 = 1;
const AFTER_MOMENT: u64 = 2;
const AFTER_ELSEWHERE: u64 = 3;

/// A gate is shut while something remains of it.
fn length(work: crate::Work) -> u64 {
    match work.kind {
        WorkKind::Kernel | WorkKind::Copy => u64::try_from(work.duration.as_nanos()).unwrap_or(u64::MAX),
        WorkKind::Mark => 0,
        WorkKind::Gate => 1,
    }
}

const LANE_TAG: u32 = 62;

const fn encode_lane(lane: Lane) -> u64 {
    match lane {
        Lane::Legacy => 0,
        Lane::Blocking(number) => 1 << LANE_TAG | number,
        Lane::Free(number) => 2 << LANE_TAG | number,
    }
}

const fn decode_lane(word: u64) -> Lane {
    let number = word & ((1 << LANE_TAG) - 1);
    match word >> LANE_TAG {
        0 => Lane::Legacy,
        1 => Lane::Blocking(number),
        _ => Lane::Free(number),
    }
}

const fn decode_kind(word: u64) -> WorkKind {
    match word {
        0 => WorkKind::Kernel,
        1 => WorkKind::Copy,
        2 => WorkKind::Mark,
        _ => WorkKind::Gate,
    }
}
