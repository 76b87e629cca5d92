//! The life of a tenant: it joins the slice, takes and frees device memory at random, and is killed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use simgpu::{Blocks, Context, Gpu, Node, Process, Refusal};
use tranche_policy::{BLOCK, BLOCK_BYTES, Claim, Denied, Extent, Kind, Ledger, Owner, Refused};
use tranche_shm::DeviceSlot;
use tranche_shm::credit::{Credit, Units};

use crate::attach;
use crate::board::{Board, Lane, Wait, Word};
use crate::chance::Chance;
use crate::connection::Line;
use crate::points::{Aim, Side, doom};

/// A protocol that is wrong on purpose, to show that the run would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Broken {
    /// The driver is asked first and the charge made afterwards.
    DriverFirst,
    /// The credit word is read, changed and written back, as if nobody else wrote it.
    LostUpdate,
    /// Somebody hands out credit that is in no ledger.
    OverGrant,
}

/// All that a tenant is born with.
#[derive(Clone, Debug)]
pub struct Birth {
    /// Where it says what it does.
    pub board: Board,
    /// Its lane there.
    pub lane: Lane,
    /// The node whose first GPU it uses.
    pub node: Node,
    /// Where it will die, if not at random.
    pub aim: Option<Aim>,
    /// What it will do.
    pub chance: Chance,
    /// What is wrong with it.
    pub broken: Option<Broken>,
}

/// Lives until killed, or until nobody lets it in.
pub fn live(birth: Birth) {
    doom(birth.board, Side::Tenant, Some(birth.lane), birth.aim);
    let delays = Delays::open();
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
    let heap = Heap { next: 1 << 40, shared: BTreeMap::new(), held: Vec::new() };
    let mut tenant = Tenant { birth, delays, ledger, process, gpu, heap, context: None };
    loop {
        tenant.step();
        tenant.check();
    }
}

struct Tenant {
    birth: Birth,
    delays: Delays,
    ledger: Ledger<'static>,
    process: Process,
    gpu: Gpu,
    heap: Heap,
    context: Option<(Context, Owner)>,
}

/// What it holds of the device, by address.
struct Heap {
    next: u64,
    /// Blocks with small allocations in them, and how many.
    shared: BTreeMap<u64, u64>,
    held: Vec<(u64, u64)>,
}

impl Heap {
    fn blocks(&self) -> u64 {
        let whole = self.held.iter().filter(|(_, bytes)| *bytes >= BLOCK_BYTES);
        whole.map(|(_, bytes)| bytes.div_ceil(BLOCK_BYTES)).sum::<u64>() + self.shared.len() as u64
    }
}

const DEVICE: usize = 0;

fn device() -> DeviceSlot {
    DeviceSlot::new(DEVICE).expect("a slice has a first device")
}

impl Tenant {
    fn step(&mut self) {
        let Some((context, owner)) = self.context else { return self.open_context() };
        match self.birth.chance.below(100) {
            0 => self.close_context(context),
            1..45 => self.free(),
            45..75 => {
                let bytes = 1 + self.birth.chance.below(BLOCK_BYTES - 1);
                self.allocate(bytes, owner);
            }
            _ => {
                let bytes = BLOCK_BYTES * (1 + self.birth.chance.below(96));
                self.allocate(bytes, owner);
            }
        }
    }

    /// What the driver holds for this process never exceeds what it was charged.
    fn check(&self) {
        self.check_with(0);
    }

    /// The same where the driver has just given so many blocks more.
    fn check_with(&self, fresh: u64) {
        let context =
            self.context.map_or(0, |_| self.process.node().gpu_spec(self.gpu).model.context().bytes());
        let held = context + (self.heap.blocks() + fresh) * BLOCK_BYTES;
        let tenant = self.ledger.tenant();
        if held > tenant.used_by(tenant.slot, device()) {
            self.birth.board.count(Word::Uncharged);
        }
    }

    fn open_context(&mut self) {
        let wait = self.birth.lane.begin(self.delays.ns());
        let reserved = self.ledger.reserve_context(device(), &Line);
        self.birth.lane.end(wait, self.delays.ns());
        match reserved.map(|()| self.process.create_context(self.gpu)) {
            Ok(Ok(context)) => {
                let owner = self.ledger.primary_opened(context.serial(), device());
                self.context = Some((context, owner));
            }
            Ok(Err(_)) => self.birth.board.count(Word::DriverRefusals),
            Err(Refused) => self.refused(),
        }
    }

    fn close_context(&mut self, context: Context) {
        let blocks = self.heap.blocks();
        let driver = || {
            self.process.give_blocks(self.gpu, Blocks(blocks));
            self.process.destroy_context(context);
            Ok::<(), Refusal>(())
        };
        let _ = self.ledger.close(context.serial(), driver);
        self.heap.shared.clear();
        self.heap.held.clear();
        self.context = None;
    }

    fn refused(&self) {
        self.birth.board.count(Word::Refusals);
        std::thread::sleep(Duration::from_micros(300));
    }

