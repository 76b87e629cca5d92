//! The GPUs: what is launched onto them, and what comes of it.

use std::ops::ControlFlow::{self, Break};

use simgpu::law::{After, Piece, Queue, Ran, Timeline, Witness};
use simgpu::{Lane, WorkKind};

use super::{Event, Process, Sleep, World};
use crate::US;
use crate::report::Report;

/// How far GPUs may run before each other. One alone runs from event to event.
const STRIDE: u64 = 10 * US;
/// Behind the thread in a piece's place stands how long it takes, or a mark's number.
const THREAD: u32 = 40;

struct Watch<'a> {
    report: &'a mut Report,
    processes: &'a [Process],
    finished: Option<(Piece, u64)>,
}

impl Witness for Watch<'_> {
    fn ran(&mut self, context: usize, _: Ran, from: u64, to: u64) {
        self.report.add_ran(self.processes[context].tenant, from, to);
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
        gpus[gpu].queues.push(Queue { context, slice: None, pieces: Vec::new() });
    }

    /// A process is dead, and its contexts with it.
    pub(crate) fn remove_contexts(&self, process: usize) {
        self.gpus.borrow_mut().iter_mut().for_each(|timeline| timeline.remove(process));
    }

    /// Puts a kernel into a thread's stream.
    pub(crate) fn put_kernel(&self, thread: usize, device: usize, length: u64) {
        let in_flight = &self.threads[thread].in_flight;
        in_flight.set(in_flight.get() + 1);
        self.put(thread, device, WorkKind::Kernel, length);
    }

    /// Puts a mark behind what is in a thread's stream.
    pub(crate) fn put_mark(&self, thread: usize, device: usize, sequence: u32) {
        self.put(thread, device, WorkKind::Mark, sequence.into());
    }

    fn put(&self, thread: usize, device: usize, kind: WorkKind, number: u64) {
        let its = &self.threads[thread];
        self.sequence.set(self.sequence.get() + 1);
        let mut gpus = self.gpus.borrow_mut();
        let gpu = &mut gpus[self.slices[its.tenant].gpus[device]];
        let queue = gpu.queues.iter_mut().find(|queue| queue.context == its.process);
        queue.expect("a live process has its queues").pieces.push(Piece {
            sequence: self.sequence.get(),
            place: thread << THREAD | number as usize,
            lane: Lane::Free(its.program.stream),
            kind,
            remaining: if kind == WorkKind::Kernel { number } else { 0 },
            after: After::Nothing,
        });
    }

    /// Runs every GPU towards a moment. Says whether anything happened on the way, or the moment is not reached yet.
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
        if piece.kind == WorkKind::Mark {
            let at = self.later(self.setup.delays.write);
            return self.push(at, Event::Written { process: its.process, sequence: number as u32 });
        }
        let mut report = self.report.borrow_mut();
        let last = report.length - 1;
        report.add_work(its.tenant, self.now.get().min(last), number);
        drop(report);
        its.in_flight.set(its.in_flight.get() - 1);
        match its.sleep.get() {
            Sleep::Room => self.act_at(thread, self.now.get() + 2 * US),
            Sleep::Drained if its.in_flight.get() == 0 => {
                self.act_at(thread, self.later(self.setup.delays.sync));
            }
            _ => {}
        }
    }
}
