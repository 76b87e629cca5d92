//! Record of a GPU's use while its time advances: busy time, the log, marks, and finished work.
#![forbid(unsafe_code)]

use std::ops::ControlFlow::{self, Continue};
use std::sync::atomic::Ordering::Acquire;

use crate::ground::Ground;
use crate::lane::WorkKind;
use crate::law::{Piece, Ran, Timeline, Witness};
use crate::layout::{self, Words, context, entry, gpu, holding, mark, piece, window};

/// Length of a busy window in nanoseconds.
pub(crate) const WINDOW: u64 = 125_000_000;

impl Ground<'_> {
    /// Brings the GPU up to now.
    pub(crate) fn advance(&self, timeline: &mut Timeline) {
        self.run_until_now(timeline);
        self.store(timeline);
    }

    /// Records what happens until now. A process that is killed after it leaves the stored time behind the record.
    pub(crate) fn run_until_now(&self, timeline: &mut Timeline) {
        let now = self.node.now().0;
        let mut books = Books { ground: self };
        timeline.advance(now, self.node.rules(self.gpu), &mut books);
        timeline.now = timeline.now.max(now);
    }

    fn busy(&self, windows: Words<'_>, what: Ran, from: u64, to: u64) {
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
        let from = from.max(header.get(gpu::RECORDED));
        if from >= to {
            return;
        }
        header.set(gpu::RECORDED, to);
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
