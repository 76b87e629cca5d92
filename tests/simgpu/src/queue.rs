//! A GPU's queues in shared words: decoded for the law of time, encoded after it, and added to.
#![forbid(unsafe_code)]

use crate::context::Context;
use crate::ground::Ground;
use crate::lane::{Lane, WorkKind};
use crate::law::{After, Piece, Queue, Timeline};
use crate::layout::{QUEUE_LENGTH, Words, context, gpu, piece};
use crate::units::Gpu;
use crate::work::{Ticket, Work};

impl Ground<'_> {
    pub(crate) fn sequence(&self, slot: usize, place: usize) -> u64 {
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
            ..Timeline::default()
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
        Queue { context: slot, slice: None, pieces: pieces.into_iter().collect() }
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
    pub(crate) fn store(&self, timeline: &Timeline) {
        let header = self.words.header();
        header.set(gpu::NOW, timeline.now);
        header.set(gpu::TURN, timeline.turn.map_or(0, |slot| slot as u64 + 1));
        header.set(gpu::SLICE_LEFT, timeline.slice_left);
        header.set(gpu::SWITCH_LEFT, timeline.switch_left);
        for queue in &timeline.queues {
            for piece in queue.pieces.iter() {
                self.words.piece(queue.context, piece.place).set(piece::REMAINING, piece.remaining);
            }
        }
    }

    /// Other GPUs that hold back something queued here.
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
    pub(crate) fn push(&self, context: Context, work: Work) -> Option<Ticket> {
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

    fn set_after(&self, words: Words<'_>, after: Option<Ticket>) {
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
}

const AFTER_PIECE: u64 = 1;
const AFTER_MOMENT: u64 = 2;
const AFTER_ELSEWHERE: u64 = 3;

/// A gate is shut while something remains of it.
fn length(work: Work) -> u64 {
    match work.kind {
        WorkKind::Mark => 0,
        WorkKind::Gate => 1,
        _ => u64::try_from(work.duration.as_nanos()).unwrap_or(u64::MAX),
    }
}

const LANE_TAG: u32 = 62;
const LANE_NUMBER: u64 = (1 << LANE_TAG) - 1;

const fn encode_lane(lane: Lane) -> u64 {
    match lane {
        Lane::Legacy => 0,
        Lane::Blocking(number) => 1 << LANE_TAG | number & LANE_NUMBER,
        Lane::Free(number) => 2 << LANE_TAG | number & LANE_NUMBER,
    }
}

const fn decode_lane(word: u64) -> Lane {
    let number = word & LANE_NUMBER;
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
        4 => WorkKind::Upload,
        5 => WorkKind::Download,
        _ => WorkKind::Gate,
    }
}
