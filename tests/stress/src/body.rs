//! State of a tenant: its process, and the memory, loans and pool of each of its threads.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use simgpu::{Blocks, Context, Gpu, Node, Process, Refusal, Shared};
use tranche_policy::{BLOCK_BYTES, Ledger, Owner};
use tranche_shm::DeviceSlot;

use crate::board::{Board, Lane, THREADS, Wait, Word};
use crate::broken::Broken;
use crate::chance::Chance;
use crate::delays::Delays;
use crate::heap::Heap;
use crate::points::{Aim, name};

/// Parameters of a new tenant.
#[derive(Clone, Debug)]
pub struct Birth {
    /// Folder of the run's files.
    pub place: PathBuf,
    /// Board of the run.
    pub board: Board,
    /// Number of the tenant on the board.
    pub tenant: usize,
    /// Lane of its first thread on the board.
    pub lane: Lane,
    /// The node whose first GPU it uses.
    pub node: Node,
    /// Point of its death, if not at random.
    pub aim: Option<Aim>,
    /// Random numbers that decide its steps.
    pub chance: Chance,
    /// Fault of its protocol, made on purpose.
    pub broken: Option<Broken>,
    /// True if it may have a child, or become another program.
    pub may_have_children: bool,
}

/// A tenant's process, which all of its threads share.
pub(crate) struct Body {
    pub(crate) birth: Birth,
    pub(crate) ledger: Ledger<'static>,
    pub(crate) process: Process,
    pub(crate) gpu: Gpu,
    /// Blocks that the driver holds for it alone. Never less than it does.
    pub(crate) holds: AtomicU64,
    /// Of these, blocks that the pool of each thread keeps.
    pub(crate) pools: [AtomicU64; THREADS],
    pub(crate) threads: usize,
    pub(crate) delays: [OnceLock<Delays>; THREADS],
}

const DEVICE: usize = 0;

pub(crate) fn device() -> DeviceSlot {
    DeviceSlot::new(DEVICE).expect("a slice has a first device")
}

impl Body {
    /// Takes blocks of the device.
    pub(crate) fn take(&self, blocks: u64) -> Result<(), Refusal> {
        self.process.take_blocks(self.gpu, Blocks(blocks))?;
        self.holds.fetch_add(blocks, SeqCst);
        Ok(())
    }

    /// Returns blocks to the device.
    pub(crate) fn give(&self, blocks: u64) {
        self.holds_less(blocks);
        self.process.give_blocks(self.gpu, Blocks(blocks));
    }

    pub(crate) fn holds_less(&self, blocks: u64) {
        self.holds.fetch_sub(blocks, SeqCst);
    }

    pub(crate) fn context_blocks(&self) -> u64 {
        self.process.node().gpu_spec(self.gpu).model.context().0
    }

    /// Wait of its threads for a processor, in nanoseconds.
    fn delay_ns(&self) -> u64 {
        self.delays.iter().filter_map(OnceLock::get).map(Delays::ns).sum()
    }

    /// Checks that the driver does not hold more for this process than it is charged.
    ///
    /// While other threads are between two steps, both cannot be read at one instant, but then they do not stay as they
    /// are.
    pub(crate) fn check(&self) {
        const READS: usize = 100;
        let tenant = self.ledger.tenant();
        let read = || (self.holds.load(SeqCst) * BLOCK_BYTES, tenant.used_by(tenant.slot, device()));
        let (holds, charged) = read();
        if holds > charged && (0..READS).all(|_| read() == (holds, charged)) {
            self.birth.board.count(Word::Uncharged);
            let last = |thread| self.birth.lane.of_thread(thread).last().map(name);
            let pools = self.pools.each_ref().map(|pool| pool.load(SeqCst));
            eprintln!(
                "{} holds {holds} bytes and is charged {charged}; {:?}, blocks of pools {pools:?}, last at {:?}",
                std::process::id(),
                tenant.usage.credit(tenant.slot, device()).load(),
                (0..self.threads).map(last).collect::<Vec<_>>(),
            );
        }
    }
}

/// A thread's allocations from its pool.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) next: u64,
    pub(crate) live: Vec<(u64, u64)>,
}

impl Pool {
    /// Blocks for the live allocations and `more` bytes.
    pub(crate) fn needs(&self, more: u64) -> u64 {
        (self.live.iter().map(|(_, bytes)| bytes).sum::<u64>() + more).div_ceil(BLOCK_BYTES)
    }
}

/// Memory that a thread lent and borrowed.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    pub(crate) lent: Vec<(u64, Shared)>,
    pub(crate) borrowed: Vec<Shared>,
}

/// One thread of a tenant.
pub(crate) struct Hand<'a> {
    pub(crate) body: &'a Body,
    pub(crate) thread: usize,
    pub(crate) chance: Chance,
    pub(crate) heap: Heap,
    pub(crate) pool: Pool,
    pub(crate) loans: Loans,
    pub(crate) context: Option<(Context, Owner)>,
    lane: Lane,
    pub(crate) may_have_children: bool,
}

impl<'a> Hand<'a> {
    pub(crate) fn of(
        body: &'a Body,
        thread: usize,
        chance: Chance,
        context: Option<(Context, Owner)>,
    ) -> Self {
        let lane = body.birth.lane.of_thread(thread);
        lane.belongs_to(body.delays[thread].get_or_init(Delays::open).thread());
        Self {
            body,
            thread,
            chance,
            heap: Heap::of(thread),
            pool: Pool::default(),
            loans: Loans::default(),
            context,
            lane,
            may_have_children: body.birth.may_have_children && body.birth.aim.is_none(),
        }
    }

    /// Begins a wait for the slice, which is paused in calls of the driver.
    pub(crate) fn waits(&self) -> Waits<'_> {
        let waits = Waits { lane: self.lane, body: self.body, wait: Cell::new(None) };
        waits.resume();
        waits
    }
}

/// A wait for the slice, which is paused in calls of the driver.
pub(crate) struct Waits<'a> {
    lane: Lane,
    body: &'a Body,
    wait: Cell<Option<Wait>>,
}

impl Waits<'_> {
    pub(crate) fn pause(&self) {
        let _ = self.wait.take().map(|wait| self.lane.end(wait, self.body.delay_ns()));
    }

    pub(crate) fn resume(&self) {
        self.wait.set(Some(self.lane.begin(self.body.delay_ns())));
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.pause();
    }
}
