//! Memory that several processes hold: there until the last of them lets go, counted on its GPU once.
//!
//! It is counted for the process that made it, and when that has let go or died, for another that still holds it.
#![forbid(unsafe_code)]

use crate::ground::Ground;
use crate::layout::{PROCESSES, SHARED, Words, gpu, holding, shared};
use crate::node::stamps;
use crate::process::Process;
use crate::refusal::Refusal;
use crate::units::{Blocks, Gpu};

/// The name of a piece of shared memory: no other of its GPU ever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shared {
    gpu: Gpu,
    serial: u64,
}

impl Shared {
    /// The piece of a GPU with a number that [`Shared::serial`] gave, perhaps in another process.
    pub const fn new(gpu: Gpu, serial: u64) -> Self {
        Self { gpu, serial }
    }

    /// The GPU it is on.
    pub const fn gpu(self) -> Gpu {
        self.gpu
    }

    /// Its number, never zero.
    pub const fn serial(self) -> u64 {
        self.serial
    }
}

impl Process {
    /// Makes memory that this process took with [`Process::take_blocks`] one that others can hold too. It is no longer
    /// to be given back, but to be left.
    pub fn share(&self, gpu: Gpu, blocks: Blocks) -> Result<Shared, Refusal> {
        let ground = self.node().ground(gpu);
        let serial = ground.share(self.slot(), blocks)?;
        Ok(Shared { gpu, serial })
    }

    /// Holds shared memory from now on. Refused if its last holder has gone.
    pub fn join(&self, shared: Shared) -> Result<(), Refusal> {
        self.node().reap();
        self.node().ground(shared.gpu).join(self.slot(), shared.serial)
    }

    /// Lets go of shared memory.
    pub fn leave(&self, shared: Shared) {
        self.node().ground(shared.gpu).leave(self.slot(), shared.serial);
    }
}

impl Ground<'_> {
    fn share(&self, process: usize, blocks: Blocks) -> Result<u64, Refusal> {
        let free = |place: &usize| self.words.shared(*place).get(shared::SERIAL) == 0;
        let place = (0..SHARED).find(free).ok_or(Refusal::Shared(self.gpu))?;
        let words = self.words.shared(place);
        words.clear();
        words.set(shared::BLOCKS, blocks.0);
        words.set(shared::PAYER, process as u64);
        mark(words, process, true);
        let serial = self.words.header().add(gpu::SHARED_SERIAL, 1);
        self.words.holding(process).take(holding::BLOCKS, blocks.0);
        words.set(shared::SERIAL, serial);
        self.account_shared();
        Ok(serial)
    }

    fn join(&self, process: usize, serial: u64) -> Result<(), Refusal> {
        self.check_present()?;
        let words = self.pieces().find(|words| words.get(shared::SERIAL) == serial);
        mark(words.ok_or(Refusal::Gone(self.gpu))?, process, true);
        Ok(())
    }

    fn leave(&self, process: usize, serial: u64) {
        let piece = self.pieces().find(|words| words.get(shared::SERIAL) == serial);
        let gone = piece.map_or(0, |words| leave(words, process));
        self.words.header().take(gpu::USED, gone);
        self.account_shared();
    }

    /// A process lets go of every piece.
    pub(crate) fn leave_all(&self, process: usize) {
        let gone: u64 = self.pieces().map(|words| leave(words, process)).sum();
        self.words.header().take(gpu::USED, gone);
    }

    fn pieces(&self) -> impl Iterator<Item = Words<'_>> {
        (0..SHARED).map(|place| self.words.shared(place)).filter(|words| words.get(shared::SERIAL) != 0)
    }

    /// Settles every piece, and makes anew what each process pays for.
    ///
    /// A process may have been killed in the midst of leaving one.
    pub(crate) fn recount_shared(&self) {
        self.pieces().for_each(|words| _ = settle(words));
        self.account_shared();
    }

    /// Takes a process out of a piece's holders, as if it were killed before it settled the piece.
    #[cfg(test)]
    pub(crate) fn leave_unsettled(&self, process: usize, serial: u64) {
        let piece = self.pieces().find(|words| words.get(shared::SERIAL) == serial);
        mark(piece.expect("it is there"), process, false);
    }

    /// Makes anew what each process pays for.
    fn account_shared(&self) {
        let mut sums = [0; PROCESSES];
        for words in self.pieces() {
            sums[words.get(shared::PAYER) as usize % PROCESSES] += words.get(shared::BLOCKS);
        }
        for (slot, _) in stamps(self.node.words()) {
            self.words.holding(slot).set(holding::SHARED_BLOCKS, sums[slot]);
        }
    }
}

fn mark(words: Words<'_>, process: usize, holds: bool) {
    let (field, bit) = (shared::HOLDERS + process / 64, 1 << (process % 64));
    let others = words.get(field) & !bit;
    words.set(field, if holds { others | bit } else { others });
}

fn holders(words: Words<'_>) -> impl Iterator<Item = usize> {
    (0..PROCESSES).filter(move |process| words.get(shared::HOLDERS + process / 64) >> (process % 64) & 1 == 1)
}

/// Takes a process out of a piece's holders. Returns the number of blocks that this sets free.
fn leave(words: Words<'_>, process: usize) -> u64 {
    let held = holders(words).any(|holder| holder == process);
    mark(words, process, false);
    if held { settle(words) } else { 0 }
}

/// Lets one of a piece's holders pay for it. Returns the number of blocks that are free as it has none.
fn settle(words: Words<'_>) -> u64 {
    let Some(heir) = holders(words).next() else {
        words.set(shared::SERIAL, 0);
        return words.get(shared::BLOCKS);
    };
    if !holders(words).any(|holder| holder as u64 == words.get(shared::PAYER)) {
        words.set(shared::PAYER, heir as u64);
    }
    0
}
