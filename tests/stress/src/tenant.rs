//! The life of a tenant: it attaches, takes, shares and frees device memory at random, and is killed.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use simgpu::{Blocks, Context, Gpu, Node, Process, Refusal};
use tranche_policy::{BLOCK_BYTES, Claim, Denied, Extent, Kind, Ledger, Owner, Refused};
use tranche_shm::DeviceSlot;
use tranche_shm::credit::Units;

use crate::attach;
use crate::board::{Board, Lane, THREADS, Wait, Word};
use crate::chance::Chance;
use crate::connection::Line;
use crate::delays::Delays;
use crate::heap::Heap;
use crate::kin;
use crate::lending::Loans;
use crate::points::{Aim, Side, doom, is_thread, name};
use crate::pool::Pool;
use crate::wrong::Broken;

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

/// Works until killed; returns if the tenant is not admitted to the slice.
pub fn live(mut birth: Birth) {
    doom(birth.board, Side::Tenant, Some(birth.lane), birth.aim);
    std::panic::set_hook(Box::new(move |panic| {
        birth.board.count(Word::Panics);
        eprintln!("{panic}");
    }));
    let delays = Delays::open();
    birth.lane.belongs_to(delays.thread());
    let turn = birth.board.get(Word::DaemonTurn);
    let wait = birth.lane.begin(delays.ns());
    let Ok(ledger) = attach::ledger() else {
        if birth.board.get(Word::DaemonTurn) == turn && turn.is_multiple_of(2) {
            birth.board.count(Word::TurnedAway);
        }
        return;
    };
    let _ = birth.lane.end(wait, delays.ns());
    birth.board.count(Word::Attached);
    let Ok(process) = birth.node.register() else { return };
    let gpu = process.node().gpu(0).expect("every node has a first GPU");
    let several = birth.broken.is_none() && birth.chance.once_in(4);
    let threads = if several { 2 + birth.chance.below(THREADS as u64 - 1) as usize } else { 1 };
    let body = Body {
        birth,
        ledger: *ledger,
        process,
        gpu,
        holds: AtomicU64::new(0),
        pools: Default::default(),
        threads,
        delays: Default::default(),
    };
    body.work();
}

/// A tenant's process, which all of its threads share.
pub(crate) struct Body {
    pub(crate) birth: Birth,
    pub(crate) ledger: Ledger<'static>,
    pub(crate) process: Process,
    pub(crate) gpu: Gpu,
    /// Blocks that the driver holds for it alone. Never less than it does.
    holds: AtomicU64,
    /// Of these, blocks that the pool of each thread keeps.
    pub(crate) pools: [AtomicU64; THREADS],
    threads: usize,
    delays: [OnceLock<Delays>; THREADS],
}

const DEVICE: usize = 0;

pub(crate) fn device() -> DeviceSlot {
    DeviceSlot::new(DEVICE).expect("a slice has a first device")
}

impl Body {
    /// Works in all threads until the process ends.
    fn work(&self) {
        let mut first = Hand::of(self, 0, self.birth.chance.clone(), None);
        if self.threads > 1 {
            while first.context.is_none() {
                first.open_context();
            }
        }
        let context = first.context;
        std::thread::scope(|scope| {
            for thread in 1..self.threads {
                let chance = Chance::new(first.chance.number());
                scope.spawn(move || Hand::of(self, thread, chance, context).work());
            }
            first.work();
        });
    }

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

    fn context_blocks(&self) -> u64 {
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

/// One thread of a tenant.
pub(crate) struct Hand<'a> {
    pub(crate) body: &'a Body,
    pub(crate) thread: usize,
    pub(crate) chance: Chance,
    pub(crate) heap: Heap,
    pub(crate) pool: Pool,
    pub(crate) loans: Loans,
    context: Option<(Context, Owner)>,
    lane: Lane,
    may_have_children: bool,
}

impl<'a> Hand<'a> {
    fn of(body: &'a Body, thread: usize, chance: Chance, context: Option<(Context, Owner)>) -> Self {
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

    /// Works until killed. A thread that panics ends the process, so that its failure is counted.
    fn work(&mut self) {
        is_thread(self.thread);
        let failed = catch_unwind(AssertUnwindSafe(|| {
            loop {
                self.step();
                self.body.check();
            }
        }));
        std::process::exit(if failed.is_err() { 101 } else { 0 })
    }

    fn step(&mut self) {
        let Some((context, owner)) = self.context else { return self.open_context() };
        let alone = self.body.threads == 1;
        match self.chance.below(100) {
            0 if alone => self.close_context(context),
            1 if alone => self.have_a_child_or_be_one(),
            0..38 => self.free(),
            38..60 => {
                let bytes = 1 + self.chance.below(BLOCK_BYTES - 1);
                self.allocate(bytes, owner);
            }
            60..70 => self.use_pool(),
            70..84 => self.lend_or_borrow(),
            _ => {
                let bytes = BLOCK_BYTES * (1 + self.chance.below(96));
                self.allocate(bytes, owner);
            }
        }
    }

    /// Begins a wait for the slice, which is paused in calls of the driver.
    pub(crate) fn waits(&self) -> Waits<'_> {
        let waits = Waits { lane: self.lane, body: self.body, wait: Cell::new(None) };
        waits.resume();
        waits
    }