    fn allocate(&mut self, bytes: u64, owner: Owner) {
        match self.birth.broken {
            Some(Broken::DriverFirst) => return self.allocate_driver_first(bytes),
            Some(Broken::LostUpdate) => return self.allocate_with_lost_updates(bytes),
            _ => {}
        }
        let (address, fresh) = self.heap.place(bytes);
        let (lane, delays, process, gpu) = (self.birth.lane, &self.delays, &self.process, self.gpu);
        let wait: Cell<Option<Wait>> = Cell::new(Some(lane.begin(delays.ns())));
        let extent = Extent::plain(bytes).expect("it is far less than 16 TiB");
        let driver = || {
            // Only what is ours counts as waiting.
            let _ = wait.take().map(|wait| lane.end(wait, delays.ns()));
            process.take_blocks(gpu, Blocks(fresh))?;
            self.check_with(fresh);
            wait.set(Some(lane.begin(delays.ns())));
            Ok::<_, Refusal>((address, extent))
        };
        let undo = |_| process.give_blocks(gpu, Blocks(fresh));
        let claim = Claim { device: device(), extent, owner };
        let allocated = self.ledger.allocate(Kind::Memory, claim, &Line, driver, undo);
        let _ = wait.take().map(|wait| lane.end(wait, delays.ns()));
        match allocated {
            Ok(_) => {
                self.birth.board.count(Word::Charges);
                self.heap.enter(address, bytes);
            }
            Err(Denied::Driver(_)) => self.birth.board.count(Word::DriverRefusals),
            Err(Denied::OutOfMemory) => {
                self.refused();
                // Somebody has to let go, or nobody would ever get anything.
                self.free();
            }
        }
    }

    fn free(&mut self) {
        if self.heap.held.is_empty() {
            return;
        }
        let at = self.birth.chance.below(self.heap.held.len() as u64) as usize;
        let (address, bytes) = self.heap.held.swap_remove(at);
        let back = self.heap.leave(address, bytes);
        let driver = || {
            self.process.give_blocks(self.gpu, Blocks(back));
            Ok::<(), Refusal>(())
        };
        match self.birth.broken {
            Some(Broken::DriverFirst | Broken::LostUpdate) => {
                let _ = driver();
                self.ledger.tenant().release(device(), Units::new(BLOCK.get() * back as u32));
            }
            _ => {
                let _ = self.ledger.free(Kind::Memory, address, driver);
            }
        }
    }
}

/// What is wrong on purpose.
impl Tenant {
    fn allocate_driver_first(&mut self, bytes: u64) {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let blocks = bytes / BLOCK_BYTES;
        if self.process.take_blocks(self.gpu, Blocks(blocks)).is_err() {
            return;
        }
        self.check_with(blocks);
        let units = Units::within(bytes);
        match self.ledger.tenant().charge(device(), units, &Line) {
            Ok(reservation) => {
                reservation.keep(units);
                self.take_note(bytes);
            }
            Err(Refused) => self.process.give_blocks(self.gpu, Blocks(blocks)),
        }
    }

    fn allocate_with_lost_updates(&mut self, bytes: u64) {
        let units = Units::within(bytes.next_multiple_of(BLOCK_BYTES));
        let tenant = self.ledger.tenant();
        let word = tenant.usage.credit(tenant.slot, device());
        let seen = word.load();
        if seen.unused() < units {
            drop(tenant.charge(device(), units, &Line));
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
        word.reset(Credit { used: seen.used.saturating_add(units), ..seen });
        if self.process.take_blocks(self.gpu, Blocks(units.bytes() / BLOCK_BYTES)).is_ok() {
            self.take_note(units.bytes());
        }
    }

    fn take_note(&mut self, bytes: u64) {
        let (address, _) = self.heap.place(bytes);
        self.heap.enter(address, bytes);
    }
}

impl Heap {
    /// Where an allocation goes, and how many blocks the driver needs for it. Small ones share blocks, and may
    /// lie over the edge of one, never over more than one that is new.
    fn place(&self, bytes: u64) -> (u64, u64) {
        let whole = bytes >= BLOCK_BYTES;
        let fresh = |next| {
            blocks(next, bytes).filter(|block| whole || !self.shared.contains_key(block)).count() as u64
        };
        let mut address = self.next;
        if whole || fresh(address) > 1 {
            address = address.next_multiple_of(BLOCK_BYTES);
        }
        (address, fresh(address))
    }

    fn enter(&mut self, address: u64, bytes: u64) {
        self.next = address + bytes;
        if bytes >= BLOCK_BYTES {
            self.next = self.next.next_multiple_of(BLOCK_BYTES);
        } else {
            blocks(address, bytes).for_each(|block| *self.shared.entry(block).or_default() += 1);
        }
        self.held.push((address, bytes));
    }

    /// How many blocks the driver gets back.
    fn leave(&mut self, address: u64, bytes: u64) -> u64 {
        if bytes >= BLOCK_BYTES {
            return bytes.div_ceil(BLOCK_BYTES);
        }
        for block in blocks(address, bytes) {
            *self.shared.entry(block).or_default() -= 1;
        }
        let before = self.shared.len();
        self.shared.retain(|_, live| *live > 0);
        (before - self.shared.len()) as u64
    }
}

fn blocks(address: u64, bytes: u64) -> std::ops::Range<u64> {
    address / BLOCK_BYTES..(address + bytes - 1) / BLOCK_BYTES + 1
}

/// How long this process had to wait for a processor, as the kernel counts it.
struct Delays(Option<File>);

impl Delays {
    fn open() -> Self {
        Self(File::open("/proc/self/schedstat").ok())
    }

    fn ns(&self) -> u64 {
        let mut text = [0; 96];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or_default();
        let text = std::str::from_utf8(&text[..read]).unwrap_or_default();
        text.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or_default()
    }
}

/// Joins the slice, takes all of it at once and says how much that was.
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
