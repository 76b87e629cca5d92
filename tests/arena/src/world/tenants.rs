//! What tenants do: threads launch, wait, and learn that their work is done.

use simgpu::law::{After, Piece};
use simgpu::{Lane, WorkKind};

use super::{DEGRADED_AFTER, Event, World};
use crate::US;
use crate::host::Phase;
use crate::load::Load;
use crate::setup::Policy;

impl World<'_> {
    pub(super) fn act(&mut self, thread: usize) {
        let tenant = self.threads[thread].tenant;
        let player = &mut self.threads[thread];
        if std::mem::take(&mut player.waits) {
            self.slices[tenant].waiting -= 1;
        }
        if std::mem::take(&mut player.deep) {
            self.slices[tenant].waiting -= 1;
        }
        if self.slices[tenant].stopped {
            return self.slices[tenant].parked.push(thread);
        }
        match (player.phase, player.program.load) {
            (Phase::Begin, _) if self.now >= player.program.lives.1 => {}
            (Phase::Begin, Load::Saturating { .. }) => self.launch(thread, u32::MAX),
            (Phase::Begin, Load::Rounds { batch, .. }) => {
                player.round_began = self.now;
                self.launch(thread, batch);
            }
            (Phase::Launch(left) | Phase::Full(left), _) => self.launch(thread, left),
            (Phase::Sync, load) => self.end_round(thread, load),
        }
    }

    fn end_round(&mut self, thread: usize, load: Load) {
        let player = &mut self.threads[thread];
        let (process, stream) = (player.process, player.program.stream);
        self.report.rounds[player.tenant].push((player.round_began, self.now - player.round_began));
        player.phase = Phase::Begin;
        let gap = match load {
            Load::Rounds { gap, .. } => gap.draw(&mut player.chance),
            Load::Saturating { .. } => 0,
        };
        self.act_at(thread, self.now + gap);
        for device in 0..self.processes[process].accounts.len() {
            self.learn(process, device, stream, u64::MAX);
            self.settle(process, device);
        }
    }

    /// A process finds itself idle and rings, if it is and shall.
    fn settle(&mut self, process: usize, device: usize) {
        let tenant = self.processes[process].tenant;
        if self.processes[process].accounts[device].settle(self.now) && self.slices[tenant].lease.bell {
            self.ring();
        }
    }

    fn launch(&mut self, thread: usize, left: u32) {
        let now = self.now;
        let player = &mut self.threads[thread];
        if now >= player.program.lives.1 && matches!(player.program.load, Load::Saturating { .. }) {
            player.phase = Phase::Sync;
            if player.in_flight == 0 {
                self.act_at(thread, now);
            }
            return;
        }
        player.phase = Phase::Launch(left);
        player.kernel();
        let process = &self.processes[player.process];
        let tenant = player.tenant;
        if let Policy::Arbiter(_) = self.setup.policy {
            let lease = self.slices[tenant].lease;
            if !lease.open && !self.is_degraded() {
                return self.wait_closed(thread);
            }
            if !process.has_room(lease, process.kernel) {
                self.threads[thread].deep = true;
                self.slices[tenant].waiting += 1;
                return self.mark_tail(thread);
            }
        }
        self.submit(thread);
        self.go_on(thread, left);
    }

    /// What a thread does after a launch.
    fn go_on(&mut self, thread: usize, left: u32) {
        let at = self.now + self.setup.delays.launch;
        let player = &mut self.threads[thread];
        let full = matches!(player.program.load, Load::Saturating { ahead, .. } if player.in_flight >= ahead);
        let left = if left == u32::MAX { left } else { left - 1 };
        player.phase = match left {
            0 => Phase::Sync,
            left if full => Phase::Full(left),
            left => Phase::Launch(left),
        };
        if matches!(player.phase, Phase::Launch(_)) {
            self.act_at(thread, at);
        }
    }

    fn is_degraded(&self) -> bool {
        self.daemon_gone.is_some_and(|since| self.now >= since + DEGRADED_AFTER)
    }

    fn wait_closed(&mut self, thread: usize) {
        let player = &mut self.threads[thread];
        player.waits = true;
        let tenant = player.tenant;
        self.slices[tenant].waiting += 1;
        self.slices[tenant].waiters.push(thread);
        self.mark_tail(thread);
        self.ring();
    }

    /// Whoever is about to wait makes sure that the end of what it launched last becomes known.
    fn mark_tail(&mut self, thread: usize) {
        let player = &self.threads[thread];
        let (process, stream) = (player.process, player.program.stream);
        for device in 0..self.processes[process].accounts.len() {
            if let Some(sequence) = self.processes[process].accounts[device].mark_tail(stream) {
                self.learn(process, device, stream, sequence);
            }
        }
    }

    fn submit(&mut self, thread: usize) {
        let player = &mut self.threads[thread];
        let length = player.kernel();
        player.next = None;
        let (tenant, stream, process) = (player.tenant, player.program.stream, player.process);
        let was_idle = self.is_idle(tenant);
        let slice = &self.slices[tenant];
        for (device, at) in slice.gpus.iter().enumerate() {
            self.sequence += 1;
            let host = &mut self.processes[process];
            let estimate = host.kernel;
            let marks = self.setup.delays.marks.min(slice.lease.depth.get() / 4);
            host.accounts[device].launch(self.now, self.sequence, stream, estimate, marks);
            host.progress += 1;
            self.threads[thread].in_flight += 1;
            let queue = self.gpus[*at].queues.iter_mut().find(|queue| queue.context == process);
            queue.expect("a live process has its queues").pieces.push(Piece {
                sequence: self.sequence,
                place: length as usize,
                lane: Lane::Free((thread as u64) << 8 | stream),
                kind: WorkKind::Kernel,
                remaining: length,
                after: After::Nothing,
            });
        }
        if was_idle && slice.lease.bell {
            self.ring();
        }
    }

    fn is_idle(&self, tenant: usize) -> bool {
        let mut mine = self.processes.iter().filter(|process| process.tenant == tenant);
        mine.all(|process| process.outstanding() == 0)
    }

    /// The GPU has done a piece.
    pub(super) fn finish(&mut self, at: usize, process: usize, piece: &Piece) {
        let Lane::Free(lane) = piece.lane else { return };
        let (thread, stream) = ((lane >> 8) as usize, lane & 0xff);
        let tenant = self.processes[process].tenant;
        self.report.add_work(tenant, self.now.min(self.report.length - 1), piece.place as u64);
        let device = self.slices[tenant].gpus.iter().position(|gpu| *gpu == at).unwrap_or(0);
        let host = &mut self.processes[process];
        host.learn_kernel(piece.place as u64);
        if host.accounts[device].done(piece.sequence) {
            self.push(self.now, Event::Known { process, device, stream, sequence: piece.sequence });
        }
        let player = &mut self.threads[thread];
        player.in_flight -= 1;
        match player.phase {
            Phase::Full(_) => self.act_at(thread, self.now + 2 * US),
            Phase::Sync if player.in_flight == 0 => {
                let at = self.later(self.setup.delays.sync);
                self.act_at(thread, at);
            }
            _ => {}
        }
    }

    /// A process's record says that the work up to a mark is done; who waits for depth sees it at its next glance.
    pub(super) fn learn(&mut self, process: usize, device: usize, stream: u64, sequence: u64) {
        let host = &mut self.processes[process];
        host.progress += host.accounts[device].learn(stream, sequence);
        for thread in 0..self.threads.len() {
            if self.threads[thread].process == process && self.threads[thread].deep {
                let at = self.later(self.setup.delays.nap);
                self.act_at(thread, at);
            }
        }
    }
}
