//! The GPUs: what is launched onto them, and what comes of it.

use std::ops::ControlFlow::{self, Break};

use simgpu::law::{After, Piece, Pieces, Queue, Ran, Timeline, Witness};
use simgpu::{Lane, WorkKind};

use super::{Event, Process, Sleep, Thread, World};
use crate::US;
use crate::report::Report;

/// Most nanoseconds by which one GPU runs before another. One alone runs from event to event.
const STRIDE: u64 = 10 * US;
/// Low bits of a piece's place, which hold its length or a marker's number; the thread is above them.
const THREAD: u32 = 40;
/// Piece before a collective's kernel, whose end shows that the kernel has the GPU. There are no other copies
/// here.
const ARRIVAL: WorkKind = WorkKind::Copy;
/// Length of a collective's kernel in nanoseconds until the others have arrived.
const ENDLESS: u64 = u64::MAX >> 8;

struct Watch<'a> {
    report: &'a mut Report,
    processes: &'a [Process],
    finished: Option<(Piece, u64)>,
}

impl Witness for Watch<'_> {
    /// Marks that take time are nothing that a tenant has of the GPU.
    fn ran(&mut self, context: usize, what: Ran, from: u64, to: u64) {
        if what.kernels {
            self.report.add_ran(self.processes[context].tenant, from, to);
        }
    }

    fn finished(&mut self, _: usize, piece: &Piece, at: u64) -> ControlFlow<()> {
        self.finished = Some((*piece, at));
        Break(())
    }
}

impl World {
    pub(super) fn add_context(&mut self, gpu: usize, context: usize) {
        let gpus = self.gpus.get_mut();
        let count = gpus.len().max(gpu + 1);
        gpus.resize_with(count, Timeline::default);
        gpus[gpu].queues.push(Queue { context, slice: None, pieces: Pieces::default() });
    }

    /// A process is dead, and its contexts with it.
    pub(crate) fn remove_contexts(&self, process: usize) {
        self.gpus.borrow_mut().iter_mut().for_each(|timeline| timeline.remove(process));
    }

    /// Puts a kernel into a thread's stream.
    pub(crate) fn put_kernel(&self, thread: usize, device: usize, length: u64) {
        let in_flight = &self.threads[thread].in_flight;
        in_flight.set(in_flight.get() + 1);
        let takes = self.setup.driver.clock.stretch(length, self.now.get());
        self.put(thread, device, WorkKind::Kernel, length, takes);
    }

    /// Puts a step's collective into a thread's stream. It keeps the GPU until all of its group have arrived,
    /// and then for its length.
    pub(crate) fn put_collective(&self, thread: usize, device: usize, step: u64, length: u64) {
        let in_flight = &self.threads[thread].in_flight;
        in_flight.set(in_flight.get() + 1);
        self.put(thread, device, ARRIVAL, step, 1);
        self.put(thread, device, WorkKind::Kernel, length, ENDLESS);
    }

    /// Puts a mark behind what is in a thread's stream.
    pub(crate) fn put_mark(&self, thread: usize, device: usize, sequence: u32) {
        self.put(thread, device, WorkKind::Mark, sequence.into(), self.setup.driver.mark);
    }

    fn put(&self, thread: usize, device: usize, kind: WorkKind, number: u64, remaining: u64) {
        let its = &self.threads[thread];
        self.sequence.set(self.sequence.get() + 1);
        let mut gpus = self.gpus.borrow_mut();
        let gpu = &mut gpus[self.slices[its.tenant].gpus[device]];
        let queue = gpu.queues.iter_mut().find(|queue| queue.context == its.process);
        queue.expect("a live process has its queues").pieces.push(Piece {
            sequence: self.sequence.get(),
            place: thread << THREAD | number as usize,
            lane: Lane::Free(its.program.stream % self.setup.driver.queues),
            kind,
            remaining,
            after: After::Nothing,
        });
    }

    /// Runs every GPU towards a moment. Returns true if anything happened on the way, or the moment is not
    /// reached yet.
    pub(crate) fn run_gpus(&self, until: u64) -> bool {
        let count = self.gpus.borrow().len();
        let stride = if count == 1 { until } else { until.min(self.now.get() + STRIDE) };
        let mut happened = false;
        for gpu in 0..count {
            while let Some((piece, when)) = self.run_gpu(gpu, stride) {
                happened = true;
                self.now.set(self.now.get().max(when));
                self.finish(&piece);
                if count == 1 {
                    return true;
                }
            }
        }
        self.now.set(self.now.get().max(stride));
        happened || stride < until
    }

    fn run_gpu(&self, gpu: usize, until: u64) -> Option<(Piece, u64)> {
        let report = &mut *self.report.borrow_mut();
        let mut watch = Watch { report, processes: &self.processes, finished: None };
        self.gpus.borrow_mut()[gpu].advance(until, self.setup.law, &mut watch);
        watch.finished
    }

    /// The GPU has come to the end of a piece.
    fn finish(&self, piece: &Piece) {
        let (thread, number) = (piece.place >> THREAD, (piece.place & ((1 << THREAD) - 1)) as u64);
        let its = &self.threads[thread];
        match piece.kind {
            WorkKind::Mark => return self.reach(its.process, number as u32),
            ARRIVAL => return self.arrive(thread, number, piece.sequence),
            _ => {}
        }
        let mut report = self.report.borrow_mut();
        let last = report.length - 1;
        report.add_work(its.tenant, self.now.get().min(last), number);
        drop(report);
        its.in_flight.set(its.in_flight.get() - 1);
        match its.sleep.get() {
            Sleep::Room => self.act_at(thread, self.now.get() + 2 * US),
            Sleep::Drained if its.in_flight.get() == 0 => {
                self.act_at(thread, self.wakes(self.setup.delays.sync));
            }
            _ => {}
        }
    }

    /// The GPU has come to a mark.
    fn reach(&self, process: usize, sequence: u32) {
        if self.setup.driver.writes_marks {
            let at = self.later(self.setup.delays.write) + self.more(self.setup.delays.late_writes);
            self.push(at, Event::Written { process, sequence });
        } else {
            self.processes[process].event(sequence).set(u64::from(sequence) + 1);
        }
    }

    /// The kernel behind a piece is a collective's and has the GPU. When all have, they end.
    fn arrive(&self, thread: usize, step: u64, sequence: u64) {
        let group = |thread: &Thread| thread.program.load.group().map(|group| (group, thread.tenant));
        let Some((mine, _)) = group(&self.threads[thread]) else { return };
        let members = self.threads.iter().filter_map(group).filter(|(group, _)| *group == mine);
        let members: usize = members.map(|(_, tenant)| self.slices[tenant].gpus.len()).sum();
        let mut steps = self.collectives.borrow_mut();
        let arrived = steps.entry((mine, step)).or_default();
        arrived.push(sequence + 1);
        if arrived.len() < members {
            return;
        }
        let arrived = steps.remove(&(mine, step)).unwrap_or_default();
        let mut gpus = self.gpus.borrow_mut();
        let pieces =
            gpus.iter_mut().flat_map(|gpu| &mut gpu.queues).flat_map(|queue| queue.pieces.iter_mut());
        for piece in pieces.filter(|piece| arrived.contains(&piece.sequence)) {
            piece.remaining = (piece.place & ((1 << THREAD) - 1)) as u64;
        }
    }
}
