//! The life of a tenant: it attaches, takes, shares and frees device memory at random, and is killed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use simgpu::{Blocks, Context, Refusal};
use tranche_policy::{BLOCK_BYTES, ChargeRefused, Claim, ClaimDenied, EntryKind, Extent, Owner};
use tranche_shm::credit::Units;

use crate::attach;
use crate::board::{Board, THREADS, Word};
use crate::body::{Body, Hand, device};
use crate::broken::Broken;
use crate::chance::Chance;
use crate::connection::DaemonLine;
use crate::delays::Delays;
use crate::kin;
use crate::points::{Side, doom, is_thread};

pub use crate::body::Birth;

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
}

impl Hand<'_> {
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

    fn open_context(&mut self) {
        let body = self.body;
        let waits = self.waits();
        let reserved = body.ledger.reserve_context(device(), &DaemonLine);
        drop(waits);
        match reserved.map(|()| body.process.create_context(body.gpu)) {
            Ok(Ok(context)) => {
                body.holds.fetch_add(body.context_blocks(), SeqCst);
                let owner = body.ledger.primary_opened(context.serial(), device());
                self.context = Some((context, owner));
            }
            Ok(Err(_)) => body.birth.board.count(Word::DriverRefusals),
            Err(ChargeRefused) => self.refused(),
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
        let _ = ledger.close(1, context.serial(), &DaemonLine, driver);
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
        let allocated =
            body.ledger.allocate(EntryKind::Memory, claim, &DaemonLine, driver, |_| body.give(fresh));
        drop(waits);
        match allocated {
            Ok(_) => {
                body.birth.board.count(Word::Charges);
                self.heap.enter(address, bytes);
            }
            Err(ClaimDenied::Driver(_)) => body.birth.board.count(Word::DriverRefusals),
            Err(ClaimDenied::OutOfMemory) => {
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
                let _ = self.body.ledger.free(EntryKind::Memory, address, driver);
            }
        }
    }
}

/// Attaches to the slice, and charges all of it at once; returns the bytes, or 0 if it is refused.
pub fn fill(board: Board) -> u64 {
    doom(board, Side::Tenant, None, None);
    let Ok(ledger) = attach::ledger() else { return 0 };
    let all = Units::within(ledger.tenant().view(device()).total);
    match ledger.tenant().charge(device(), all, &DaemonLine) {
        Ok(reservation) => {
            reservation.keep(all);
            all.bytes()
        }
        Err(ChargeRefused) => 0,
    }
}
