//! A tenant's processes and threads.

use tranche_domain::compute::Lease;

use crate::gate::Account;
use crate::load::{Chance, Load};
use crate::setup::Program;

/// What a thread's kernels are drawn from: the same under every policy.
pub(crate) const fn chance(seed: u64, tenant: usize, program: usize) -> Chance {
    Chance::new(seed ^ ((tenant as u64) << 32) ^ ((program as u64) << 48))
}

/// What a thread is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has not begun its round.
    Begin,
    /// It launches; so many of the round are to come.
    Launch(u32),
    /// It waits until its queue has room, and then launches.
    Full(u32),
    /// It waits for its round's end.
    Sync,
}

/// A thread.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) tenant: usize,
    pub(crate) process: usize,
    pub(crate) program: Program,
    pub(crate) chance: Chance,
    pub(crate) phase: Phase,
    /// The kernel it is about to launch.
    pub(crate) next: Option<u64>,
    pub(crate) in_flight: u32,
    pub(crate) round_began: u64,
    /// It waits at the closed gate.
    pub(crate) waits: bool,
    /// It waits for depth.
    pub(crate) deep: bool,
    /// Which of its appointments is the valid one.
    pub(crate) turn: u32,
}

impl Thread {
    pub(crate) fn kernel(&mut self) -> u64 {
        let kernels = match self.program.load {
            Load::Saturating { kernels, .. } | Load::Rounds { kernels, .. } => kernels,
        };
        let chance = &mut self.chance;
        *self.next.get_or_insert_with(|| kernels.draw(chance).max(1))
    }
}

/// A process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) tenant: usize,
    /// One for each GPU of its slice.
    pub(crate) accounts: Vec<Account>,
    /// What it has learnt that one launch takes.
    pub(crate) kernel: u64,
    pub(crate) longest: u64,
    pub(crate) progress: u64,
}

impl Process {
    pub(crate) fn learn_kernel(&mut self, length: u64) {
        self.kernel = if self.kernel == 0 { length } else { self.kernel - self.kernel / 8 + length / 8 };
        self.longest = (self.longest - self.longest / 256).max(length);
    }

    /// Never nothing while there is something, be it of unknown length.
    pub(crate) fn outstanding(&self) -> u64 {
        let known = self.accounts.iter().map(Account::outstanding).max().unwrap_or(0);
        let any = self.accounts.iter().any(|account| account.launches() > 0);
        known.max(any.into())
    }

    /// Whether a launch fits, of which the process thinks that it takes `estimate`. Of kernels that are not known yet
    /// no more than the least do.
    pub(crate) fn has_room(&self, lease: Lease, estimate: u64) -> bool {
        let launches = self.accounts.iter().map(Account::launches).max().unwrap_or(0);
        let fits = estimate > 0 && self.outstanding() < lease.depth.get();
        launches < usize::from(lease.least) || fits
    }
}

/// A slice as its processes see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) gpus: Vec<usize>,
    pub(crate) lease: Lease,
    pub(crate) waiting: u32,
    pub(crate) waiters: Vec<usize>,
    pub(crate) stopped: bool,
    pub(crate) parked: Vec<usize>,
    pub(crate) dead: bool,
}