    fn open_context(&mut self) {
        let body = self.body;
        let waits = self.waits();
        let reserved = body.ledger.reserve_context(device(), &Line);
        drop(waits);
        match reserved.map(|()| body.process.create_context(body.gpu)) {
            Ok(Ok(context)) => {
                body.holds.fetch_add(body.context_blocks(), SeqCst);
                let owner = body.ledger.primary_opened(context.serial(), device());
                self.context = Some((context, owner));
            }
            Ok(Err(_)) => body.birth.board.count(Word::DriverRefusals),
            Err(Refused) => self.refused(),
        }
    }

    fn close_context(&mut self, context: Context) {
        self.drain_pool();
        let body = self.body;
        let ledger = body.ledger;
        let driver = || {
            body.give(self.heap.blocks());
            self.leave_all_lent();
            body.holds_less(body.context_blocks());
            body.process.destroy_context(context);
            Ok::<(), Refusal>(())
        };
        let _ = ledger.close(1, context.serial(), &Line, driver);
        self.heap.clear();
        self.context = None;
        self.tell();
    }

    /// Forks a child, which attaches by itself, or executes another program, which begins without charges.
    fn have_a_child_or_be_one(&mut self) {
        let birth = &self.body.birth;
        if !std::mem::take(&mut self.may_have_children) {
            return;
        }
        if self.chance.once_in(2) {
            birth.board.count(Word::Rebirths);
            let error = kin::begin_anew(&birth.place, birth.tenant, self.chance.number());
            panic!("it cannot become another program: {error}");
        }
        birth.board.count(Word::Children);
        let chance = Chance::new(self.chance.number());
        let lane = birth.lane.of_child();
        let child = Birth { lane, aim: None, chance, may_have_children: false, ..birth.clone() };
        kin::bear(|| live(child)).expect("there is room for another process");
    }

    pub(crate) fn refused(&self) {
        self.body.birth.board.count(Word::Refusals);
        std::thread::sleep(Duration::from_micros(300));
    }

    fn allocate(&mut self, bytes: u64, owner: Owner) {
        match self.body.birth.broken {
            Some(Broken::DriverFirst) => return self.allocate_driver_first(bytes),
            Some(Broken::LostUpdate) => return self.allocate_with_lost_updates(bytes),
            _ => {}
        }
        let (address, fresh) = self.heap.place(bytes);
        let body = self.body;
        let waits = self.waits();
        let extent = Extent::plain(bytes).expect("it is far less than 16 TiB");
        let driver = || {
            waits.pause();
            body.take(fresh)?;
            body.check();
            waits.resume();
            Ok::<_, Refusal>((address, extent))
        };
        let claim = Claim { device: device(), extent, owner };
        let allocated = body.ledger.allocate(Kind::Memory, claim, &Line, driver, |_| body.give(fresh));
        drop(waits);
        match allocated {
            Ok(_) => {
                body.birth.board.count(Word::Charges);
                self.heap.enter(address, bytes);
            }
            Err(Denied::Driver(_)) => body.birth.board.count(Word::DriverRefusals),
            Err(Denied::OutOfMemory) => {
                self.refused();
                self.free();
                self.give_back_loans();
            }
        }
    }

    fn free(&mut self) {
        if self.heap.held.is_empty() {
            return;
        }
        let at = self.chance.below(self.heap.held.len() as u64) as usize;
        let (address, bytes) = self.heap.held.swap_remove(at);
        let back = self.heap.leave(address, bytes);
        match self.body.birth.broken {
            Some(Broken::DriverFirst | Broken::LostUpdate) => self.free_unknown(Blocks(back)),
            _ => {
                let driver = || {
                    self.body.give(back);
                    Ok::<(), Refusal>(())
                };
                let _ = self.body.ledger.free(Kind::Memory, address, driver);
            }
        }
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

/// Attaches to the slice, and charges all of it at once; returns the bytes, or 0 if it is refused.
pub fn fill(board: Board) -> u64 {
    doom(board, Side::Tenant, None, None);
    let Ok(ledger) = attach::ledger() else { return 0 };
    let all = Units::within(ledger.tenant().view(device()).total);
    match ledger.tenant().charge(device(), all, &Line) {
        Ok(reservation) => {
            reservation.keep(all);
            all.bytes()
        }
        Err(Refused) => 0,
    }
}
